/* The runs of a validation priced on several threads, and one run priced again
 * and again with other numbers (calibrate).
 *
 * Each thread has its own pricer, and a run is priced by one thread: what a visit
 * writes of its own row alone is the same for any number of threads. */
#ifndef SIM_VALIDATE_ROWS_H
#define SIM_VALIDATE_ROWS_H

#include "sim/pipeline.h"
#include "sim/stages.h"
#include "sim/validate.h"

struct row_pricer {
    /* Copies of the row's stack and cluster: change their numbers between two prices. */
    struct stack stack;
    struct cluster cluster;
    const struct validation *validation;
    int row;
    struct question question;
    struct span_cache spans;
    struct layer_prices prices;
    struct prediction prediction;
    struct pipeline_memo memo;
    struct arena arena;
    struct arena_mark start;
};

/* Takes up a row that validation_price could predict. */
void row_pricer_begin(struct row_pricer *pricer, const struct validation *validation, int row);
/* With the numbers as they stand in the copies: the very step time that validation_price finds. NaN when there is none. */
double row_pricer_step_s(struct row_pricer *pricer);

/* Visits rows 0 .. n-1 in any order, on as many threads as the validation has. */
void validation_visit_rows(const struct validation *validation, int n, void (*visit)(void *context, struct row_pricer *pricer, int row), void *context);

#endif
