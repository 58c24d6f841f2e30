/* What measured runs say about the numbers of a profile.
 *
 * Parameters: those of the stacks and accelerators that the runs used (the fields of calibrate_fields), each with its
 * shipped value as prior and its plausible range as bounds. Fit: the maximum a posteriori of
 *     sum_i w_i huber(log(predicted_i / measured_i) / noise) + sum_p ((x_p - prior_p) / sigma_p)^2
 * by Levenberg-Marquardt within the bounds (sim/calibrate_fit.h) with numeric derivatives; x = log of a speed or size,
 * plain value of an overhead (zero allowed).
 * sigma is a share of the range: few runs move the numbers little, and never out of the range. No parameter belongs to
 * a row, a model or a group of runs. For a user's runs noise and share were chosen on groups of the public table that the
 * profile had not seen (11 groups, 98 draws of 1, 5 or 15 runs, the rest of the group predicted; 7.2 % median, 16.2 % p90
 * without them): one run changes the median by +0.1 points and the p90 by -0.9, five by -1.3 and -2.3, fifteen by -1.7 and
 * -1.4. With noise 0.05 and a quarter of the range, one run costs 2.5 points on average and 38 at worst, for its own oddness
 * passes for the stack's, while five gain 2.4. For full tables the share matters little: with sigma 0.3 of a stack's ranges
 * |error| over the public table was 2.9 % fitted and 5.3 % in groups left out (p90 11.9 and 18.2 %), with 0.2 3.0 and 5.2 %
 * (17.8 %), with 0.1 3.2 and 5.1 % (17.3 %), with half of every range earlier 2.8 and 7.1 %. A prior that all stacks share in
 * a field was tried and left: unseen groups came out at 18.5 %. */
#ifndef SIM_CALIBRATE_H
#define SIM_CALIBRATE_H

#include "cost/profile_rows.h"
#include "sim/validate.h"
#include "sim/validate_stats.h"

struct arena;

enum { CALIBRATE_PARAMETERS_MAX = 256 };

struct calibrate_parameter {
    enum profile_section section;
    const char *name, *key; /* stack or accelerator; rate class of a GEMM or expert form, head size of attention, else "" */
    const struct profile_field *field;
    bool logarithmic;
    double prior, low, high, value; /* SI */
    double sigma;                   /* of x */
    int runs;                       /* that depend on it */
};

struct calibrate_options {
    double noise;     /* of one run, relative: 0.1 for a user's runs, 0.05 for full tables, which have many alike */
    double freedom;   /* sigma / range in x of a stack's speeds and sizes: 0.1 for a user's runs, 0.3 for full tables */
    /* Groups of many runs count less per run, sqrt(20 / n), trust B half, C a fifth; accelerators share what they have from
     * their bases, which are not moved by the runs of a user's own. */
    bool full_table;
    const char *trust; /* rows whose trust says so alone; "" = all */
    const char *only;  /* "stack", "accelerator", a name, or "" = all */
};

struct calibration {
    struct validation *validation;
    struct calibrate_options options;
    int n;
    struct calibrate_parameter parameter[CALIBRATE_PARAMETERS_MAX];
    double *weight; /* by row; 0 = not fitted */
    /* Numbers that the prediction of row i depends on: user[first[i]] ... user[first[i + 1] - 1], indices of parameter. */
    int *first, *user;
    int runs;
    int iterations;
};

void calibrate_defaults(struct calibrate_options *ret);
/* Finds parameters and rows; the validation must be priced. Memory from the arena. */
int calibrate_init(struct calibration *ret, struct validation *validation, const struct calibrate_options *options, struct arena *arena,
                   struct err *err);
/* Weights of the rows that count, and how many they are; left_out: rows that shall not (NULL = none). */
void calibrate_weigh(struct calibration *calibration, const bool *left_out);
/* The parameter of its base that this one's value comes from where no run tells its own; -1 = it has a value of its own. */
int calibrate_inherited(const struct calibration *calibration, int parameter);
/* Fits; the validation is left priced with the new values. */
int calibrate_fit(struct calibration *calibration, struct arena *arena, struct err *err);
/* Sets all parameters to value or prior and prices again. */
void calibrate_apply(struct calibration *calibration, bool prior);
/* Error of runs that the fit did not see: `folds` parts left out in turn (at most one per run). The parameters are left as
 * they were. ret_before and ret_after: |error| of the same rows. */
int calibrate_cross_validate(struct calibration *calibration, int folds, struct arena *arena, struct spread *ret_before, struct spread *ret_after,
                             struct err *err);
/* x of a value and back, within the range. */
double calibrate_x(const struct calibrate_parameter *parameter, double value);
double calibrate_value(const struct calibrate_parameter *parameter, double x);

enum { LEFT_OUT_MOVES = 3 };
/* A group of runs that the fit did not see: |error| of its rows with it and without it. */
struct left_out {
    const char *group; /* or accelerator, model, stack; NULL = all together, each as predicted without it */
    struct spread fitted, unseen;
    int lost; /* numbers of its predictions that no run of another group tells: they are the prior again */
    /* The numbers whose change moves its predictions most, and by how much (mean log of its step times); fewer: NULL. */
    struct { const struct calibrate_parameter *parameter; double by; } move[LEFT_OUT_MOVES];
};
typedef void (*left_out_progress)(const struct left_out *group, int done, int all);
/* Fits without each group (BY_GROUP), or each accelerator, model or stack, in turn, from the values that are set (those of
 * the full fit); they are left as they were. Returns how many groups, -1 on failure; ret_groups, in the arena, has one more: all together. progress may be NULL. */
int calibrate_leave_groups_out(struct calibration *calibration, enum validate_by by, left_out_progress progress, struct arena *arena,
                               struct left_out **ret_groups, struct err *err);
/* The parameters that moved, as rows of a profile. */
int calibrate_rows(const struct calibration *calibration, const char *date, const char *source, struct profile_rows *rows, struct err *err);

#endif
