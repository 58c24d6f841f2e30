/* The paced device: ops take the time that they are predicted to take by sleeping; ranks and messages are real.
 * Durations come from the prices of cost/ops.h (pacing_price) or from the command line (pacing_equal). */
#ifndef EXEC_DEVICE_PACED_H
#define EXEC_DEVICE_PACED_H

#include "sim/program.h"

enum { PACING_STAGES_MAX = 1024 };

struct pacing {
    int stages;
    double forward_s[PACING_STAGES_MAX], backward_s[PACING_STAGES_MAX], wgrad_s[PACING_STAGES_MAX]; /* by global stage */
};

double pacing_seconds(const struct pacing *pacing, int stage, enum op_kind kind); /* BW = B + W */
void pacing_sleep(double seconds); /* to within tens of microseconds: sleeps, then watches the clock */

#endif
