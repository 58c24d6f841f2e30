/* sim/engine.h, sim/timeline.h on programs small enough to follow by hand. */
#include <math.h>

#include "cost/base/arena.h"
#include "cost/base/err.h"
#include "sim/engine.h"
#include "sim/program.h"
#include "sim/program_csv.h"
#include "sim/schedule.h"
#include "sim/timeline.h"
#include "tests/unit/test.h"

static const int64_t ones[16] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
static const int64_t tens[16] = {10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10};

struct fixture {
    struct arena arena;
    struct program program;
    struct engine_costs costs;
    struct timeline timeline;
    struct err err;
};

static void setup(struct fixture *f, enum plan_schedule schedule, int pp, int micro_batches)
{
    struct schedule_request request = {.pp = pp, .micro_batches = micro_batches};
    *f = (struct fixture){.costs = {.forward_ps = tens, .backward_ps = tens, .wgrad_ps = tens, .record = true}};
    CHECK_INT(schedule_emit(schedule, &request, &f->arena, &f->program, &f->err), 0);
}

static void run(struct fixture *f)
{
    CHECK_INT(engine_run(&f->program, &f->costs, &f->arena, &f->timeline, &f->err), 0);
}

static void teardown(struct fixture *f)
{
    arena_release(&f->arena);
}

/* Two ranks, one micro-batch: F 0-10, F 10-20, BW 20-40, BW 40-60. */
static void test_by_hand(void)
{
    struct fixture f;
    setup(&f, SCHEDULE_1F1B, 2, 1);
    run(&f);
    CHECK_INT(f.timeline.makespan_ps, 60);
    CHECK_INT(f.timeline.start_ps[1][0], 10);
    CHECK_INT(f.timeline.start_ps[1][1], 20);
    CHECK_INT(f.timeline.start_ps[0][1], 40);
    CHECK_INT(f.timeline.rank[0].busy_ps, 30);
    CHECK_INT(f.timeline.rank[1].start_ps, 10);
    CHECK_INT(f.timeline.rank[1].end_ps, 40);
    CHECK_INT(f.timeline.span_ps, 60);
    CHECK_INT(f.timeline.period_ps, 60);
    CHECK_DOUBLE(timeline_bubble_fraction(&f.timeline), 0.5, 0);
    CHECK_DOUBLE(timeline_ideal_ps(&f.timeline), 30, 0);
    teardown(&f);
}

/* A hop of 1 delays both ways; blocking keeps the sender as well. */
static void test_messages(void)
{
    struct fixture f;
    setup(&f, SCHEDULE_GPIPE, 2, 2);
    f.costs.p2p_ps = ones;
    run(&f);
    CHECK_INT(f.timeline.start_ps[1][0], 11);
    CHECK_INT(f.timeline.start_ps[0][1], 10); /* sent while the next forward runs */
    CHECK_INT(f.timeline.makespan_ps, 92);    /* (M + P - 1) u + 2 (P - 1) c */
    f.costs.blocking_sends = true;
    run(&f);
    CHECK_INT(f.timeline.start_ps[0][1], 11);
    /* F's 0-10, 11-21 on rank 0; 11-21, 22-32 on rank 1; BW 32-52, sent to 53, 53-73, sent to 74; rank 0 53-73,
     * 74-94. */
    CHECK_INT(f.timeline.makespan_ps, 94);
    teardown(&f);
}

/* Programs that spell out their messages: each leaves when its turn has come, here after a second forward. */
static void test_sends(void)
{
    static const char soon[] = "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
                               "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1\n";
    static const char late[] = "0F0,0F1,0SEND_F0,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
                               "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1\n";
    static const int64_t forward[2] = {10, 10}, backward[2] = {20, 20}, wgrad[2] = {0, 0}, hop[1] = {1};
    struct engine_costs costs = {
        .forward_ps = forward, .backward_ps = backward, .wgrad_ps = wgrad, .p2p_ps = hop, .record = true};
    struct arena arena = {0};
    struct program program;
    struct timeline timeline;
    CHECK_INT(program_parse(soon, strlen(soon), "soon", &arena, &program, NULL), 0);
    CHECK_INT(engine_run(&program, &costs, &arena, &timeline, NULL), 0);
    CHECK_INT(timeline.start_ps[1][1], 11);
    CHECK_INT(timeline.makespan_ps, 92);
    CHECK_INT(program_parse(late, strlen(late), "late", &arena, &program, NULL), 0);
    CHECK_INT(engine_run(&program, &costs, &arena, &timeline, NULL), 0);
    CHECK_INT(timeline.start_ps[1][1], 21);
    CHECK_INT(timeline.makespan_ps, 102);
    costs.blocking_sends = true;
    CHECK_INT(engine_run(&program, &costs, &arena, &timeline, NULL), 0);
    CHECK_INT(timeline.start_ps[1][1], 21);
    CHECK_INT(timeline.start_ps[0][3], 21); /* the second leaves when the first has arrived */
    arena_release(&arena);
}

