#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cost/base/err.h"
#include "exec/commands_exec.h"
#include "kernels/kernels.h"

void exec_print(const struct world *world, const char *command, const char *kind, const struct err *messages)
{
    if (world->rank != 0)
        return;
    for (const char *at = messages->text; *at;) {
        const char *end = strchr(at, '\n');
        int length = end ? (int)(end - at) : (int)strlen(at);
        fprintf(stderr, "planexec %s: %s%.*s\n", command, kind, length, at);
        at += length + (end != NULL);
    }
}

/* What this process was started by: mpirun sets its own variable inside a Slurm job, too. */
static const char *launcher(void)
{
    return getenv("SLURM_STEP_ID") && !getenv("OMPI_COMM_WORLD_SIZE") ? "srun -n" : "mpirun -np";
}

static int load(struct job *job, const struct job_options *options, const struct world *world, struct err *warn,
                struct err *err)
{
    if (model_load(options->model, &job->model, warn, err) < 0 ||
        arch_load(options->model, &job->model, &job->arch, warn, err) < 0 ||
        plan_load(options->plan, &job->plan, warn, err) < 0)
        return -1;
    struct err rules = {0}; /* warnings of launchers are not ours */
    if (plan_check(&job->plan, &job->model, NULL, &rules, err) < 0 || arch_check(&job->model, &job->plan, err) < 0)
        return -1;
    if (job->plan.precision != PRECISION_FP32 && !options->bf16)
        err_add(
            warn,
            "the plan's precision is not fp32, the arithmetic of this device is; --bf16 emulates the rounding of bf16");
    if (plan_world(&job->plan) != world->size)
        return err_add(err, "the plan is for %lld ranks, not %d; start it with: %s %lld planexec ...",
                       (long long)plan_world(&job->plan), world->size, launcher(), (long long)plan_world(&job->plan));
    return data_load(options->data, (int)options->data_bits, job->model.vocab, (uint64_t)options->seed, &job->data,
                     err);
}

static void fail(void *context, const char *sentence)
{
    world_fail(context, sentence);
}

int job_load(struct job *ret, const struct job_options *options, const char *command, struct world *world)
{
    struct err warn = {0}, err = {0};
    bool reference = strcmp(options->kernels, "reference") == 0;
    *ret = (struct job){0};
    int result = load(ret, options, world, &warn, &err);
    exec_print(world, command, "warning: ", &warn);
    exec_print(world, command, "", &err);
    if (result < 0)
        return EXIT_INPUT;
    kernels_cpu_threads((int)options->threads);
    device_cpu_init(&ret->device, reference ? &kernels_ref : &kernels_cpu);
    ret->device.bytes_limit = device_cpu_share_bytes(world->local_size);
    ret->device.fail = fail;
    ret->device.fail_context = world;
    world_build(world, &ret->plan, &ret->model);
    return EXIT_ANSWERED;
}

void job_release(struct job *job)
{
    data_release(&job->data);
}
