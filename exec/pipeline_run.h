/* One rank's part of a step: its modules (stages), and the interpreter of its ops (sim/program.h).
 *
 * Inputs of an op are received by tag, asked for one op ahead; outputs are sent without waiting. A fused BW hands on
 * its input gradient at its end, as the simulator says; an F_BW slot runs its forward, then its backward. */
#ifndef EXEC_PIPELINE_RUN_H
#define EXEC_PIPELINE_RUN_H

#include <stdbool.h>
#include <stdint.h>

#include "exec/executor.h"
#include "sim/program.h"
#include "sim/timeline.h"

struct data;
struct err;
struct pacing;

struct pipeline_run; /* modules, micro-batches under way */

/* Builds modules and parameters (allocated, with their first weights) of the executor's rank. program must outlive it.
 * pacing: NULL, or what the paced device sleeps instead of computing. */
struct pipeline_run *pipeline_new(struct executor *ex, const struct program *program, const struct pacing *pacing);
void pipeline_free(struct pipeline_run *run); /* not the executor */

/* Forward and backward of all micro-batches of a step; gradients are left to add up (optimizer_reduce).
 * first_sequence: of the global batch. start_s, end_s [ops of this rank]: when each ran, from the call's start (NULL =
 * not wanted). */
void pipeline_step(struct pipeline_run *run, const struct data *data, int64_t first_sequence, double *start_s,
                   double *end_s);

/* The schedule of a plan as a program; arena: where it lives. */
struct arena;
int pipeline_program(const struct plan *plan, struct arena *arena, struct program *ret, struct err *err);

#endif
