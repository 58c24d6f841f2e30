/* PyTorch's own pipeline CSVs, compute_only and compute_comms: each loads,
 * passes program_check, holds the same ops as our order file of that name, takes
 * exactly as long, and is written back byte for byte. */
#include <dirent.h>

#include "cost/base/arena.h"
#include "cost/base/err.h"
#include "cost/base/file.h"
#include "sim/engine.h"
#include "sim/program.h"
#include "sim/program_csv.h"
#include "sim/timeline.h"
#include "tests/golden/golden_csv.h"
#include "tests/unit/test.h"

enum { STAGES_MAX = 64 };

static int64_t makespan(const struct program *program, struct arena *arena)
{
    static int64_t forward[STAGES_MAX], backward[STAGES_MAX], wgrad[STAGES_MAX], hop[STAGES_MAX];
    for (int s = 0; s < STAGES_MAX; s++) {
        forward[s] = 400 + s;
        backward[s] = 440;
        wgrad[s] = 310;
        hop[s] = 20;
    }
    struct engine_costs costs = {
        .forward_ps = forward, .backward_ps = backward, .wgrad_ps = wgrad, .p2p_ps = hop, .slot = SLOT_MAX};
    struct timeline timeline;
    struct err err = {0};
    return engine_run(program, &costs, arena, &timeline, &err) == 0 ? timeline.makespan_ps : -1;
}

/* "izb__torch__P4_M8_V2.compute_comms.csv" -> the order file, where there is one. */
static void compare_with_order(const char *name, struct program *theirs, struct arena *arena)
{
    char path[GOLDEN_PATH], file[300];
    struct program ours;
    struct err err = {0};
    snprintf(file, sizeof file, "orders/%.*s.csv", (int)strcspn(name, "."), name);
    if (program_load(golden_path(path, file), arena, &ours, &err) < 0)
        return;
    int64_t before = makespan(theirs, arena);
    program_strip(theirs);
    if (!CHECK(program_equal(&ours, theirs)))
        printf("%s: not the ops of %s\n", name, file);
    CHECK_INT(makespan(&ours, arena), makespan(theirs, arena));
    CHECK_INT(before, makespan(theirs, arena));
}

static void test_file(const char *name)
{
    char path[GOLDEN_PATH], file[300], *text, *back;
    size_t length;
    struct arena arena = {0};
    struct err err = {0};
    struct program program;
    snprintf(file, sizeof file, "torch_csv/%s", name);
    if (!CHECK(file_read(golden_path(path, file), FILE_MAX_BYTES, &text, &length, &err) == 0))
        return;
    if (CHECK(program_parse(text, length, name, &arena, &program, &err) == 0)) {
        back = program_to_torch_csv(&program, &err);
        if (!CHECK(back && strcmp(back, text) == 0))
            printf("%s is written back differently\n", name);
        free(back);
        compare_with_order(name, &program, &arena);
    } else {
        printf("%s\n", err.text);
    }
    free(text);
    arena_release(&arena);
}

int main(void)
{
    char path[GOLDEN_PATH];
    DIR *files = opendir(golden_path(path, "torch_csv"));
    if (!files) {
        test_skip("PyTorch's CSVs are not here");
        return test_report();
    }
    for (struct dirent *entry; (entry = readdir(files));)
        if (strstr(entry->d_name, ".csv"))
            test_file(entry->d_name);
    closedir(files);
    return test_report();
}
