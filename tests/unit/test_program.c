/* sim/program.h, sim/program_csv.h: wrong programs are refused with rank, index
 * and reason; text in both dialects reads back as what was written. */
#include "cost/base/arena.h"
#include "cost/base/err.h"
#include "sim/program.h"
#include "sim/program_csv.h"
#include "sim/schedule.h"
#include "tests/unit/test.h"

static int parse(const char *text, struct arena *arena, struct program *ret, struct err *err)
{
    return program_parse(text, strlen(text), "x.csv", arena, ret, err);
}

static void expect_refused(const char *text, const char *sentence)
{
    struct arena arena = {0};
    struct err err = {0};
    struct program program;
    CHECK_INT(parse(text, &arena, &program, &err), -1);
    CHECK_CONTAINS(err.text, sentence);
    CHECK_INT(parse(text, &arena, &program, NULL), -1);
    arena_release(&arena);
}

#define HEADER "rank,index,op,mb,chunk,stage,dir,mb2,chunk2,stage2,dir2\n"

/* Each wrong program of our CSV, and the sentence it gets. */
static const struct {
    const char *text, *sentence;
} wrong[] = {
    {"", "program 'x.csv': no ops in it"},
    {HEADER, "no ops in it"},
    {"rank,index\n", "line 1: the first line must be the column names"},
    {HEADER "0,0,F,0,0,0\n", "line 2: not 11 columns"},
    {HEADER "0,0,F,0,0,0,0,,,,,\n", "line 2: more than 11 columns"},
    {HEADER "0,0,X,0,0,0,0,,,,\n", "line 2: unknown op (allowed: F, B, W, BW, F&BW): 'X'"},
    {HEADER "0,0,F,-1,0,0,0,,,,\n", "line 2: mb is not a number"},
    {HEADER "0,0,F,99999999999999999999,0,0,0,,,,\n", "line 2: mb is not a number"},
    {HEADER "9999,0,F,0,0,0,0,,,,\n", "line 2: rank is not a number from 0 to 4095"},
    {HEADER "0,0,F,0,0,0,2,,,,\n", "line 2: dir is not a number from 0 to 1"},
    {HEADER "0,1,F,0,0,0,0,,,,\n", "line 2: rank 0: expected index 0"},
    {HEADER "0,0,F,0,0,0,0,1,,,\n", "line 2: only F&BW has a second half"},
    {HEADER "0,0,F,0,0,0,0,,,,\n1,0,F,0,0,0,0,,,,\n", "line 3: rank 1, index 0: stage 0 is on rank 1 here and on rank 0 before"},
    {HEADER "0,0,F,0,0,0,0,,,,\n0,1,BW,0,1,0,0,,,,\n", "line 3: rank 0, index 1: stage 0 is chunk 1 here and chunk 0 before"},
    {HEADER "0,0,F,0,0,0,0,,,,\n0,1,F,0,0,2,0,,,,\n", "line 3: rank 0, index 1: unknown stage 2: no rank runs stage 1"},
    {HEADER "0,0,F,0,0,0,0,,,,\n", "rank 0, index 1 (its end): missing op: B mb 0 stage 0"},
    {HEADER "0,0,F,0,0,0,0,,,,\n0,1,B,0,0,0,0,,,,\n", "missing op: W mb 0 stage 0"},
    {HEADER "0,0,BW,0,0,0,0,,,,\n0,1,F,0,0,0,0,,,,\n", "rank 0, index 0: BW mb 0 stage 0: backward before its F"},
    {HEADER "0,0,F,0,0,0,0,,,,\n0,1,F,0,0,0,0,,,,\n", "rank 0, index 1: F mb 0 stage 0: second F"},
    {HEADER "0,0,F,0,0,0,0,,,,\n0,1,W,0,0,0,0,,,,\n", "rank 0, index 1: W mb 0 stage 0: W before its B"},
    {HEADER "0,0,F,0,0,0,0,,,,\n0,1,BW,0,0,0,0,,,,\n0,2,W,0,0,0,0,,,,\n", "rank 0, index 2: W mb 0 stage 0: second W"},
    {HEADER "0,0,F,0,0,0,0,,,,\n0,1,BW,0,0,0,0,,,,\n0,2,B,0,0,0,0,,,,\n", "second backward"},
    {HEADER "0,0,F&BW,0,0,0,0,0,0,0,0\n", "backward before its F"},
    /* Rank 0 waits for the backward of rank 1, which waits for a forward that rank 0 has behind it. */
    {HEADER "0,0,F,0,0,0,0,,,,\n0,1,BW,0,0,0,0,,,,\n0,2,F,1,0,0,0,,,,\n0,3,BW,1,0,0,0,,,,\n"
            "1,0,F,0,0,1,0,,,,\n1,1,F,1,0,1,0,,,,\n1,2,BW,0,0,1,0,,,,\n1,3,BW,1,0,1,0,,,,\n",
     "deadlock: rank 0 at index 1 (BW mb 0 stage 0) waits for B mb 0 stage 1 of rank 1, rank 1 at index 1 (F mb 1 stage 1) waits for "
     "F mb 1 stage 0 of rank 0"},
    /* PyTorch's dialect. */
    {"0F0,0Q0\n", "line 1: not an action of PyTorch's schedules: '0Q0'"},
    {"F0\n", "not an action of PyTorch's schedules"},
    {"0F\n", "not an action of PyTorch's schedules"},
    {"0F0x\n", "not an action of PyTorch's schedules"},
    {"99999F0\n", "not an action of PyTorch's schedules"},
    {"(0F0;0F1)OVERLAP_F_B\n", "an overlapped action must be a forward and a full backward"},
    {"(0F0,0B1)OVERLAP_F_B\n", "not an overlapped action"},
    {"(0F0\n", "not an overlapped action"},
    {"0F0,0B0\n0F1\n", "line 2: rank 1, index 0: stage 0 is on rank 1 here and on rank 0 before"},
    {"0F0,0SEND_F0,1RECV_F0,1F0,1B0,0B0\n",
     "rank 0, index 1: SEND_F mb 0 stage 0: self-send: both stages live on this rank"},
    {"0SEND_F0,0F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n",
     "rank 0, index 0: SEND_F mb 0 stage 0: sent before its F"},
    {"0F0,0SEND_F0,0B0,0RECV_B0\n1RECV_F0,1F0,1B0,1SEND_B0\n",
     "rank 0, index 3: RECV_B mb 0 stage 0: received after its B"},
    {"0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0\n", "rank 1, index 3 (its end): missing op: SEND_B mb 0 stage 1"},
    {"0F0,0SEND_F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n", "second message of the same kind"},
    /* The forward is sent only after a backward that waits for what the other rank makes of it. */
    {"0F0,0RECV_B0,0B0,0SEND_F0\n1RECV_F0,1F0,1B0,1SEND_B0\n",
     "deadlock: rank 0 at index 2 (BW mb 0 stage 0) waits for SEND_B mb 0 stage 1 of rank 1, rank 1 at index 1 (F mb 0 "
     "stage 1) waits for SEND_F mb 0 stage 0 of rank 0"},
    {"0F0,0B0\n,\n", "rank 1 runs no stage"},
    {HEADER "1,0,F,0,0,0,0,,,,\n1,1,BW,0,0,0,0,,,,\n", "rank 0 runs no stage"},
    {"0F0,0SEND_B0,0B0\n", "the pipeline has no stage at the other end"},
    {"0F0,0B4194303\n", "2 ops cannot be all of 1 stages x 4194304 micro-batches"},
    {"0F4194303,0B4194303\n16383F0\n", "ops cannot be all of"},
};

