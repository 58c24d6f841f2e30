/* The paced device: ops take the time that they are predicted to take by sleeping; ranks and pipeline messages are
 * real.
 *
 * A sleeping rank leaves its core to others, so that schedules and bubbles of many ranks can be seen on few cores.
 * Durations are given (pacing_equal) or come from the prices of cost/ops.h (pacing_price): arithmetic and the
 * collectives inside a stage. There are no weights, no data-parallel traffic and no optimizer. */
#ifndef EXEC_DEVICE_PACED_H
#define EXEC_DEVICE_PACED_H

#include "sim/program.h"

struct cluster;
struct model;
struct plan;
struct stack;

struct pacing {
    int stages;
    double *forward_s, *backward_s, *wgrad_s; /* [stages] by global stage */
};

/* One rank's whole work for a micro-batch, shared out evenly over its chunks (DualPipe: each module is a whole stage).
 * */
void pacing_equal(struct pacing *ret, const struct program *program, double forward_s, double backward_s,
                  double wgrad_s);
void pacing_price(struct pacing *ret, const struct program *program, const struct model *model,
                  const struct cluster *cluster, const struct plan *plan, const struct stack *stack);
void pacing_release(struct pacing *pacing);

double pacing_seconds(const struct pacing *pacing, int stage, enum op_kind kind); /* BW = B + W */
/* Until that time of clock_s. */
void pacing_sleep_until(double end_s);

#endif
