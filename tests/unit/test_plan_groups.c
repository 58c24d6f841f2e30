/* Process groups of a rank order: known ones, and random plans against plain enumeration. */
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "cost/cluster.h"
#include "cost/model.h"
#include "cost/plan.h"
#include "tests/unit/test.h"

enum { WORLD_MAX = 4096 };

static struct plan plan_of(int tp, int cp, int pp, int dp, const char *order)
{
    struct plan plan;
    plan_defaults(&plan);
    plan.tp = tp;
    plan.cp = cp;
    plan.pp = pp;
    plan.dp = dp;
    for (int i = 0; i < AXES; i++)
        for (int axis = 0; axis < AXES; axis++)
            if (strncmp(order + 3 * i, axis_names[axis], 2) == 0)
                plan.rank_order[i] = (enum axis)axis;
    return plan;
}

/* "size x stride" of every dim, fastest first. */
static const char *words(const struct plan *plan, enum plan_group which)
{
    static char text[256];
    struct rank_group group;
    size_t used = 0;
    plan_rank_group(plan, which, &group);
    text[0] = '\0';
    for (int i = 0; i < group.n_dims; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%lldx%lld", i > 0 ? " " : "",
                                 (long long)group.dim[i].size, (long long)group.dim[i].stride);
    return text;
}

static void test_default_order(void)
{
    struct plan plan = plan_of(4, 2, 3, 8, "tp-cp-ep-dp-pp");
    CHECK_STR(words(&plan, GROUP_TP), "4x1");
    CHECK_STR(words(&plan, GROUP_CP), "2x4");
    CHECK_STR(words(&plan, GROUP_DP), "8x8");
    CHECK_STR(words(&plan, GROUP_DP_CP), "16x4"); /* merged */
    CHECK_STR(words(&plan, GROUP_PP), "3x64");
    CHECK_STR(words(&plan, GROUP_PP_NEXT), "2x64");
    CHECK_STR(words(&plan, GROUP_EP), ""); /* size 1 is no dim */
    plan.ep = 16;
    plan.etp = 2;
    CHECK_STR(words(&plan, GROUP_ETP), "2x1");
    CHECK_STR(words(&plan, GROUP_EP), "16x2");
    CHECK_STR(words(&plan, GROUP_EXPERT_DP), "2x32");
}

/* Megatron-LM's tp-cp-ep-pp-dp: neighbouring stages before data parallelism. */
static void test_pp_before_dp(void)
{
    struct plan plan = plan_of(2, 1, 2, 4, "tp-cp-ep-pp-dp");
    CHECK_STR(words(&plan, GROUP_TP), "2x1");
    CHECK_STR(words(&plan, GROUP_PP), "2x2");
    CHECK_STR(words(&plan, GROUP_DP), "4x4");
    plan.ep = 4;
    CHECK_STR(words(&plan, GROUP_EP), "2x1 2x4"); /* ranks 0 1 | 4 5: over the stage boundary */
    CHECK_STR(words(&plan, GROUP_EXPERT_DP), "2x8");
    plan.ep = 8;
    CHECK_STR(words(&plan, GROUP_EP), "2x1 4x4");
    CHECK_STR(words(&plan, GROUP_EXPERT_DP), "");
}

static void test_others(void)
{
    struct plan plan = plan_of(2, 2, 2, 2, "pp-dp-tp-cp-ep");
    CHECK_STR(words(&plan, GROUP_PP), "2x1");
    CHECK_STR(words(&plan, GROUP_DP), "2x2");
    CHECK_STR(words(&plan, GROUP_TP), "2x4");
    CHECK_STR(words(&plan, GROUP_CP), "2x8");
    CHECK_STR(words(&plan, GROUP_DP_CP), "2x2 2x8"); /* apart: not merged */
    plan = plan_of(1, 1, 1, 1, "tp-cp-ep-dp-pp");
    for (int group = 0; group < GROUPS; group++)
        CHECK_STR(words(&plan, (enum plan_group)group), "");
}

/* --- against enumeration ---------------------------------------------------- */

static uint64_t state;

static int random_below(int n)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (int)((state >> 33) % (uint64_t)n);
}

/* Coordinate of a rank along an axis: digits in the rank order, written down from the definition. */
static int digit(const struct plan *plan, int rank, enum axis axis)
{
    const int size[AXES] = {plan->tp, plan->cp, 1, plan->dp, plan->pp};
    for (int i = 0; i < AXES; i++) {
        if (plan->rank_order[i] == axis)
            return rank % size[axis];
        rank /= size[plan->rank_order[i]];
    }
    return -1;
}

/* Index within the stage: all digits but pp, in order; then the experts' digits of it. */
static int expert_digit(const struct plan *plan, int rank, enum axis axis)
{
    const int dense[AXES] = {plan->tp, plan->cp, 1, plan->dp, 1};
    const int expert[AXES] = {plan->etp, 1, plan->ep, plan->tp * plan->cp * plan->dp / (plan->etp * plan->ep), 1};
    int index = 0, unit = 1;
    for (int i = 0; i < AXES; i++) {
        enum axis at = plan->rank_order[i];
        if (at != AXIS_PP && at != AXIS_EP)
            index += digit(plan, rank, at) * unit;
        unit *= dense[at];
    }
    for (int i = 0; i < AXES; i++) {
        if (plan->rank_order[i] == axis)
            return index % expert[axis];
        index /= expert[plan->rank_order[i]];
    }
    return -1;
}

