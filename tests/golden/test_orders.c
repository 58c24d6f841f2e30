/* Every order file of the original implementations whose schedule we emit, op by op.
 *
 * The files come from executing Megatron-LM, the zero-bubble repository, DeepSeek's DualPipe, nanotron and PyTorch;
 * their schedule, shape and options are in their names. Which schedule and variant of ours answers each is below. */
#include <dirent.h>
#include <stdbool.h>

#include "cost/base/arena.h"
#include "cost/base/err.h"
#include "sim/program.h"
#include "sim/program_csv.h"
#include "sim/schedule.h"
#include "tests/golden/golden_csv.h"
#include "tests/unit/test.h"

/* Prefix of the file name -> our schedule and variant. */
static const struct original {
    const char *prefix;
    enum plan_schedule schedule;
    const char *variant;
} originals[] = {
    {"gpipe__", SCHEDULE_GPIPE, NULL},
    {"1f1b__", SCHEDULE_1F1B, NULL},
    {"interleaved__", SCHEDULE_INTERLEAVED, NULL},
    {"loopedbfs__", SCHEDULE_LOOPED_BFS, NULL},
    {"zbh1__formula", SCHEDULE_ZB_H1, "split"},
    {"zbh1__megads", SCHEDULE_ZB_H1, "fused"},
    {"zbh1q__", SCHEDULE_ZB_H1, "quick"},
    {"zbh2__", SCHEDULE_ZB_H2, NULL},
    {"zb1p__", SCHEDULE_ZB_AUTO, "published"},
    {"zb2p__", SCHEDULE_ZB_AUTO, "published"},
    {"zbauto__", SCHEDULE_ZB_AUTO, "published"},
    {"zbauto_unbounded__", SCHEDULE_ZB_AUTO, "published"},
    {"izb__", SCHEDULE_INTERLEAVED_ZB, NULL},
    {"zbv__", SCHEDULE_ZB_V_AUTO, "published"},
    {"zbv_hand__", SCHEDULE_ZB_V, NULL},
    {"vhalf__", SCHEDULE_V_HALF, NULL},
    {"vmin__", SCHEDULE_V_MIN, NULL},
    {"v1f1b__", SCHEDULE_1F1B_V, NULL},
    {"dualpipe__", SCHEDULE_DUALPIPE, NULL},
    {"dualpipev__", SCHEDULE_DUALPIPE_V, NULL},
};

/* Not compared, and why. */
static const struct {
    const char *prefix, *reason;
} left_out[] = {
    {"interleaved_ep__", "Megatron-LM's expert-parallel overlap is not one of our schedules; priced in test_makespans"},
    {"gis__", "PipeOffload's generalised interleaving is not one of our schedules; priced in test_makespans"},
};

/* The originals compute in floating point with 4.4, 3.1 and 0.2; where two times are equal, rounding decides for them.
 * Our ticks are integers and the tie is a tie. (The same heuristic run in double gives these files op by op.) */
static const char *const rounding_ties[] = {
    "zb2p__zbrepo__P8_M32_V1__uneq.csv",
    "zbv__zbrepo__P2_M4_V2__uneq.csv",
    "zbv__zbrepo__P8_M8_V2__uneq.csv",
};

