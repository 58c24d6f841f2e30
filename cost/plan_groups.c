/* Process groups as strides, from the rank order.
 *
 * Dense ranks are a mixed radix over tp, cp, dp and pp in the order of rank_order
 * (Megatron-LM's RankGenerator; ep is no dense dimension). With Ps the product of
 * the dimensions before pp and d the index within a stage, p the stage:
 *   rank = (d mod Ps) + floor(d/Ps) * Ps*pp + p*Ps
 * Experts re-cut the same d: etp in the place of tp, ep in its own, expert-dp =
 * tp*cp*dp/(etp*ep) in the place of dp. A dimension (size, stride) of d that
 * reaches across Ps splits in two, the upper part at stride Ps*pp; that needs
 * stride | Ps | size*stride (Megatron-LM is stricter: pp last, or dp = expert-dp).
 *
 *   tp-cp-ep-dp-pp, tp 2, dp 2, pp 2:  ranks 0 1 | 2 3 (stage 0), 4 5 | 6 7 (stage 1)
 *   tp-cp-ep-pp-dp, the same:          ranks 0 1 | 4 5 (stage 0), 2 3 | 6 7 (stage 1) */
#include "cost/plan.h"

#include <assert.h>

#include "cost/cluster.h"
#include "cost/plan_internal.h"

struct dim {
    int64_t size, stride;
};

bool plan_order_is_permutation(const struct plan *plan)
{
    unsigned seen = 0;
    for (int i = 0; i < AXES; i++)
        if ((unsigned)plan->rank_order[i] < AXES)
            seen |= 1u << plan->rank_order[i];
    return seen == (1u << AXES) - 1;
}

static int64_t dense_size(const struct plan *plan, enum axis axis)
{
    switch (axis) {
    case AXIS_TP: return plan->tp;
    case AXIS_CP: return plan->cp;
    case AXIS_DP: return plan->dp;
    case AXIS_PP: return plan->pp;
    default: return 1;
    }
}

static struct dim dense_dim(const struct plan *plan, enum axis axis)
{
    struct dim dim = {dense_size(plan, axis), 1};
    for (int i = 0; i < AXES && plan->rank_order[i] != axis; i++)
        dim.stride = plan_mul(dim.stride, dense_size(plan, plan->rank_order[i]));
    return dim;
}

static int64_t expert_size(const struct plan *plan, enum axis axis)
{
    int64_t cut = plan_mul(plan->etp, plan->ep);
    int64_t stage = plan_mul(plan_mul(plan->tp, plan->cp), plan->dp);
    switch (axis) {
    case AXIS_TP: return plan->etp;
    case AXIS_EP: return plan->ep;
    case AXIS_DP: return stage > cut ? stage / cut : 1;
    default: return 1;
    }
}

/* Within the stage: pp counts 1. */
static struct dim expert_dim(const struct plan *plan, enum axis axis)
{
    struct dim dim = {expert_size(plan, axis), 1};
    for (int i = 0; i < AXES && plan->rank_order[i] != axis; i++)
        dim.stride = plan_mul(dim.stride, expert_size(plan, plan->rank_order[i]));
    return dim;
}

static bool splits_cleanly(struct dim dim, int64_t stage_stride)
{
    int64_t end = plan_mul(dim.size, dim.stride);
    if (dim.size == 1 || end <= stage_stride)
        return true;
    return dim.stride >= stage_stride ? dim.stride % stage_stride == 0
                                      : stage_stride % dim.stride == 0 && end % stage_stride == 0;
}

bool plan_experts_aligned(const struct plan *plan)
{
    if (plan->pp == 1)
        return true;
    int64_t stage_stride = dense_dim(plan, AXIS_PP).stride;
    return splits_cleanly(expert_dim(plan, AXIS_TP), stage_stride) &&
           splits_cleanly(expert_dim(plan, AXIS_EP), stage_stride) &&
           splits_cleanly(expert_dim(plan, AXIS_DP), stage_stride);
}

/* Adds in order of stride; callers add at most four dims of different strides. */
static void group_add(struct rank_group *group, struct dim dim)
{
    if (dim.size <= 1)
        return;
    assert(group->n_dims < GROUP_DIMS_MAX);
    int at = group->n_dims++;
    for (; at > 0 && group->dim[at - 1].stride > dim.stride; at--)
        group->dim[at] = group->dim[at - 1];
    group->dim[at].size = dim.size;
    group->dim[at].stride = dim.stride;
}

static void group_merge(struct rank_group *group)
{
    int kept = 0;
    for (int i = 1; i < group->n_dims; i++) {
        if (group->dim[i].stride == plan_mul(group->dim[kept].size, group->dim[kept].stride))
            group->dim[kept].size *= group->dim[i].size;
        else
            group->dim[++kept] = group->dim[i];
    }
    if (group->n_dims > 0)
        group->n_dims = kept + 1;
}

static void group_add_expert(struct rank_group *group, const struct plan *plan, enum axis axis)
{
    struct dim dim = expert_dim(plan, axis);
    int64_t stage_stride = dense_dim(plan, AXIS_PP).stride;
    if (dim.stride >= stage_stride || plan->pp == 1) {
        group_add(group, (struct dim){dim.size, plan_mul(dim.stride, plan->pp)});
        return;
    }
    int64_t below = stage_stride / dim.stride;
    if (below > dim.size)
        below = dim.size;
    group_add(group, (struct dim){below, dim.stride});
    group_add(group, (struct dim){dim.size / below, plan_mul(stage_stride, plan->pp)});
}

void plan_rank_group(const struct plan *plan, enum plan_group which, struct rank_group *ret)
{
    struct rank_group group = {0};
    switch (which) {
    case GROUP_TP: group_add(&group, dense_dim(plan, AXIS_TP)); break;
    case GROUP_CP: group_add(&group, dense_dim(plan, AXIS_CP)); break;
    case GROUP_DP: group_add(&group, dense_dim(plan, AXIS_DP)); break;
    case GROUP_DP_CP:
        group_add(&group, dense_dim(plan, AXIS_DP));
        group_add(&group, dense_dim(plan, AXIS_CP));
        break;
    case GROUP_EP: group_add_expert(&group, plan, AXIS_EP); break;
    case GROUP_ETP: group_add_expert(&group, plan, AXIS_TP); break;
    case GROUP_EXPERT_DP: group_add_expert(&group, plan, AXIS_DP); break;
    case GROUP_PP: group_add(&group, dense_dim(plan, AXIS_PP)); break;
    case GROUP_PP_NEXT: group_add(&group, (struct dim){plan->pp > 1 ? 2 : 1, dense_dim(plan, AXIS_PP).stride}); break;
    default: assert(!"a process group"); break;
    }
    group_merge(&group);
    *ret = group;
}
