/* sim/schedule.h: the table, refusals with their nearest valid values, and the
 * drawings at the top of sim/schedules/NAME.c, which are what the schedules do.
 *
 * A drawing: " * drawing: pp=3 vp=1 m=4 F=1 B=1 W=1" (costs of one op), then a
 * line per rank, "rank 0 | F0 F1 ..": one token per unit of time; ".." = idle,
 * "--" = the op goes on; a letter after the micro-batch is the chunk (a = 0), for
 * dualpipe the direction. `test_schedule --draw NAME PP VP M F B W SLOT` prints one. */
#include "cost/base/arena.h"
#include "cost/base/err.h"
#include "cost/base/file.h"
#include "sim/engine.h"
#include "sim/schedule.h"
#include "sim/timeline.h"
#include "tests/unit/test.h"

enum { TIME_MAX = 128, STAGES_MAX = 32, TOKEN_MAX = 16, LINE_MAX_CHARS = TIME_MAX * TOKEN_MAX };

struct drawing {
    int pp, vp, micro_batches;
    int cost[3], slot; /* of one op; slot 0 = none */
};

/* ---- what a schedule does, as tokens ---- */

static void token_of(const struct program *p, const struct op *op, char *text, size_t size)
{
    char first[TOKEN_MAX] = "", second[TOKEN_MAX] = "";
    if (p->chunks > 1) {
        snprintf(first, sizeof first, "%c", 'a' + p->stage_chunk[op->direction * p->stages + op->stage]);
        snprintf(second, sizeof second, "%c", 'a' + p->stage_chunk[op->direction2 * p->stages + op->stage2]);
    }
    if (op->kind == OP_F_BW)
        snprintf(text, size, "F%u%s&BW%u%s", op->micro_batch, first, op->micro_batch2, second);
    else
        snprintf(text, size, "%s%u%s", op_kind_names[op->kind], op->micro_batch, first);
}

static void draw_rank(const struct program *p, const struct timeline *t, int rank, char tokens[TIME_MAX][TOKEN_MAX * 2])
{
    for (int time = 0; time < TIME_MAX; time++)
        snprintf(tokens[time], sizeof tokens[time], "..");
    for (int i = 0; i < p->n_ops[rank]; i++) {
        int64_t start = t->start_ps[rank][i], end = t->end_ps[rank][i];
        for (int64_t time = start + 1; time < end && time < TIME_MAX; time++)
            snprintf(tokens[time], sizeof tokens[time], "--");
        if (start < TIME_MAX)
            token_of(p, &p->ops[rank][i], tokens[start], sizeof tokens[start]);
    }
}

static int run(enum plan_schedule schedule, const struct drawing *d, struct arena *arena, struct program *program,
               struct timeline *timeline, struct err *err)
{
    static int64_t costs[4][STAGES_MAX];
    for (int s = 0; s < STAGES_MAX; s++) {
        for (int k = 0; k < 3; k++)
            costs[k][s] = d->cost[k];
        costs[3][s] = d->slot;
    }
    struct schedule_request request = {.pp = d->pp,
                                       .vp = d->vp,
                                       .micro_batches = d->micro_batches,
                                       .forward_ticks = costs[0],
                                       .backward_ticks = costs[1],
                                       .wgrad_ticks = costs[2]};
    struct engine_costs engine = {.forward_ps = costs[0],
                                  .backward_ps = costs[1],
                                  .wgrad_ps = costs[2],
                                  .slot_ps = d->slot ? costs[3] : NULL,
                                  .record = true};
    if (d->pp * (d->vp ? d->vp : 2) > STAGES_MAX)
        return err_add(err, "drawing too large");
    return schedule_emit(schedule, &request, arena, program, err) < 0
               ? -1
               : engine_run(program, &engine, arena, timeline, err);
}

static void print_drawing(enum plan_schedule schedule, const struct drawing *d)
{
    static char tokens[STAGES_MAX][TIME_MAX][TOKEN_MAX * 2];
    struct arena arena = {0};
    struct program p;
    struct timeline t;
    struct err err = {0};
    if (run(schedule, d, &arena, &p, &t, &err) < 0) {
        printf("%s\n", err.text);
        return;
    }
    for (int r = 0; r < p.pp; r++)
        draw_rank(&p, &t, r, tokens[r]);
    for (int r = 0; r < p.pp; r++) {
        printf(" *   rank %d |", r);
        for (int64_t time = 0; time < t.makespan_ps; time++) {
            size_t width = 2;
            for (int other = 0; other < p.pp; other++)
                width = strlen(tokens[other][time]) > width ? strlen(tokens[other][time]) : width;
            printf(time + 1 < t.makespan_ps ? " %-*s" : " %.*s", time + 1 < t.makespan_ps ? (int)width : 99,
                   tokens[r][time]);
        }
        putchar('\n');
    }
    arena_release(&arena);
}

/* ---- the drawings in the sources ---- */

