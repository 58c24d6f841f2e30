/* Shared by the files that price ops; not for others.
 *
 * A builder gathers the ops of one layer: device seconds and launches by phase,
 * collectives, kept bytes. */
#ifndef COST_OPS_INTERNAL_H
#define COST_OPS_INTERNAL_H

#include "cost/ops.h"

/* Block-scaled fp8 accumulates wgrad in fp32 outside the tensor core (deepseek-ai
 * profile-data: 620-725 TFLOP/s against 830-1090 forward). */
#define FP8_BLOCK_WGRAD 1.45

struct builder {
    const struct ops_context *context;
    const struct accelerator *accelerator;
    struct layer_price *price;
    double device_s[PHASES], launches[PHASES];
    double tokens;         /* of the micro-batch in one tensor-parallel group: mbs * seq / cp */
    double tokens_rank;    /* in regions that sequence parallelism shards: tokens / tp, else tokens */
    double bytes;          /* of one stored activation element */
    double input_bytes;    /* of one stored element of a linear's input: 1 where an 8-bit copy serves wgrad */
    bool repeats_cheap;    /* selective recompute repeats norms, activations and latent up-projections (flash attention) */
    enum rate rate;        /* of linear layers */
    enum rate plain_rate;  /* of what 8-bit recipes leave alone: head, router, attention, adapters */
    bool graphed;          /* what comes now is replayed by a CUDA graph: the host does not launch it */
    double adapter_rank;   /* of the adapters that the linears from here on have; 0 = none */
    bool async_tp;         /* gradient collectives of column-parallel layers run beside dgrad and wgrad */
};

/* One linear layer's times in its three phases. */
struct linear_times {
    double s[PHASES];
};

void builder_init(struct builder *ret, const struct ops_context *context, struct layer_price *price);
/* Turns device time and launches into compute_s (host floor) and the recompute prices. */
void builder_finish(struct builder *builder);

void builder_op(struct builder *builder, const char *name, enum op_class op_class, enum phase phase, double seconds, double flop, double bytes,
                double launches);
/* The linears from here on are of that module (LORA_MODULES: of none that may have adapters). */
void builder_adapts(struct builder *builder, enum lora_module module);
/* Whether backward needs the module's input: its weights train, or adapters beside them. */
bool builder_keeps_input(const struct builder *builder, enum lora_module module);
/* Of the line that builder_op logged last. */
void builder_shape(const struct builder *builder, double m, double n, double k, double products);
/* m tokens, k -> n; rate for F and B; W with the accelerator's wgrad factor. */
struct linear_times builder_linear(struct builder *builder, const char *name, enum rate rate, double m, double n, double k);
/* Casts to 8 or 4 bit of `input` and `gradient` elements. */
void builder_cast(struct builder *builder, double input, double gradient);
/* Bytes moved in F and in B, launches of each. */
void builder_pointwise(struct builder *builder, const char *name, double forward_bytes, double backward_bytes, double launches);
/* The same for kernels whose bytes are counted as they are moved: the stack's pointwise factor stays out. */
void builder_move(struct builder *builder, const char *name, double forward_bytes, double backward_bytes, double launches);
/* Input side of a column-parallel pair: gathers `width` per token (all-gather with
 * sequence parallelism); in B the gradient's reduction, hidden behind wgrad where
 * the stack does so. */
void builder_tp_enter(struct builder *builder, double width, struct linear_times column);
/* Output side of a row-parallel linear: reduce-scatter or all-reduce. */
void builder_tp_leave(struct builder *builder, double width, struct linear_times row);
void builder_ep(struct builder *builder, const char *name, enum phase phase, double seconds, double bytes);

void ops_attention(struct builder *builder, int kind);
void ops_mixer(struct builder *builder, enum layer_mixer mixer); /* Mamba-2, delta net */
/* module: what recomputing the whole of it is called, mlp or shared_experts. */
void ops_mlp(struct builder *builder, double ffn, enum recompute_module module);
void ops_moe(struct builder *builder, int kind);
void ops_norm(struct builder *builder, const char *name, double width);
/* Whether selective recompute repeats the module: those that the plan names, else norms, activations and latent up-projections. */
bool builder_repeats(const struct builder *builder, enum recompute_module module);
/* Kept from F to B: without and with selective recompute. */
void builder_keep(struct builder *builder, double bytes, double selective_bytes);
/* Of what is kept, the input of a module that the plan may offload. */
void builder_offload(struct builder *builder, enum offload_module module, double bytes);

#endif
