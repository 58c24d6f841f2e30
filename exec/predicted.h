/* What plansim predicts for a plan, to stand beside the measurement: asked of the plansim program itself (the one
 * beside this planexec, else on the PATH), so that both say the same. */
#ifndef EXEC_PREDICTED_H
#define EXEC_PREDICTED_H

struct err;

enum { PREDICTED_CHUNKS_MAX = 256 };

struct predicted {
    double step_time_s, bubble_fraction, peak_bytes;
    double forward_s, backward_s, wait_s, end_s; /* of a step, mean over ranks; end: gradients and optimizer */
    double reduction_s, optimizer_s, gather_s, overhead_s; /* what end is made of */
    double recompute_s, tp_s, cp_s, ep_s, dp_s;            /* inside forward and backward: exposed */
    int n_chunks;
    double chunk_s[PREDICTED_CHUNKS_MAX][3]; /* F, B, W of one micro-batch in each stage; n_chunks 0 = not said */
};

/* profile may be NULL (the built-in one). 0, or -1 with a sentence. */
int predicted_load(const char *model, const char *plan, const char *cluster, const char *profile, struct predicted *ret,
                   struct err *err);

#endif
