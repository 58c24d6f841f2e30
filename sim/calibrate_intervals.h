/* How far measured step times lie from predictions, by kind of situation: the 80 % interval of every prediction. */
#ifndef SIM_CALIBRATE_INTERVALS_H
#define SIM_CALIBRATE_INTERVALS_H

#include "cost/profile_rows.h"
#include "sim/validate.h"

struct arena;

/* Rows of section residual (name = stack, or "any"; key = "dense/one-node", ...) and the number of runs of each
 * accelerator. A situation of fewer than 8 runs takes "any"'s. The validation must be priced. */
int calibrate_interval_rows(const struct validation *validation, const char *date, const char *source, struct arena *arena, struct profile_rows *rows,
                            struct err *err);

#endif
