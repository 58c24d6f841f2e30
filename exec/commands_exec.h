/* planexec's commands and what they share: options, loading, the ending. Each command returns an exit code (err.h). */
#ifndef EXEC_COMMANDS_EXEC_H
#define EXEC_COMMANDS_EXEC_H

#include <stdbool.h>
#include <stdint.h>

#include "cost/model.h"
#include "cost/plan.h"
#include "exec/arch.h"
#include "exec/data.h"
#include "exec/device.h"
#include "exec/world.h"

struct err;

int cmd_run(struct world *world, int argc, char **argv);
int cmd_check(struct world *world, int argc, char **argv);
int cmd_profile(struct world *world, int argc, char **argv);

/* Model, plan, data and device of one command, checked against each other and the number of ranks. */
enum job_device { JOB_CPU, JOB_CUDA, JOB_PACED };
extern const char *const job_devices[]; /* "cpu", "cuda", "paced", NULL */

struct job {
    struct model model;
    struct plan plan;
    struct arch arch;
    struct data data;
    struct device device;
    struct world *gpu_world; /* NULL on the CPU */
    bool fp8;                /* linears of layers in 8 bits, on the CPU emulated (--bf16) */
};
enum job_kernels { KERNELS_CPU, KERNELS_REFERENCE };
extern const char *const job_kernels[]; /* "cpu", "reference", NULL */

struct job_options {
    const char *model, *plan, *data; /* paths */
    int kernels;                     /* enum job_kernels */
    int64_t seed, threads, data_bits;
    bool bf16, share_gpu;
    int device; /* enum job_device */
};
/* Its comms use the device; all_links: messages in every group. */
void job_attach_cuda(struct world *world, struct device *device, bool share, bool all_links);
/* Opens the GPU and tells the world's comms that buffers lie there. An exit code, having said why. */
int job_open_cuda(struct device *ret, struct world *world, const char *command, bool share);
/* Whether all ranks came through with 0. The lowest one that did not says why: rank 0 as exec_print does, another with its
 * number and host. Collective. */
bool exec_all(const struct world *world, const char *command, int result, const struct err *err);
/* Whether all ranks were given the same n numbers; else rank 0 says that their `what` differ. Collective. */
bool exec_same(const struct world *world, const char *command, const char *what, int n, const double *x);
/* On failure of any rank returns the exit code and has said why; builds the world's groups. Collective. */
int job_load(struct job *ret, const struct job_options *options, const char *command, struct world *world);
void job_release(struct job *job);

/* "planexec COMMAND: sentence" for each sentence, from rank 0 only. */
void exec_print(const struct world *world, const char *command, const char *kind, const struct err *messages);

#endif