/* A message of 25, of which the stream is busy 20: the second waits for the first. */
static void test_streams(void)
{
    static const int64_t hop[1] = {25}, busy[1] = {20};
    struct fixture f;
    setup(&f, SCHEDULE_GPIPE, 2, 2);
    f.costs.p2p_ps = hop;
    run(&f);
    CHECK_INT(f.timeline.start_ps[1][0], 35);
    CHECK_INT(f.timeline.start_ps[1][1], 45); /* 20 + 25, but the rank is busy until 45 */
    f.costs.p2p_occupancy_ps = busy;
    run(&f);
    CHECK_INT(f.timeline.start_ps[1][0], 35);
    CHECK_INT(f.timeline.start_ps[1][1], 55); /* leaves at 30, not 20 */
    teardown(&f);
}

/* DualPipe on two ranks, four micro-batches: one kind of slot at a time. */
static int64_t slot_length(enum engine_slot slot, const int64_t *slot_ps, const int64_t *forward_comm,
                           const int64_t *backward_comm)
{
    struct fixture f;
    int64_t length = -1;
    setup(&f, SCHEDULE_DUALPIPE, 2, 4);
    f.costs.slot = slot;
    f.costs.slot_ps = slot_ps;
    f.costs.forward_comm_ps = forward_comm;
    f.costs.backward_comm_ps = backward_comm;
    run(&f);
    for (int i = 0; i < f.program.n_ops[0]; i++)
        if (f.program.ops[0][i].kind == OP_F_BW)
            length = f.timeline.end_ps[0][i] - f.timeline.start_ps[0][i];
    teardown(&f);
    return length;
}

static void test_slots(void)
{
    static const int64_t four[2] = {4, 4}, eight[2] = {8, 8}, sevens[2] = {7, 7}, nineteen[2] = {19, 19};
    CHECK_INT(slot_length(SLOT_SUM, NULL, NULL, NULL), 30);
    CHECK_INT(slot_length(SLOT_HALF, NULL, NULL, NULL), 25);
    CHECK_INT(slot_length(SLOT_MAX, NULL, NULL, NULL), 20);
    CHECK_INT(slot_length(SLOT_COMM, NULL, NULL, NULL), 30);      /* nothing to hide */
    CHECK_INT(slot_length(SLOT_COMM, NULL, four, NULL), 26);      /* forward: 4 of communication hidden */
    CHECK_INT(slot_length(SLOT_COMM, NULL, eight, eight), 20);    /* compute 14, but BW alone takes 20 */
    CHECK_INT(slot_length(SLOT_COMM, NULL, eight, nineteen), 27); /* communication of both */
    CHECK_INT(slot_length(SLOT_SUM, sevens, NULL, NULL), 7);
}

static void test_memory(void)
{
    static const int64_t act[2] = {100, 7}, by_b[2] = {40, 0};
    struct fixture f;
    int rank = -1;
    setup(&f, SCHEDULE_ZB_H1, 2, 3);
    f.costs.act_bytes = act;
    f.costs.act_b_bytes = by_b;
    run(&f);
    /* rank 0: F0 F1 B0 W0 F2 B1 W1 B2 W2: two held; after B0, W0 one. */
    CHECK_INT(f.timeline.rank[0].peak_bytes, 200);
    CHECK_INT(f.timeline.rank[0].peak_in_flight, 2);
    /* rank 1: F0 B0 F1 B1 W0 ...: the second F while W0 is due. */
    CHECK_INT(f.timeline.rank[1].peak_bytes, 14);
    CHECK_INT(f.timeline.rank[1].peak_in_flight, 2);
    CHECK_INT(f.timeline.rank[1].peak_in_flight_b, 1);
    CHECK_INT(timeline_peak_bytes(&f.timeline, &rank), 200);
    CHECK_INT(rank, 0);
    teardown(&f);
}

/* Optimizer and several iterations: ZB-H2's skew costs nothing without a barrier (multi_iter, schedules.md section
 * 5). */
