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

static int failures, compared;

/* Prefix of the file name -> our schedule and variant. */
static const struct original { const char *prefix; enum plan_schedule schedule; const char *variant; } originals[] = {
    { "gpipe__", SCHEDULE_GPIPE, NULL },
    { "1f1b__", SCHEDULE_1F1B, NULL },
    { "interleaved__", SCHEDULE_INTERLEAVED, NULL },
    { "loopedbfs__", SCHEDULE_LOOPED_BFS, NULL },
    { "zbh1__formula", SCHEDULE_ZB_H1, "split" },
    { "zbh1__megads", SCHEDULE_ZB_H1, "fused" },
    { "zbh1q__", SCHEDULE_ZB_H1, "quick" },
    { "zbh2__", SCHEDULE_ZB_H2, NULL },
    { "izb__", SCHEDULE_INTERLEAVED_ZB, NULL },
    { "zbv_hand__", SCHEDULE_ZB_V, NULL },
    { "dualpipe__", SCHEDULE_DUALPIPE, NULL },
    { "dualpipev__", SCHEDULE_DUALPIPE_V, NULL },
};

/* Not compared, and why. */
static const struct { const char *prefix, *reason; } left_out[] = {
    { "interleaved_ep__", "Megatron-LM's expert-parallel overlap is not one of our schedules; priced in test_makespans" },
    { "gis__", "PipeOffload's generalised interleaving is not one of our schedules; priced in test_makespans" },
};

static bool begins(const char *text, const char *prefix) { return strncmp(text, prefix, strlen(prefix)) == 0; }

/* "..._megatronG5__P4_M10_V2..." */
static struct schedule_request request_of(const char *name)
{
    struct schedule_request request = { 0 };
    const char *shape = strstr(name, "__P"), *group = strstr(name, "megatronG");
    if (!shape || sscanf(shape, "__P%d_M%d_V%d", &request.pp, &request.micro_batches, &request.vp) != 3) {
        printf("%s: no shape in the name\n", name);
        failures++;
    }
    if (group)
        request.group = atoi(group + strlen("megatronG"));
    return request;
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

static void compare(const char *name, const char *path, const struct original *original)
{
    struct arena arena = { 0 };
    struct err err = { 0 };
    struct program ours, theirs;
    struct schedule_request request = request_of(name);
    request.variant = variant_index(schedule_of(original->schedule), original->variant);
    if (program_load(path, &arena, &theirs, &err) < 0 || schedule_emit(original->schedule, &request, &arena, &ours, &err) < 0 ||
        program_check(&ours, &err) < 0) {
        printf("%s: %s\n", name, err.text);
        failures++;
    } else if (!program_equal(&ours, &theirs)) {
        first_difference(name, &ours, &theirs);
        failures++;
    }
    compared++;
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
        failures++;
    }
}

static int test_directory(void)
{
    char directory[GOLDEN_PATH];
    DIR *files = opendir(golden_path(directory, "orders"));
    if (!files)
        return GOLDEN_SKIPPED;
    for (struct dirent *entry; (entry = readdir(files));)
        if (strstr(entry->d_name, ".csv"))
            test_file(directory, entry->d_name);
    closedir(files);
    return 0;
}

int main(void)
{
    int result = test_directory();
    printf("%d orders compared, %d wrong\n", compared, failures);
    if (result == GOLDEN_SKIPPED)
        printf("the orders of the original implementations are not here\n");
    return failures ? 1 : result;
}
