/* The functions of kernels_cuda (kernels.h), for its table; a queue is a cudaStream_t.
 *
 * Results are the same bits in every run: sums over threads and blocks have a fixed order, and no float is added to by
 * atomics but in scatter_floats where an index occurs twice. Rows that start at multiples of 16 bytes are read 16 bytes
 * at a time, others element by element.
 *
 * Sums over rows and the squares' sum need scratch memory. It is the queue's own, made at the first call and kept:
 * cuda_workspace grows it when a call needs more. Not thread-safe. */
#ifndef KERNELS_CUDA_CUDA_KERNELS_H
#define KERNELS_CUDA_CUDA_KERNELS_H

#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const struct kernels kernels_cuda;

/* Where a queue's workspaces come from. give: what the queue holds may still use the memory; what it gets later may have
 * it. Without a source they are the runtime's, and those that were too small stay until the release: to free them would
 * wait for all queues, also for a message that comes only after what follows here; all together they are no more than
 * twice the largest. */
struct cuda_workspace_source {
    void *(*take)(void *context, size_t bytes); /* aligned to 256; NULL = no room */
    void (*give)(void *context, void *memory);
    void *context;
};
void cuda_workspace_from(void *queue, const struct cuda_workspace_source *source); /* before its first use */
/* At least `bytes` (aligned to 256) until the queue's next call that uses a workspace. */
void *cuda_workspace(void *queue, size_t bytes);
size_t cuda_workspace_bytes(void); /* of all queues */
void cuda_workspace_release(void *queue);
/* Called with a sentence when a workspace cannot be had, or a launch is refused; without one the process aborts. Must
 * not return. */
void cuda_kernels_on_failure(void (*fail)(void *context, const char *sentence), void *context);
void cuda_kernels_fail(const char *what, const char *why) __attribute__((noreturn)); /* calls it: "what: why" */
int cuda_processors(void);                                                           /* of the current device */

void cuda_gemm(void *queue, int n, const struct gemm *gemm);
void cuda_convert(void *queue, int64_t n, enum element from, const void *x, enum element to, void *y);
void cuda_norm_forward(void *queue, int rows, int columns, int stride, float epsilon, bool centred, const void *x,
                       const void *weight, const void *bias, void *y, float *mean, float *rstd);
void cuda_add_norm_forward(void *queue, int rows, int columns, int stride, float epsilon, bool centred,
                           const void *residual, void *x, const void *weight, const void *bias, void *y, float *mean,
                           float *rstd);
void cuda_norm_apply(void *queue, int rows, int columns, int stride, const void *x, const void *weight,
                     const void *bias, const float *mean, const float *rstd, void *y);
void cuda_norm_backward(void *queue, int rows, int columns, int stride, bool centred, const void *x, const void *weight,
                        const float *mean, const float *rstd, const void *dy, bool accumulate, void *dx, float *dweight,
                        float *dbias);
void cuda_head_norm_forward(void *queue, const struct head_norm *n, float epsilon, const void *x, void *y);
void cuda_head_norm_backward(void *queue, const struct head_norm *n, const void *x, const void *dy, void *dx,
                             float *dq_weight, float *dk_weight);
void cuda_rotary(void *queue, int rows, int heads, int head_dim, int stride, const float *cosine, const float *sine,
                 bool inverse, void *x);
void cuda_attention_forward(void *queue, const struct attention *a);
void cuda_attention_backward(void *queue, const struct attention_gradient *a);
void cuda_attention_warpgroups(bool use); /* Hopper's kernels where the build has them (default), or those of all GPUs */
/* Tries Hopper's kernels on a small problem against the others. NULL, or why they were switched off: they disagree, or there
 * was no room. */
const char *cuda_attention_trial(void *queue);
void cuda_activation_forward(void *queue, enum activation kind, bool gated, int rows, int columns, const void *x,
                             void *y);
void cuda_activation_backward(void *queue, enum activation kind, bool gated, int rows, int columns, const void *x,
                              const void *dy, void *dx);
void cuda_add(void *queue, int64_t n, const void *x, void *y);
void cuda_add_floats(void *queue, int64_t n, const float *x, float *y);
void cuda_scale_floats(void *queue, int64_t n, float factor, float *x);
void cuda_copy_block(void *queue, int rows, int columns, const void *x, int stride_x, bool accumulate, void *y,
                     int stride_y);
void cuda_round_bf16(void *queue, int64_t n, float *x);
void cuda_bias_add(void *queue, int rows, int columns, const void *bias, void *x);
void cuda_column_sum(void *queue, int rows, int columns, const void *x, float *sum);
void cuda_embedding_forward(void *queue, int rows, int columns, const int *token, int first, int count,
                            const void *table, void *y);
void cuda_embedding_backward(void *queue, int rows, int columns, const int *token, int first, int count, const void *dy,
                             float *dtable);
void cuda_logits_max(void *queue, int rows, int columns, int stride, const void *logits, float *max);
void cuda_logits_sum(void *queue, int rows, int columns, int stride, const void *logits, const float *max,
                     const int *target, int first, float *sum, float *picked);
void cuda_logits_gradient(void *queue, int rows, int columns, int stride, void *logits, const float *max,
                          const float *sum, const int *target, int first, float factor);
void cuda_router_forward(void *queue, int rows, int experts, int k, bool renormalise, float *logits, int *choice,
                         float *weight);
void cuda_router_backward(void *queue, int rows, int experts, int k, bool renormalise, const float *probability,
                          const int *choice, const float *dweight, const float *bias_gradient, float *dlogits);
void cuda_gather_rows(void *queue, int rows, int columns, const int *index, const float *weight, const void *x,
                      void *y);
void cuda_combine_rows(void *queue, int rows, int columns, const int *first, const int *index, const float *weight,
                       const void *x, bool accumulate, void *y);
void cuda_dot_rows(void *queue, int rows, int columns, const int *index, const void *x, const void *y, float *dot);
void cuda_gather_floats(void *queue, int64_t n, const int *index, const float *x, float *y);
void cuda_scatter_floats(void *queue, int64_t n, const int *index, const float *x, float *y);
void cuda_adamw(void *queue, const struct adamw *a, int parts, const struct adamw_part *part, const float *gradient,
                float *weight, float *m, float *v, void *copy);
void cuda_sum_squares(void *queue, int parts, const struct adamw_part *part, const float *x, double *sum);
void cuda_fp8_cast(void *queue, const struct fp8_cast *cast);
void cuda_fp8_transpose(void *queue, int rows, int columns, const void *x, void *y);
void cuda_fp8_update(void *queue, const struct fp8_update *update);

#ifdef __cplusplus
}
#endif

#endif