static void test_iterations(void)
{
    static const int64_t optimizer[4] = {5, 5, 5, 5};
    struct fixture f;
    setup(&f, SCHEDULE_ZB_H2, 4, 8);
    f.costs.iterations = 4;
    run(&f);
    CHECK_INT(f.timeline.period_ps, 270);
    CHECK_INT(f.timeline.makespan_ps, 4 * 270);
    f.costs.sync = SYNC_NONE;
    run(&f);
    CHECK_INT(f.timeline.period_ps, 240);
    CHECK_INT(f.timeline.makespan_ps, 3 * 240 + 270);
    f.costs.sync = SYNC_CHAIN;
    f.costs.chain_ps = 10; /* the skew of the ranks: free */
    run(&f);
    CHECK_INT(f.timeline.period_ps, 240);
    f.costs.chain_ps =
        11; /* slower than the skew: the last rank steps 3 later every time, the others wait for it once */
    run(&f);
    CHECK(f.timeline.period_ps >= 240);
    f.costs.sync = SYNC_BARRIER;
    f.costs.optimizer_ps = optimizer;
    run(&f);
    CHECK_INT(f.timeline.period_ps, 275);
    CHECK_INT(f.timeline.finish_ps, 4 * 275);
    CHECK_INT(f.timeline.optimizer_start_ps[0], 270);
    CHECK_INT(f.timeline.rank[0].peak_in_flight, 7);
    teardown(&f);
}

static void test_refusals(void)
{
    static const int64_t negative[2] = {-1, 10}, endless[2] = {INT64_C(1) << 60, INT64_C(1) << 60};
    struct fixture f;
    setup(&f, SCHEDULE_1F1B, 2, 8);
    f.costs.forward_ps = negative;
    CHECK_INT(engine_run(&f.program, &f.costs, &f.arena, &f.timeline, &f.err), -1);
    CHECK_CONTAINS(f.err.text, "forward of stage 0 takes -1 ps; a duration is not negative");
    const int64_t beyond[2] = {10, engine_ps(1e300)}; /* saturates, as NaN does */
    CHECK_INT(beyond[1], INT64_MAX);
    CHECK_INT(engine_ps((double)NAN), INT64_MAX);
    CHECK_INT(engine_ps(1.5), INT64_C(1500000000000));
    f.costs.forward_ps = beyond;
    err_clear(&f.err);
    CHECK_INT(engine_run(&f.program, &f.costs, &f.arena, &f.timeline, &f.err), -1);
    CHECK_CONTAINS(f.err.text, "forward of stage 1 takes more than 106.8 days, but nothing in a step may take more than 13.34 days");
    f.costs.forward_ps = endless;
    CHECK_INT(engine_run(&f.program, &f.costs, &f.arena, &f.timeline, &f.err), -1);
    CHECK_CONTAINS(f.err.text, "the simulated clock passes 2^62 ps");
    /* A deadlock is named even when the program was not checked. */
    f.costs.forward_ps = tens;
    struct op swap = f.program.ops[0][1];
    f.program.ops[0][1] = f.program.ops[0][2];
    f.program.ops[0][2] = swap;
    struct op last = f.program.ops[1][0]; /* rank 1 wants micro-batch 1 first */
    f.program.ops[1][0] = f.program.ops[1][2];
    f.program.ops[1][2] = last;
    err_clear(&f.err);
    CHECK_INT(engine_run(&f.program, &f.costs, &f.arena, &f.timeline, &f.err), -1);
    CHECK(f.err.count > 0);
    teardown(&f);
}

/* Two arrivals at once, and a rank without ops in the middle of the clock: the result is a function of the program. */
static void test_no_ops(void)
{
    struct arena arena = {0};
    struct program program;
    struct timeline timeline;
    struct engine_costs costs = {.forward_ps = ones, .backward_ps = ones, .wgrad_ps = ones};
    CHECK_INT(program_init(&program, &arena, PLACEMENT_FREE, 2, 1, 1, 1, 2, NULL), 0);
    program_push(&program, 0, op_plain(OP_F, 0, 0, 0));
    program_push(&program, 0, op_plain(OP_BW, 0, 0, 0));
    CHECK_INT(program_check(&program, NULL), 0);
    CHECK_INT(engine_run(&program, &costs, &arena, &timeline, NULL), 0);
    CHECK_INT(timeline.makespan_ps, 3);
    CHECK_INT(timeline.rank[1].busy_ps, 0);
    CHECK_INT(timeline.rank[1].end_ps, 0);
    arena_release(&arena);
}

int main(void)
{
    test_by_hand();
    test_messages();
    test_sends();
    test_streams();
    test_slots();
    test_memory();
    test_iterations();
    test_refusals();
    test_no_ops();
    CHECK_INT(engine_ps(1.5e-12), 2);
    return test_report();
}
