#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cost/base/err.h"
#include "cost/base/file.h"
#include "cost/base/json.h"
#include "cost/precision.h"
#include "exec/comm.h"
#include "exec/comm_internal.h"
#include "exec/comm_nccl.h"
#include "exec/commands_exec.h"
#include "exec/device_cuda.h"
#include "exec/fp8.h"
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

const char *const job_kernels[] = {"cpu", "reference", NULL};
const char *const job_devices[] = {"cpu", "cuda", "paced", NULL};

/* What the device computes in, beside what the plan says. */
static int check_precision(enum precision precision, const struct job_options *options, struct err *warn,
                           struct err *err)
{
    if (options->device != JOB_CUDA) {
        if (precision != PRECISION_FP32 && !options->bf16)
            err_add(warn, "the plan's precision is not fp32, the arithmetic of this device is; --bf16 emulates the "
                          "rounding of bf16, and of fp8's linears");
        if (options->bf16 && precision_is_fp8(precision) && precision != PRECISION_FP8)
            err_add(warn, "the plan's precision is %s; --bf16 emulates bf16 and fp8: this is bf16",
                    precision_names[precision]);
        return 0;
    }
    if (options->bf16)
        return err_add(err, "--bf16 emulates on fp32 what device 'cuda' stores anyway: leave it out");
    if (precision == PRECISION_FP32)
        err_add(warn, "the plan's precision is fp32, the arithmetic of this device is bf16 with fp32 sums");
    else if (precision != PRECISION_BF16 && precision != PRECISION_FP8)
        return err_add(err,
                       "device 'cuda' computes in bf16 with fp32 sums, or linears in fp8 (one factor per tensor); "
                       "the plan's precision is %s, allowed: bf16, fp8",
                       precision_names[precision]);
    return 0;
}

static int load(struct job *job, const struct job_options *options, const struct world *world, struct err *warn,
                struct err *err)
{
    if (model_load(options->model, &job->model, warn, err) < 0 ||
        arch_load(options->model, &job->model, &job->arch, err) < 0 ||
        plan_load(options->plan, &job->plan, warn, err) < 0)
        return -1;
    struct err rules = {0}; /* warnings of launchers are not ours */
    if (plan_check(&job->plan, &job->model, NULL, &rules, err) < 0 || arch_check(&job->model, &job->plan, err) < 0)
        return -1;
    if (check_precision(job->plan.precision, options, warn, err) < 0)
        return -1;
    job->fp8 = job->plan.precision == PRECISION_FP8 && (options->device == JOB_CUDA || options->bf16) &&
               options->device != JOB_PACED;
    if (job->fp8 && fp8_check(&job->model, &job->plan, err) < 0)
        return -1;
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

bool exec_all(const struct world *world, const char *command, int result, const struct err *err)
{
    double first = result < 0 ? -world->rank : -world->size;
    comm_all_reduce_doubles(world->comm[WORLD_ALL], COMM_MAX, 1, &first);
    if (result < 0 && -first == world->rank) {
        if (world->rank == 0)
            exec_print(world, command, "", err);
        else
            fprintf(stderr, "planexec %s: rank %d on %s: %s\n", command, world->rank, comm_host(), err->text);
    }
    return -first == world->size;
}

bool exec_same(const struct world *world, const char *command, const char *what, int n, const double *x)
{
    enum { SAME_MAX = 24 };
    double ends[2 * SAME_MAX];
    int same = 0;
    for (int i = 0; i < n && i < SAME_MAX; i++) {
        ends[2 * i] = x[i];
        ends[2 * i + 1] = -x[i];
    }
    comm_all_reduce_doubles(world->comm[WORLD_ALL], COMM_MAX, 2 * n, ends);
    while (same < n && ends[2 * same] == -ends[2 * same + 1])
        same++;
    if (same < n && world->rank == 0)
        fprintf(stderr, "planexec %s: the %s of the ranks differ; all have to be started with the same ones\n", command, what);
    return same == n;
}

/* Of a text (FNV-1a), as far as a double is exact. */
static double fingerprint(const char *text)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 0x100000001b3u;
    return (double)(hash >> 12);
}