/* Whether two ranks differ only along the group's axes. */
static bool together(const struct plan *plan, enum plan_group which, int a, int b)
{
    static const unsigned dense_free[GROUPS] = {
        [GROUP_TP] = 1u << AXIS_TP, [GROUP_CP] = 1u << AXIS_CP,
        [GROUP_DP] = 1u << AXIS_DP, [GROUP_DP_CP] = 1u << AXIS_DP | 1u << AXIS_CP,
        [GROUP_PP] = 1u << AXIS_PP,
    };
    static const enum axis dense[] = {AXIS_TP, AXIS_CP, AXIS_DP, AXIS_PP}, expert[] = {AXIS_TP, AXIS_EP, AXIS_DP};
    if (which == GROUP_EP || which == GROUP_ETP || which == GROUP_EXPERT_DP) {
        enum axis own = which == GROUP_EP ? AXIS_EP : which == GROUP_ETP ? AXIS_TP : AXIS_DP;
        for (int i = 0; i < 3; i++)
            if (expert[i] != own && expert_digit(plan, a, expert[i]) != expert_digit(plan, b, expert[i]))
                return false;
        return digit(plan, a, AXIS_PP) == digit(plan, b, AXIS_PP);
    }
    for (int i = 0; i < 4; i++)
        if (!(dense_free[which] & 1u << dense[i]) && digit(plan, a, dense[i]) != digit(plan, b, dense[i]))
            return false;
    return true;
}

static int64_t members(const struct rank_group *group)
{
    int64_t n = 1;
    for (int i = 0; i < group->n_dims; i++)
        n *= group->dim[i].size;
    return n;
}

static int64_t member(const struct rank_group *group, int64_t base, int64_t index)
{
    for (int i = 0; i < group->n_dims; i++) {
        base += index % group->dim[i].size * group->dim[i].stride;
        index /= group->dim[i].size;
    }
    return base;
}

/* The strides, laid from the first rank of every class on, give exactly the class, and the classes fill the world. */
static bool matches_enumeration(const struct plan *plan, enum plan_group which)
{
    static bool seen[WORLD_MAX];
    int world = (int)plan_world(plan);
    struct rank_group group;
    plan_rank_group(plan, which, &group);
    memset(seen, 0, sizeof seen);
    for (int base = 0; base < world; base++) {
        if (seen[base])
            continue;
        int size = 0;
        for (int rank = 0; rank < world; rank++)
            size += together(plan, which, base, rank);
        if (size != members(&group))
            return false;
        for (int i = 0; i < size; i++) {
            int64_t rank = member(&group, base, i);
            if (rank >= world || seen[rank] || !together(plan, which, base, (int)rank))
                return false;
            seen[rank] = true;
        }
    }
    return true;
}

static struct plan random_plan(void)
{
    struct plan plan =
        plan_of(1 + random_below(4), 1 + random_below(3), 1 + random_below(4), 1 + random_below(6), "tp-cp-ep-dp-pp");
    for (int i = AXES - 1; i > 0; i--) {
        int j = random_below(i + 1);
        enum axis axis = plan.rank_order[i];
        plan.rank_order[i] = plan.rank_order[j];
        plan.rank_order[j] = axis;
    }
    int stage = plan.tp * plan.cp * plan.dp;
    do
        plan.ep = 1 + random_below(stage);
    while (stage % plan.ep != 0);
    do
        plan.etp = 1 + random_below(stage / plan.ep);
    while (stage / plan.ep % plan.etp != 0);
    return plan;
}

/* Where the experts' cut does not lie in strides, RULE_RANK_ORDER says so, and only there; never with pp last. */
static void test_random_plans(void)
{
    static const struct model model = {.layers = 12,
                                       .heads = 12,
                                       .kv_heads = 12,
                                       .vocab = 384,
                                       .experts = 720,
                                       .n_kinds = 1,
                                       .kinds = {{.moe = true, .ffn = 720}}};
    int placed = 0, refused = 0;
    for (int i = 0; i < 600; i++) {
        struct plan plan = random_plan();
        bool good = true;
        for (int group = 0; group < GROUPS; group++) {
            if (group == GROUP_PP_NEXT)
                continue;
            bool experts = group == GROUP_EP || group == GROUP_ETP || group == GROUP_EXPERT_DP;
            bool matches = matches_enumeration(&plan, (enum plan_group)group);
            good = good && matches;
            CHECK(matches || experts);
        }
        uint32_t broken = plan_broken_rules(&plan, &model, NULL) & (uint32_t)1 << RULE_RANK_ORDER;
        CHECK_INT(broken == 0, good);
        CHECK(good || plan.rank_order[AXES - 1] != AXIS_PP);
        placed += good;
        refused += !good;
    }
    CHECK(placed > 300 && refused > 30);
}

static void test_next_stage(void)
{
    for (int i = 0; i < 300; i++) {
        struct plan plan = random_plan();
        struct rank_group group;
        plan_rank_group(&plan, GROUP_PP_NEXT, &group);
        CHECK_INT(group.n_dims, plan.pp > 1);
        for (int rank = 0; plan.pp > 1 && rank < plan_world(&plan); rank++)
            if (digit(&plan, rank, AXIS_PP) < plan.pp - 1)
                CHECK_INT(digit(&plan, rank + (int)group.dim[0].stride, AXIS_PP), digit(&plan, rank, AXIS_PP) + 1);
    }
}

int main(void)
{
    state = 1;
    test_default_order();
    test_pp_before_dp();
    test_others();
    test_random_plans();
    test_next_stage();
    return test_report();
}
