/* Where a step's time went, measured and predicted, kind by kind: the program's ops, what they waited for, the end of
 * the step; and, inside the ops, recomputation and collectives. */
#ifndef EXEC_OP_KINDS_H
#define EXEC_OP_KINDS_H

#include <stdbool.h>

struct json;
struct measurement;
struct predicted;
struct program;

/* The rows that are not inside others add up to the last one, the mean step. Seconds, mean over ranks. */
struct op_kind_row {
    const char *name;
    bool inside;
    double measured_s, predicted_s;
};
enum { OP_KIND_ROWS_MAX = 20 };

/* predicted NULL: its columns are 0. zero: of the plan. Returns the number of rows. */
int op_kinds_fill(const struct measurement *m, const struct program *program, int zero,
                  const struct predicted *predicted, struct op_kind_row ret[OP_KIND_ROWS_MAX]);
/* What takes less than 2 ms of a second in both columns is left out. */
void op_kinds_print(const struct op_kind_row *row, int n, bool predicted);
/* {"F": {"measured_s", "predicted_s", "error", "inside"}, ...}; null where there is no prediction */
void op_kinds_put(struct json *root, const char *key, const struct op_kind_row *row, int n, bool predicted);

#endif