static void test_refusals(void)
{
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        expect_refused(wrong[i].text, wrong[i].sentence);
}

static void test_ours_and_theirs(void)
{
    struct arena arena = {0};
    struct err err = {0};
    struct program ours, theirs;
    CHECK_INT(parse("# a comment\r\n" HEADER "0,0,F,0,0,0,0,,,,\r\n0,1,BW,0,0,0,0,,,,\r\n", &arena, &ours, &err), 0);
    CHECK_INT(parse("0F0,0B0", &arena, &theirs, &err), 0);
    CHECK(program_equal(&ours, &theirs));
    CHECK_INT(ours.micro_batches, 1);
    CHECK_INT(ours.placement, PLACEMENT_LOOP);
    CHECK_STR(err.text, "");
    arena_release(&arena);
}

/* Idle cells and communication survive; program_strip drops them. */
static void test_comms(void)
{
    static const char text[] =
        "0UNSHARD,0F0,0SEND_F0,,0RECV_B0,0I0,0W0,0REDUCE_GRAD,0RESHARD\r\n1RECV_F0,1F0,1I0,1SEND_B0,1W0\r\n";
    struct arena arena = {0};
    struct err err = {0};
    struct program program;
    CHECK_INT(parse(text, &arena, &program, &err), 0);
    CHECK_INT(program.n_ops[0], 9);
    CHECK_INT(program_count_ops(&program), 6);
    char *back = program_to_torch_csv(&program, &err);
    CHECK_STR(back, text);
    free(back);
    program_strip(&program);
    CHECK_INT(program.n_ops[0], 3);
    CHECK_INT(program_check(&program, &err), 0);
    arena_release(&arena);
}

