/* The whole public table, where it lies beside the source tree (or under $PLANSIM_SHARED): it loads, nearly all of it is
 * predicted, the accuracy that README states holds, and intervals cover what they promise. Skipped where it is not. */
#include "tests/unit/test.h"

#include "cost/base/arena.h"
#include "cost/base/err.h"
#include "cost/profile.h"
#include "sim/validate.h"
#include "sim/validate_stats.h"

static void check_stats(const struct validation *v)
{
    struct arena arena = {0};
    struct validate_stats *stats = arena_alloc(&arena, sizeof *stats);
    validate_stats(v, BY_GROUP, "", &arena, stats);
    double cover = (double)stats->all.within / stats->all.time.n;
    printf("%d runs: median %.1f %%, p90 %.1f %%, intervals cover %.0f %%, fits %.1f %%, regret %.1f %%\n", stats->all.time.n, 100 * stats->all.time.median,
           100 * stats->all.time.p90, 100 * cover, 100 * validate_balanced_accuracy(stats), 100 * stats->regret.mean);
    CHECK(stats->all.time.n >= 2480);
    CHECK(stats->all.time.median <= 0.036);
    CHECK(stats->all.time.p90 <= 0.155);
    CHECK(cover >= 0.75 && cover <= 0.88);
    CHECK(validate_balanced_accuracy(stats) >= 0.95);
    CHECK(stats->regret.mean <= 0.02);
    for (int i = 0; i < stats->n_groups; i++)
        if (stats->group[i].time.n >= 5 && !CHECK(stats->group[i].time.median <= 0.15))
            printf("  %s: %.1f %%\n", stats->group[i].name, 100 * stats->group[i].time.median);
    arena_release(&arena);
}

int main(void)
{
    const char *shared = getenv("PLANSIM_SHARED");
    char runs[TEST_PATH_MAX], models[TEST_PATH_MAX], root[TEST_PATH_MAX];
    struct err err = {0}, warn = {0};
    struct profile *profile = NULL;
    struct validation v = {0};
    if (!shared)
        shared = test_source_path(root, "../shared");
    snprintf(runs, sizeof runs, "%.3000s/data/runs/runs.csv", shared);
    snprintf(models, sizeof models, "%.3000s/data/runs/models.json", shared);
    FILE *there = fopen(runs, "r");
    if (!there) {
        test_skip("no shared data");
        return test_report();
    }
    fclose(there);
    if (CHECK(profile_open(NULL, &profile, &err) == 0 && validation_load(&v, runs, models, profile, &warn, &err) == 0)) {
        validation_price_all(&v);
        check_stats(&v);
    } else {
        printf("%s\n", err.text);
    }
    validation_release(&v);
    profile_close(profile);
    return test_report();
}