static bool begins(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

/* "..._megatronG5__P4_M10_V2..." */
static struct schedule_request request_of(const char *name)
{
    struct schedule_request request = {0};
    const char *shape = strstr(name, "__P"), *group = strstr(name, "megatronG");
    if (!shape || sscanf(shape, "__P%d_M%d_V%d", &request.pp, &request.micro_batches, &request.vp) != 3) {
        printf("%s: no shape in the name\n", name);
        test_count(false);
    }
    if (group)
        request.group = atoi(group + strlen("megatronG"));
    return request;
}

/* Costs of the automatic schedules' files, by the end of their names (their headers tell the same), per full stage.
 * nonuni: stage 0 F and W + 0.25, last stage F, B and W + 0.5. */
static const struct {
    const char *tag;
    double forward, backward, wgrad, comm, memory_limit, freed_by_b;
} costs[] = {
    {"__unit", 1, 1, 1, 0, 0, 0},
    {"__uneq", 4, 4.4, 3.1, 0.2, 0, 0},
    {"__nonuni", 1, 1, 1, 0, 0, 0},
    {"__runtime1000", 1000, 1000, 1000, 1, 0, 0},
    {"__ex_f5478b5806w3534c200m32", 5478, 5806, 3534, 200, 16, 0.5},
    {"__ex_f5b6w4c0m10", 5, 6, 4, 0, 5, 0.5},
    {"__ex_f5b6w4c0m14", 5, 6, 4, 0, 7, 0.5},
    {"__ex_het8x32", 0, 0, 0, 473, 16, 0.6},
};
/* Per-stage costs of ex_het8x32, an example in the authors' auto_schedule.py. */
static const int het[3][8] = {
    {30715, 29233, 29106, 29078, 28850, 28919, 28924, 41678},
    {31308, 29344, 29357, 29455, 29217, 29384, 29354, 38731},
    {18746, 18789, 19062, 19367, 19455, 19967, 20096, 32833},
};

enum { TICKS = 100000, STAGES_MAX = 64 };

/* Adds costs and memory limit; ticks has room for 3 * STAGES_MAX. */
static void add_costs(const char *name, struct schedule_request *request, int64_t *ticks)
{
    int n = request->pp * (begins(name, "zbv__") ? 2 : 1);
    for (size_t i = 0; i < sizeof costs / sizeof *costs; i++) {
        if (!strstr(name, costs[i].tag))
            continue;
        for (int s = 0; s < n; s++) {
            double f = costs[i].forward * request->pp / n, b = costs[i].backward * request->pp / n,
                   w = costs[i].wgrad * request->pp / n;
            double first = strstr(name, "nonuni") && s == 0 ? 0.25 : 0,
                   last = strstr(name, "nonuni") && s == n - 1 ? 0.5 : 0;
            bool differs = strstr(name, "ex_het");
            ticks[s] = (int64_t)((differs ? het[0][s] : f + first + last) * TICKS + 0.5);
            ticks[STAGES_MAX + s] = (int64_t)((differs ? het[1][s] : b + last) * TICKS + 0.5);
            ticks[2 * STAGES_MAX + s] = (int64_t)((differs ? het[2][s] : w + first + last) * TICKS + 0.5);
        }
        request->forward_ticks = ticks;
        request->backward_ticks = ticks + STAGES_MAX;
        request->wgrad_ticks = ticks + 2 * STAGES_MAX;
        request->comm_ticks = (int64_t)(costs[i].comm * TICKS + 0.5);
        request->memory_limit = costs[i].memory_limit;
        request->freed_by_b = costs[i].freed_by_b;
    }
    if (begins(name, "zb2p__"))
        request->memory_limit = 2 * request->pp;
    if (begins(name, "zbv__"))
        request->freed_by_b = 0.5;
    if (begins(name, "zbauto_unbounded__"))
        request->memory_limit = request->micro_batches;
}

static void first_difference(const char *name, const struct program *ours, const struct program *theirs)
{
    for (int r = 0; r < ours->pp && r < theirs->pp; r++)
        for (int i = 0; i < ours->n_ops[r] || i < theirs->n_ops[r]; i++) {
            char a[96] = "nothing", b[96] = "nothing";
            bool both = i < ours->n_ops[r] && i < theirs->n_ops[r];
            if (both && memcmp(&ours->ops[r][i], &theirs->ops[r][i], sizeof(struct op)) == 0)
                continue;
            if (i < ours->n_ops[r])
                op_format(ours, &ours->ops[r][i], a, sizeof a);
            if (i < theirs->n_ops[r])
                op_format(theirs, &theirs->ops[r][i], b, sizeof b);
            printf("%s: rank %d, index %d: ours %s, original %s\n", name, r, i, a, b);
            return;
        }
    printf("%s: the shapes differ\n", name);
}

static int variant_index(const struct schedule *schedule, const char *variant)
{
    for (int i = 0; variant && schedule->variants && schedule->variants[i]; i++)
        if (strcmp(schedule->variants[i], variant) == 0)
            return i;
    return 0;
}

static bool is_rounding_tie(const char *name)
{
    for (size_t i = 0; i < sizeof rounding_ties / sizeof *rounding_ties; i++)
        if (strcmp(name, rounding_ties[i]) == 0)
            return true;
    return false;
}

static void compare(const char *name, const char *path, const struct original *original)
{
    struct arena arena = {0};
    struct err err = {0};
    struct program ours, theirs;
    struct schedule_request request = request_of(name);
    int64_t ticks[3 * STAGES_MAX];
    add_costs(name, &request, ticks);
    request.variant = variant_index(schedule_of(original->schedule), original->variant);
    if (program_load(path, &arena, &theirs, &err) < 0 ||
        schedule_emit(original->schedule, &request, &arena, &ours, &err) < 0 || program_check(&ours, &err) < 0) {
        printf("%s: %s\n", name, err.text);
        test_count(false);
    } else if (is_rounding_tie(name)) {
        CHECK(!program_equal(&ours, &theirs)); /* else the list is out of date */
    } else if (!test_count(program_equal(&ours, &theirs))) {
        first_difference(name, &ours, &theirs);
    }
    arena_release(&arena);
}

static bool is_left_out(const char *name)
{
    for (size_t i = 0; i < sizeof left_out / sizeof *left_out; i++)
        if (begins(name, left_out[i].prefix))
            return true;
    return false;
}

static void test_file(const char *directory, const char *name)
{
    char path[GOLDEN_PATH + 300];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    for (size_t i = 0; i < sizeof originals / sizeof *originals; i++)
        if (begins(name, originals[i].prefix)) {
            compare(name, path, &originals[i]);
            return;
        }
    if (!is_left_out(name)) {
        printf("%s: no schedule of ours answers it\n", name);
        test_count(false);
    }
}

int main(void)
{
    char directory[GOLDEN_PATH];
    DIR *files = opendir(golden_path(directory, "orders"));
    if (!files) {
        test_skip("the orders of the original implementations are not here");
        return test_report();
    }
    for (struct dirent *entry; (entry = readdir(files));)
        if (strstr(entry->d_name, ".csv"))
            test_file(directory, entry->d_name);
    closedir(files);
    return test_report();
}
