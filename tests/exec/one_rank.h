/* A trainer of one rank, on a model of golden/. */
#ifndef TESTS_EXEC_ONE_RANK_H
#define TESTS_EXEC_ONE_RANK_H

#include "tests/unit/test.h"

#include "cost/base/err.h"
#include "cost/model.h"
#include "exec/arch.h"
#include "exec/data.h"
#include "exec/trainer.h"
#include "exec/world.h"

struct one_rank {
    struct model model;
    struct arch arch;
    struct plan plan;
    struct data data;
    struct device device;
    struct world world;
    struct trainer trainer;
};

/* Linears in 8 bits where fp8 is true. */
static inline void one_rank_open_in(struct one_rank *one, const char *name, int batch, int length,
                                    const struct kernels *kernels, bool fp8)
{
    char relative[256], path[TEST_PATH_MAX];
    struct err warn = {0}, err = {0};
    *one = (struct one_rank){0};
    snprintf(relative, sizeof relative, "tests/exec/golden/%s.json", name);
    test_source_path(path, relative);
    CHECK_INT(model_load(path, &one->model, &warn, &err), 0);
    CHECK_INT(arch_load(path, &one->model, &one->arch, &err), 0);
    plan_defaults(&one->plan);
    one->plan.micro_batch = 2;
    one->plan.global_batch = batch;
    one->plan.seq_len = length;
    one->plan.zero = 0;
    CHECK_INT(arch_check(&one->model, &one->plan, &err), 0);
    data_load("synthetic", 0, one->model.vocab, 1, &one->data, &err);
    device_cpu_init(&one->device, kernels);
    world_alone(&one->world);
    struct trainer_parts parts = {&one->model,  &one->arch, &one->plan, &one->world, &one->data,
                                  &one->device, 1,          false,      false,       fp8};
    CHECK_INT(trainer_init(&one->trainer, &parts, &err), 0);
    trainer_start(&one->trainer, NULL);
    if (err.count > 0)
        printf("%s\n", err.text);
}

static inline void one_rank_open(struct one_rank *one, const char *name, int batch, int length,
                                 const struct kernels *kernels)
{
    one_rank_open_in(one, name, batch, length, kernels, false);
}

static inline void one_rank_close(struct one_rank *one)
{
    trainer_release(&one->trainer);
    CHECK_INT(one->trainer.device.bytes_now, 0);
    world_release(&one->world);
}

#endif