static const char *const files[SCHEDULES] = {
    [SCHEDULE_GPIPE] = "gpipe",
    [SCHEDULE_LOOPED_BFS] = "looped_bfs",
    [SCHEDULE_1F1B] = "one_f_one_b",
    [SCHEDULE_INTERLEAVED] = "interleaved",
    [SCHEDULE_ZB_H1] = "zb_h1",
    [SCHEDULE_ZB_H2] = "zb_h2",
    [SCHEDULE_ZB_AUTO] = "zb_auto",
    [SCHEDULE_INTERLEAVED_ZB] = "interleaved_zb",
    [SCHEDULE_ZB_V] = "zb_v",
    [SCHEDULE_ZB_V_AUTO] = "zb_v_auto",
    [SCHEDULE_V_HALF] = "v_half",
    [SCHEDULE_V_MIN] = "v_min",
    [SCHEDULE_1F1B_V] = "one_f_one_b_v",
    [SCHEDULE_DUALPIPE] = "dualpipe",
    [SCHEDULE_DUALPIPE_V] = "dualpipev",
};

static void compare_rank(const char *file, const char *line, char tokens[TIME_MAX][TOKEN_MAX * 2], int64_t makespan)
{
    char drawn[TOKEN_MAX * 2], format[16];
    int used = 0;
    snprintf(format, sizeof format, "%%%ds%%n", TOKEN_MAX * 2 - 1);
    for (int64_t time = 0; time < makespan; time++) {
        if (sscanf(line, format, drawn, &used) != 1)
            snprintf(drawn, sizeof drawn, "nothing"); /* the line has ended */
        else
            line += used;
        if (strcmp(drawn, tokens[time]) != 0)
            printf("%s: time %d: drawn %s, is %s\n", file, (int)time, drawn, tokens[time]);
        CHECK_STR(drawn, tokens[time]);
    }
    CHECK(sscanf(line, format, drawn, &used) != 1 || line[0] == '\n');
}

static void test_drawing(enum plan_schedule schedule)
{
    static char tokens[TIME_MAX][TOKEN_MAX * 2];
    char path[TEST_PATH_MAX], name[64], *text;
    size_t length;
    struct arena arena = {0};
    struct err err = {0};
    struct drawing d = {0};
    struct program p;
    struct timeline t;
    snprintf(name, sizeof name, "sim/schedules/%s.c", files[schedule]);
    if (!CHECK(file_read(test_source_path(path, name), FILE_MAX_BYTES, &text, &length, &err) == 0))
        return;
    const char *at = strstr(text, "drawing: ");
    int fields = at ? sscanf(at, "drawing: pp=%d vp=%d m=%d F=%d B=%d W=%d slot=%d", &d.pp, &d.vp, &d.micro_batches,
                             &d.cost[0], &d.cost[1], &d.cost[2], &d.slot)
                    : 0;
    if (CHECK(fields >= 6) && CHECK_INT(run(schedule, &d, &arena, &p, &t, &err), 0)) {
        for (int r = 0; r < p.pp; r++) {
            char label[32];
            snprintf(label, sizeof label, "rank %d |", r);
            const char *line = strstr(at, label);
            draw_rank(&p, &t, r, tokens);
            if (CHECK(line != NULL))
                compare_rank(name, line + strlen(label), tokens, t.makespan_ps);
        }
    } else {
        printf("%s: %s\n", name, err.text);
    }
    free(text);
    arena_release(&arena);
}

/* ---- the table ---- */

static void test_table(void)
{
    for (int i = 0; i < SCHEDULES; i++) {
        const struct schedule *s = schedule_of((enum plan_schedule)i);
        CHECK_STR(s->name, schedule_names[i]);
        CHECK(s->title && s->cite && s->emit && s->in_flight);
        CHECK(s->vp_min >= 1 && s->vp_min <= s->vp_default && s->vp_default <= s->vp_max);
        CHECK(s->weight_copies == (s->placement == PLACEMENT_BIDIR ? 2 : 1));
    }
    CHECK(schedule_names[SCHEDULES] == NULL);
}

