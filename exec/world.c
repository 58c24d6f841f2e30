/* Coordinates and groups from plan_rank_group: a group is all sums of i_d * stride_d from its first member; a rank's
 * index in it is the mixed-radix number of its own digits. */
#include "exec/world.h"

#include <stdint.h>
#include <stdio.h>

#include "cost/base/err.h"
#include "cost/cluster.h"
#include "cost/model.h"
#include "cost/plan.h"
#include "exec/comm.h"
#include "exec/comm_internal.h"
#include "sim/schedule.h"

const char *const world_group_names[] = {"all", "tp", "cp", "dp", "ep", "expert-dp", "pp", "kv", "pair", NULL};

struct place {
    int first; /* lowest rank of the group */
    int index, size;
};

static struct place place_in(const struct rank_group *group, int rank)
{
    struct place place = {rank, 0, 1};
    for (int d = 0; d < group->n_dims; d++) {
        int size = (int)group->dim[d].size, stride = (int)group->dim[d].stride, digit = rank / stride % size;
        place.first -= digit * stride;
        place.index += digit * place.size;
        place.size *= size;
    }
    return place;
}

static struct place place_of(const struct plan *plan, enum plan_group which, int rank)
{
    struct rank_group group;
    plan_rank_group(plan, which, &group);
    return place_in(&group, rank);
}

/* One call for all: a group that is of one member here may be of more elsewhere, never the other way round for the same
 * plan, so sizes agree and comm_new is called by all ranks or by none. */
static void build(struct world *world, enum world_group which, struct place place)
{
    world->comm[which] = comm_new(world, place.size, place.first, place.index);
}

static void build_kv(struct world *world, const struct plan *plan, const struct model *model, struct place tp)
{
    int copies = model->kv_heads > 0 && plan->tp > model->kv_heads ? plan->tp / (int)model->kv_heads : 1;
    struct place kv = {tp.first * plan->tp + tp.index / copies, tp.index % copies, copies};
    build(world, WORLD_KV, kv);
}

/* DualPipe: rank r and P-1-r hold each other's stages. A tied embedding: the ranks of the first and the last stage. */
static void build_pair(struct world *world, const struct plan *plan, const struct model *model, struct place pp)
{
    enum placement placement = schedule_of(plan->schedule)->placement;
    int mirror = plan->pp - 1 - pp.index;
    bool all = placement == PLACEMENT_BIDIR, ends = model->tied && placement == PLACEMENT_LOOP;
    bool paired = plan->pp > 1 && (all || ends);
    bool here = all || pp.index == 0 || mirror == 0;
    int low = pp.index < mirror || !here ? pp.index : mirror;
    struct place pair = {pp.first * plan->pp + low, pp.index != low, paired ? 2 : 1};
    build(world, WORLD_PAIR, pair);
    world->pair_size = comm_size(world->comm[WORLD_PAIR]);
}

/* There from the start: whether every rank could read its files is known before any plan is. */
static void build_all(struct world *world)
{
    if (!world->comm[WORLD_ALL])
        build(world, WORLD_ALL, (struct place){0, world->rank, world->size});
}

void world_build(struct world *world, const struct plan *plan, const struct model *model)
{
    int rank = world->rank;
    struct place tp = place_of(plan, GROUP_TP, rank), cp = place_of(plan, GROUP_CP, rank),
                 pp = place_of(plan, GROUP_PP, rank);
    struct place ep = place_of(plan, GROUP_EP, rank), etp = place_of(plan, GROUP_ETP, rank);
    world->tp = tp.index;
    world->cp = cp.index;
    world->pp = pp.index;
    world->dp = place_of(plan, GROUP_DP, rank).index;
    world->ep = ep.index;
    world->etp = etp.index;
    build_all(world);
    build(world, WORLD_TP, tp);
    build(world, WORLD_CP, cp);
    build(world, WORLD_DP_CP, place_of(plan, GROUP_DP_CP, rank));
    build(world, WORLD_EP,
          (struct place){ep.first + etp.first - rank, ep.index * etp.size + etp.index, ep.size * etp.size});
    build(world, WORLD_EXPERT_DP, place_of(plan, GROUP_EXPERT_DP, rank));
    build(world, WORLD_PP, pp);
    build_kv(world, plan, model, tp);
    build_pair(world, plan, model, pp);
}

void world_attach(struct world *world, struct device *device)
{
    for (int i = 0; i < WORLD_GROUPS; i++)
        comm_attach(world->comm[i], device);
}

void world_alone(struct world *ret)
{
    *ret = (struct world){.size = 1, .pair_size = 1};
    for (int i = 0; i < WORLD_GROUPS; i++)
        ret->comm[i] = comm_new(ret, 1, 0, 0);
}

void world_release(struct world *world)
{
    for (int i = 0; i < WORLD_GROUPS; i++) {
        comm_free(world->comm[i]);
        world->comm[i] = NULL;
    }
}

int world_start(struct world *world, int *argc, char ***argv, struct err *err)
{
    *world = (struct world){0};
    if (comm_start(argc, argv, &world->rank, &world->size, &world->local_rank, &world->local_size, err) < 0)
        return -1;
    build_all(world);
    return 0;
}

void world_stop(void)
{
    comm_stop();
}

void world_fail(const struct world *world, const char *sentence)
{
    fprintf(stderr, "planexec: rank %d on %s: %s\n", world->rank, comm_host(), sentence);
    fflush(stderr);
    comm_abort(EXIT_MACHINE);
}
