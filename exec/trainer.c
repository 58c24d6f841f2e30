#include "exec/trainer.h"

#include <stdlib.h>

#include "cost/base/err.h"
#include "exec/comm.h"
#include "exec/pipeline_run.h"
#include "exec/world.h"

int trainer_init(struct trainer *ret, const struct model *model, const struct arch *arch, const struct plan *plan, struct world *world,
                 const struct data *data, const struct device *device, uint64_t seed, bool balanced, const struct pacing *pacing,
                 struct err *err)
{
    *ret = (struct trainer){.plan = *plan, .device = *device, .data = data};
    if (pipeline_program(plan, &ret->arena, &ret->program, err) < 0) {
        arena_release(&ret->arena);
        return -1;
    }
    ret->executor = (struct executor){.model = model, .plan = &ret->plan, .arch = arch, .world = world, .device = &ret->device,
                                      .balanced = balanced};
    ret->executor.params.seed = seed;
    executor_init(&ret->executor);
    optimizer_defaults(&ret->optimizer);
    ret->run = pipeline_new(&ret->executor, &ret->program, pacing);
    int n = ret->program.n_ops[world->pp];
    ret->start_s = arena_array(&ret->arena, (size_t)n, sizeof *ret->start_s);
    ret->end_s = arena_array(&ret->arena, (size_t)n, sizeof *ret->end_s);
    return 0;
}

void trainer_release(struct trainer *trainer)
{
    pipeline_free(trainer->run);
    executor_release(&trainer->executor);
    arena_release(&trainer->arena);
}

void trainer_gradients(struct trainer *trainer, struct step_result *ret)
{
    struct executor *ex = &trainer->executor;
    struct comm *all = ex->world->comm[WORLD_ALL];
    comm_barrier(all);
    double start_s = device_now_s();
    optimizer_clear(ex);
    ex->loss = ex->aux_loss = 0;
    pipeline_step(trainer->run, trainer->data, trainer->sequences, trainer->start_s, trainer->end_s);
    ret->backward_s = device_now_s() - start_s;
    optimizer_reduce(ex);
    double losses[2] = {ex->loss, ex->aux_loss};
    comm_all_reduce_doubles(all, COMM_SUM, 2, losses);
    ret->loss = losses[0];
    ret->aux_loss = losses[1];
    trainer->sequences += trainer->plan.global_batch;
    ret->step_time_s = device_now_s() - start_s;
}

void trainer_update(struct trainer *trainer, struct step_result *result)
{
    double start_s = device_now_s();
    optimizer_step(&trainer->executor, &trainer->optimizer, &result->optimizer);
    comm_barrier(trainer->executor.world->comm[WORLD_ALL]);
    result->step_time_s += device_now_s() - start_s;
    result->optimizer_s = result->step_time_s - result->backward_s;
}