/* Sizes that are refused, and what the sentence names. */
static const struct {
    enum plan_schedule schedule;
    struct schedule_request request;
    const char *sentence;
} refused[] = {
    {SCHEDULE_GPIPE, {.pp = 0, .micro_batches = 4}, "gpipe: pp 0 is out of range; allowed: 1 to 4096"},
    {SCHEDULE_GPIPE, {.pp = 4, .micro_batches = 0}, "0 micro-batches are out of range"},
    {SCHEDULE_GPIPE, {.pp = 4, .vp = 2, .micro_batches = 4}, "gpipe: vp 2 is not possible; nearest valid: 1"},
    {SCHEDULE_GPIPE, {.pp = 4096, .micro_batches = 1 << 20}, "too many ops"},
    {SCHEDULE_1F1B, {.pp = -1, .micro_batches = 4}, "1f1b: pp -1"},
    {SCHEDULE_INTERLEAVED,
     {.pp = 4, .vp = 1, .micro_batches = 8},
     "interleaved: vp 1 is not possible; nearest valid: 2"},
    {SCHEDULE_INTERLEAVED, {.pp = 4, .vp = 2, .micro_batches = 9, .group = 4}, "nearest valid: 5"},
    {SCHEDULE_INTERLEAVED, {.pp = 4, .vp = 2, .micro_batches = 8, .group = 2}, "nearest valid: 4"},
    {SCHEDULE_INTERLEAVED, {.pp = 4, .vp = 2, .micro_batches = 8, .group = 100}, "nearest valid: 8"},
    {SCHEDULE_INTERLEAVED, {.pp = 4, .vp = 2, .micro_batches = 8, .group = -1}, "nearest valid: 4"},
    {SCHEDULE_INTERLEAVED_ZB, {.pp = 4, .vp = 2, .micro_batches = 3, .group = 2}, "interleaved-zb: a group of 2"},
    {SCHEDULE_ZB_H1, {.pp = 4, .micro_batches = 8, .variant = 3}, "zb-h1: there is no variant number 3"},
    {SCHEDULE_GPIPE, {.pp = 4, .micro_batches = 8, .variant = 1}, "gpipe: there is no variant number 1"},
    {SCHEDULE_ZB_V, {.pp = 4, .vp = 3, .micro_batches = 8}, "zb-v: vp 3 is not possible; nearest valid: 2"},
    {SCHEDULE_ZB_AUTO, {.pp = 4, .micro_batches = 8, .memory_limit = 0.5}, "nearest valid: 1"},
    {SCHEDULE_ZB_AUTO, {.pp = 4, .micro_batches = 8, .freed_by_b = 2}, "allowed: 0 to 1"},
    {SCHEDULE_DUALPIPE,
     {.pp = 3, .micro_batches = 8},
     "dualpipe: pp 3 is odd, but the two directions meet between two ranks; nearest valid: 4"},
    {SCHEDULE_DUALPIPE, {.pp = 4, .micro_batches = 9}, "nearest valid: 10"},
    {SCHEDULE_DUALPIPE, {.pp = 4, .micro_batches = 2}, "nearest valid: 8"},
    {SCHEDULE_DUALPIPE_V,
     {.pp = 4, .micro_batches = 7},
     "dualpipev: 7 micro-batches are fewer than the 8 stages of pp 4; nearest valid: 8"},
};

static void test_refusals(void)
{
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        struct err err = {0};
        CHECK_INT(schedule_validate(refused[i].schedule, &refused[i].request, &err), -1);
        CHECK_CONTAINS(err.text, refused[i].sentence);
        CHECK_INT(schedule_validate(refused[i].schedule, &refused[i].request, NULL), -1);
    }
}

/* V-Min's memory is the least that zb-v-auto can promise. */
static void test_memory_limits(void)
{
    struct arena arena = {0};
    struct err err = {0};
    struct program p;
    struct schedule_request request = {.pp = 8, .micro_batches = 16, .memory_limit = 4};
    CHECK_INT(schedule_emit(SCHEDULE_ZB_V_AUTO, &request, &arena, &p, &err), 0);
    request.memory_limit = 3;
    CHECK_INT(schedule_emit(SCHEDULE_ZB_V_AUTO, &request, &arena, &p, &err), -1);
    CHECK_CONTAINS(err.text, "memory limit of 3 stage activations; nearest valid: 4");
    for (request.memory_limit = 1; request.memory_limit < 18; request.memory_limit += 1)
        CHECK_INT(schedule_emit(SCHEDULE_ZB_AUTO, &request, &arena, &p, &err), 0);
    arena_release(&arena);
}

static void test_groups(void)
{
    CHECK_INT(schedule_group(4, 8), 4);
    CHECK_INT(schedule_group(4, 10), 5); /* PyTorch: rounds = 2 */
    CHECK_INT(schedule_group(4, 3), 3);  /* fewer than ranks: one group */
    CHECK_INT(schedule_group(4, 5), 5);
    CHECK_INT(schedule_group(4, 9), 5); /* rest 4, which is pp: Megatron-LM takes it, PyTorch does not */
    CHECK_INT(schedule_group(1, 1), 1);
}

int main(int argc, char **argv)
{
    if (argc == 10 && strcmp(argv[1], "--draw") == 0) {
        struct drawing d = {
            atoi(argv[3]), atoi(argv[4]), atoi(argv[5]), {atoi(argv[6]), atoi(argv[7]), atoi(argv[8])}, atoi(argv[9])};
        for (int i = 0; i < SCHEDULES; i++)
            if (strcmp(schedule_names[i], argv[2]) == 0)
                print_drawing((enum plan_schedule)i, &d);
        return 0;
    }
    test_table();
    test_refusals();
    test_memory_limits();
    test_groups();
    for (int i = 0; i < SCHEDULES; i++)
        test_drawing((enum plan_schedule)i);
    return test_report();
}
