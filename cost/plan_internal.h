/* Shared by plan*.c only: the predicates on which rule bits and sentences must
 * agree, and arithmetic that saturates instead of overflowing. */
#ifndef COST_PLAN_INTERNAL_H
#define COST_PLAN_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "cost/plan.h"

static inline int64_t plan_mul(int64_t a, int64_t b)
{
    int64_t product;
    return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

struct err;
struct json;
struct json_at;
/* The fields of plan_options.c: recompute_modules, cuda_graph, vocab_parallel, dp_shard, optimizer_offload, optimizer_state_dtype. */
int plan_read_options(struct json_at at, struct plan *plan, struct err *err);
void plan_put_options(struct json *object, const struct plan *plan);

bool plan_stack_is(const struct plan *plan, const char *name);
bool plan_stack_is_torch(const struct plan *plan);  /* pipelines of torch.distributed.pipelining */
bool plan_stack_pads_vocab(const struct plan *plan); /* Megatron-LM and its children */

bool plan_sizes_are_positive(const struct plan *plan); /* else nothing can be divided by them */
int64_t plan_chunks(const struct plan *plan);                                      /* pp*vp */
int64_t plan_largest_chunk(const struct plan *plan, const struct model *model);    /* layers */
uint32_t plan_idle_adapters(const struct model *model); /* bits of enum lora_module that no linear of the model answers to */
int64_t plan_sequence_unit(const struct plan *plan);                               /* seq_len must be a multiple of it */
bool plan_vp_fits_schedule(const struct plan *plan);                               /* chunks per rank that the schedule is made for */
bool plan_schedule_takes(const struct plan *plan, int64_t micro_batches);          /* ... per pipeline */
bool plan_order_is_permutation(const struct plan *plan);
/* Whether the experts' dimensions split cleanly where the pipeline dimension
 * lies between two data dimensions; always so when pp is the last axis. */
bool plan_experts_aligned(const struct plan *plan);

#endif
