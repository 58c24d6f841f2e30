/* Measured attention and grouped GEMMs -> the forms of an accelerator (cost/profile.h says which).
 *
 * Attention, by head width: CSV with batch, seq, heads, kv_heads, head_dim, time_us, perhaps v_head_dim, causal, direction
 * (fwd, bwd), dtype, gpu; instead of time_us and direction forward_us and backward_us (hwprofiles/measure). Causal rows of head_dim = v_head_dim are fitted; backward rows give its ratio to forward.
 * Experts: single grouped GEMMs, CSV with ng (experts), m (tokens of each), n, k, time_us, perhaps stage (fwd, dgrad,
 * wgrad); or whole expert MLPs of one rank: tokens, hidden, inter, topk, experts, tp, ep. Rows with `bad` 1, `mode` sustained or another
 * `dist` than balanced are left out. */
#ifndef SIM_CALIBRATE_KERNELS_H
#define SIM_CALIBRATE_KERNELS_H

#include "cost/profile.h"

struct arena;
struct csv;
struct err;

struct kernel_choice {
    const char *dtype, *gpu; /* rows to take; "" = all */
};

/* -1 with a sentence when rows that `choice` takes are of several GPUs (column gpu): one form cannot be theirs. */
int kernel_choice_check(const struct csv *csv, const char *path, const struct kernel_choice *choice, struct err *err);

struct attention_fit {
    struct attention_form form; /* backward 0 = no backward rows */
    int n, n_backward;
    double median, p90;
};
/* One for each head width with at least 6 forward rows. Returns how many, or -1. */
int calibrate_attention(const char *path, const struct accelerator *accelerator, const struct kernel_choice *choice, struct arena *arena,
                        struct attention_fit *ret, int max, struct err *err);

struct expert_fit {
    struct expert_form form; /* wgrad 0 = no rows of it */
    int n, n_wgrad;
    double median, p90;
};
int calibrate_experts(const char *path, const struct accelerator *accelerator, enum rate rate, const struct kernel_choice *choice, struct arena *arena,
                      struct expert_fit *ret, struct err *err);

#endif
