#include "exec/trainer.h"

#include <string.h>

#include "cost/base/clock.h"
#include "cost/base/err.h"
#include "exec/comm.h"
#include "exec/fp8.h"
#include "exec/pipeline_run.h"
#include "exec/world.h"

int trainer_init(struct trainer *ret, const struct trainer_parts *parts, struct err *err)
{
    *ret = (struct trainer){.plan = *parts->plan, .device = *parts->device, .data = parts->data};
    if (pipeline_program(parts->plan, &ret->arena, &ret->program, err) < 0) {
        arena_release(&ret->arena);
        return -1;
    }
    ret->executor = (struct executor){.model = parts->model,
                                      .plan = &ret->plan,
                                      .arch = parts->arch,
                                      .world = parts->world,
                                      .device = &ret->device,
                                      .balanced = parts->balanced};
    ret->executor.params.seed = parts->seed;
    ret->executor.params.rounded = parts->bf16;
    ret->executor.fp8 = parts->fp8 ? fp8_new(&ret->device) : NULL;
    executor_init(&ret->executor);
    optimizer_defaults(&ret->optimizer);
    return 0;
}

void trainer_start(struct trainer *trainer, const struct pacing *pacing)
{
    trainer->paced = pacing != NULL;
    trainer->run = pipeline_new(&trainer->executor, &trainer->program, pacing);
    int n = trainer->program.n_ops[trainer->executor.world->pp];
    trainer->start_s = arena_array(&trainer->arena, (size_t)n, sizeof *trainer->start_s);
    trainer->end_s = arena_array(&trainer->arena, (size_t)n, sizeof *trainer->end_s);
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
    double start_s = clock_s();
    ex->watch.n = 0; /* of a step that nobody asked about */
    if (!trainer->paced) {
        int lap = stopwatch_start(&ex->watch, ex->device, STOPWATCH_CLEAR);
        optimizer_clear(ex);
        stopwatch_end(&ex->watch, ex->device, lap);
    }
    ex->loss = ex->aux_loss = 0;
    pipeline_step(trainer->run, trainer->data, trainer->sequences, trainer->start_s, trainer->end_s);
    if (ex->fp8)
        fp8_end_step(ex);
    ret->backward_s = clock_s() - start_s;
    if (!trainer->paced) {
        int lap = stopwatch_start(&ex->watch, ex->device, STOPWATCH_REDUCTION);
        optimizer_reduce(ex);
        stopwatch_end(&ex->watch, ex->device, lap);
    }
    executor_add_losses(ex);
    double losses[2] = {ex->loss, ex->aux_loss};
    comm_all_reduce_doubles(all, COMM_SUM, 2, losses);
    ret->loss = losses[0];
    ret->aux_loss = losses[1];
    trainer->sequences += trainer->plan.global_batch;
    trainer->device.wait(&trainer->device);
    ret->step_time_s = clock_s() - start_s;
}

void trainer_update(struct trainer *trainer, struct step_result *result)
{
    double start_s = clock_s();
    result->optimizer = (struct optimizer_result){0};
    if (!trainer->paced)
        optimizer_step(&trainer->executor, &trainer->optimizer, &result->optimizer);
    trainer->device.wait(&trainer->device);
    comm_barrier(trainer->executor.world->comm[WORLD_ALL]);
    result->step_time_s += clock_s() - start_s;
    result->optimizer_s = result->step_time_s - result->backward_s;
    memset(result->part_s, 0, sizeof result->part_s);
    stopwatch_take(&trainer->executor.watch, &trainer->device, result->part_s);
}