/* Every schedule through our CSV and, where it can, PyTorch's. */
static void test_round_trips(void)
{
    for (int i = 0; i < SCHEDULES; i++) {
        struct arena arena = {0};
        struct err err = {0};
        struct program program, again;
        struct schedule_request request = {.pp = 4, .micro_batches = 8};
        CHECK_INT(schedule_emit((enum plan_schedule)i, &request, &arena, &program, &err), 0);
        char *text = program_to_csv(&program);
        CHECK_INT(parse(text, &arena, &again, &err), 0);
        CHECK(program_equal(&program, &again));
        CHECK_INT(again.placement, program.placement);
        free(text);
        text = program_to_torch_csv(&program, &err);
        if (program.directions > 1) {
            CHECK(text == NULL);
            CHECK_CONTAINS(err.text, "two directions");
        } else {
            CHECK_INT(parse(text, &arena, &again, &err), 0);
            CHECK(program_equal(&program, &again));
        }
        free(text);
        arena_release(&arena);
    }
}

static void test_format(void)
{
    char text[96];
    struct arena arena = {0};
    struct program program;
    CHECK_INT(program_init(&program, &arena, PLACEMENT_BIDIR, 4, 1, 0, 8, 4, NULL), 0);
    CHECK_INT(program.directions, 2);
    CHECK_INT(program.stage_rank[4], 3); /* stage 0 of direction 1 */
    struct op slot = op_overlap(op_plain(OP_F, 0, 1, 3), op_plain(OP_BW, 1, 2, 0));
    CHECK_STR(op_format(&program, &slot, text, sizeof text), "F mb 3 stage 1 dir 0 & BW mb 0 stage 2 dir 1");
    CHECK_STR(op_format(&program, &slot, text, 12), "F mb 3 stag"); /* cut, not overrun */
    CHECK_INT(sizeof(struct op), 16);
    arena_release(&arena);
}

static void test_sizes(void)
{
    struct arena arena = {0};
    struct err err = {0};
    struct program program;
    CHECK_INT(program_init(&program, &arena, PLACEMENT_LOOP, 0, 1, 0, 1, 1, &err), -1);
    CHECK_INT(program_init(&program, &arena, PLACEMENT_LOOP, 4096, 5, 0, 1, 1, &err), -1);
    CHECK_INT(program_init(&program, &arena, PLACEMENT_LOOP, 1, 1, 0, 0, 1, &err), -1);
    CHECK_INT(program_init(&program, &arena, PLACEMENT_LOOP, 4096, 1, 0, 1, INT64_MAX, &err), -1);
    CHECK_INT(err.count, 4);
    arena_release(&arena);
}

int main(void)
{
    test_refusals();
    test_ours_and_theirs();
    test_comms();
    test_round_trips();
    test_format();
    test_sizes();
    return test_report();
}
