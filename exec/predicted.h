/* What plansim predicts for a plan, to stand beside the measurement: asked of the plansim program itself (the one
 * beside this planexec, else on the PATH), so that both say the same. */
#ifndef EXEC_PREDICTED_H
#define EXEC_PREDICTED_H

struct err;

struct predicted {
    double step_time_s, bubble_fraction, peak_bytes;
    double forward_s, backward_s, wait_s, end_s; /* of a step, mean over ranks; end: gradients and optimizer */
};

/* profile may be NULL (the built-in one). 0, or -1 with a sentence. */
int predicted_load(const char *model, const char *plan, const char *cluster, const char *profile, struct predicted *ret,
                   struct err *err);

#endif