/* Files may lie elsewhere on another host; what is in them is the same. */
static bool same_inputs(const struct world *world, const char *command, const struct job_options *options, const struct plan *plan)
{
    struct err err = {0};
    char *model = NULL, *text;
    size_t length;
    struct json *root = plan_to_json(plan);
    text = json_print(root);
    double x[] = {0, fingerprint(text), (double)options->seed, options->bf16, options->share_gpu, options->device, options->kernels, (double)options->data_bits};
    free(text);
    json_free(root);
    if (file_read(options->model, FILE_MAX_BYTES, &model, &length, &err) == 0)
        x[0] = fingerprint(model);
    free(model);
    return exec_same(world, command, "models, plans or options", sizeof x / sizeof *x, x);
}

/* 8-bit products came with compute capability 8.9. */
static int check_fp8_device(const struct job *job, const struct world *world, const char *command)
{
    struct err err = {0};
    struct device_cuda_facts gpu;
    device_cuda_facts(&job->device, &gpu);
    if (10 * gpu.major + gpu.minor < FP8_CAPABILITY)
        err_add(&err,
                "the GPU '%s' (compute capability %d.%d) has no 8-bit products, which precision fp8 needs: 8.9 or "
                "later has them (Ada, Hopper, Blackwell); allowed here: bf16",
                gpu.name, gpu.major, gpu.minor);
    return exec_all(world, command, err.count > 0 ? -1 : 0, &err) ? EXIT_ANSWERED : EXIT_MACHINE;
}

/* Pipelines and rings send messages; the whole world does nothing on the device but what a profile measures. */
static void attach_nccl(struct world *world, bool all_links)
{
    for (int i = 0; i < WORLD_GROUPS; i++) {
        bool links = i == WORLD_PP || i == WORLD_CP;
        comm_nccl_attach(world->comm[i], links || all_links, !links && i != WORLD_ALL);
    }
}

void job_attach_cuda(struct world *world, struct device *device, bool share, bool all_links)
{
    world_attach(world, device);
    if (!share && world->size > 1)
        attach_nccl(world, all_links);
}

int job_open_cuda(struct device *ret, struct world *world, const char *command, bool share)
{
    struct err err = {0};
    struct device_cuda_options options = {world->local_rank, world->local_size, share, fail, world, 0};
    int result = device_cuda_open(ret, &options, &err);
    if (result == 0 && !share && world->size > 1)
        result = comm_nccl_load(&err);
    if (!exec_all(world, command, result, &err))
        return EXIT_MACHINE;
    job_attach_cuda(world, ret, share, false);
    return EXIT_ANSWERED;
}

int job_load(struct job *ret, const struct job_options *options, const char *command, struct world *world)
{
    struct err warn = {0}, err = {0};
    *ret = (struct job){0};
    int result = load(ret, options, world, &warn, &err);
    exec_print(world, command, "warning: ", &warn);
    if (!exec_all(world, command, result, &err) || !same_inputs(world, command, options, &ret->plan))
        return EXIT_INPUT;
    kernels_cpu_threads((int)options->threads);
    world_build(world, &ret->plan, &ret->model);
    if (options->device == JOB_CUDA) {
        int code = job_open_cuda(&ret->device, world, command, options->share_gpu);
        ret->gpu_world = code == EXIT_ANSWERED ? world : NULL;
        return code == EXIT_ANSWERED && ret->fp8 ? check_fp8_device(ret, world, command) : code;
    }
    device_cpu_init(&ret->device, options->kernels == KERNELS_REFERENCE ? &kernels_ref : &kernels_cpu);
    ret->device.bytes_limit = device_cpu_share_bytes(world->local_size);
    ret->device.fail = fail;
    ret->device.fail_context = world;
    return EXIT_ANSWERED;
}

void job_release(struct job *job)
{
    if (job->gpu_world) { /* its comms hold queues of the device */
        world_release(job->gpu_world);
        device_cuda_close(&job->device);
    }
    data_release(&job->data);
}
