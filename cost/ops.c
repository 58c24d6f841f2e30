/* The builder of op lists, and the ops outside the layers.
 *
 * Collectives of Megatron tensor parallelism (Shoeybi et al. 2019; Korthikanti et
 * al. 2022, section 4.2): forward two all-reduces per layer of s*b*h elements, or
 * with sequence parallelism all-gather + reduce-scatter twice; backward the same
 * plus one more all-gather per column-parallel input, which is not kept. The
 * gradient collectives of the column-parallel side run beside wgrad.
 * Host floor: kernels and collectives are launched in order, so a phase takes at least
 * launches * host_launch_s of its stack; B and W, launched as one backward, share a
 * floor. CUDA graphs are launched once.
 * Low-rank adapters (Hu et al. 2021, arXiv:2106.09685): beside each linear x -> A x -> B A x, added to its output; the
 * frozen weights have no gradient of their own, only x's. */
#include "cost/ops.h"

#include <math.h>
#include <string.h>

#include "cost/collective.h"
#include "cost/kernel.h"
#include "cost/ops_internal.h"

const char *const phase_names[] = {"F", "B", "W", NULL};
const char *const op_class_names[] = {"gemm", "attention", "pointwise", "experts", "tp", "cp", "ep", "host", NULL};

void ops_context_init(struct ops_context *ret, const struct model *model, const struct cluster *cluster, const struct plan *plan,
                      const struct stack *stack, struct op_log *log)
{
    *ret = (struct ops_context){.model = model, .cluster = cluster, .plan = plan, .stack = stack, .log = log};
    const struct { enum plan_group which; struct span *span; } groups[] = {
        {GROUP_TP, &ret->tp}, {GROUP_CP, &ret->cp}, {GROUP_EP, &ret->ep}, {GROUP_ETP, &ret->etp}};
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
        struct rank_group group;
        plan_rank_group(plan, groups[i].which, &group);
        cluster_span(cluster, &group, plan_world(plan), groups[i].span);
    }
}

void builder_init(struct builder *ret, const struct ops_context *context, struct layer_price *price)
{
    const struct plan *plan = context->plan;
    *price = (struct layer_price){0};
    *ret = (struct builder){.context = context, .accelerator = &context->cluster->accelerator, .price = price};
    ret->tokens = (double)plan->micro_batch * (double)plan->seq_len / plan->cp;
    ret->tokens_rank = plan->sequence_parallel ? ret->tokens / plan->tp : ret->tokens;
    ret->bytes = precision_activation_bytes(plan->precision);
    ret->input_bytes = precision_is_fp8(plan->precision) && plan->lora_rank == 0 ? 1 : ret->bytes; /* adapters need it in 16 bit */
    ret->repeats_cheap = plan->attention <= ATTENTION_FLASH1 && !context->stack->sharded_per_layer;
    ret->rate = precision_rate(plan->precision);
    ret->plain_rate = plan->precision == PRECISION_FP32 ? ret->rate : RATE_16BIT;
    ret->async_tp = !context->stack->sharded_per_layer;
    ret->graphed = plan->cuda_graph == CUDA_GRAPH_PARTIAL || plan->cuda_graph == CUDA_GRAPH_FULL;
}

void builder_op(struct builder *b, const char *name, enum op_class op_class, enum phase phase, double seconds, double flop, double bytes,
                double launches)
{
    b->device_s[phase] += seconds;
    if (!b->graphed)
        b->launches[phase] += launches;
    if (phase == PHASE_F)
        b->price->flop += flop;
    struct op_log *log = b->context->log;
    if (log && log->n < log->max && (seconds > 0 || flop > 0))
        log->line[log->n++] = (struct op_line){.name = name, .op_class = op_class, .phase = phase, .seconds = seconds, .flop = flop, .bytes = bytes};
}

void builder_shape(const struct builder *b, double m, double n, double k, double products)
{
    struct op_log *log = b->context->log;
    if (!log || log->n == 0)
        return;
    struct op_line *line = &log->line[log->n - 1];
    line->m = m;
    line->n = n;
    line->k = k;
    line->products = products;
}

/* Casts of an 8-bit or 4-bit linear: its input (half of them fused into the norm or
 * activation before) and its output's gradient, which serves dgrad and wgrad. */
void builder_cast(struct builder *b, double input, double gradient)
{
    double bytes = b->accelerator->fp8_cast;
    builder_op(b, "fp8 cast", OP_POINTWISE, PHASE_F, kernel_pointwise_s(b->accelerator, 0.5 * bytes * input), 0, 0.5 * bytes * input, 1);
    builder_op(b, "fp8 cast", OP_POINTWISE, PHASE_B, kernel_pointwise_s(b->accelerator, bytes * gradient), 0, bytes * gradient, 1);
}

/* Tensor-core kernels move rows in pieces of 16 bytes; a matrix whose rows are not whole pieces takes slower ones (NVIDIA
 * Matrix Multiplication Background, "Tensor Core Requirements"). The time of one whose rows end on 2, 4, 8 bytes, by the
 * heads of vTrain's A100 runs, vocabulary 50257, 6282, 12564, 25128 on a rank: 79, 136, 152, 267 TFLOP/s. */
static double unaligned(enum rate rate, double n, double k)
{
    uint64_t ends = (uint64_t)n | (uint64_t)k;
    if (rate != RATE_16BIT || ends % 8 == 0)
        return 1;
    return ends % 2 ? 3.4 : ends % 4 ? 2.0 : 1.75;
}

static bool has_adapter(const struct plan *plan, enum lora_module module)
{
    return module != LORA_MODULES && plan->lora_rank > 0 && (!plan->lora_modules || plan->lora_modules >> module & 1);
}

void builder_adapts(struct builder *b, enum lora_module module)
{
    b->adapter_rank = has_adapter(b->context->plan, module) ? b->context->plan->lora_rank : 0;
}

bool builder_keeps_input(const struct builder *b, enum lora_module module)
{
    return b->context->plan->lora_rank == 0 || has_adapter(b->context->plan, module);
}

/* A and B of one adapter, and the passes that add its output and its input's gradient. */
static void adapter(struct builder *b, double m, double n, double k)
{
    const struct accelerator *a = b->accelerator;
    double r = b->adapter_rank, flop = 2 * m * r * (n + k), speed = b->context->stack->gemm_speed;
    double forward = kernel_gemm_s(a, b->plain_rate, m, r, k) + kernel_gemm_s(a, b->plain_rate, m, n, r);
    double backward = kernel_gemm_s(a, b->plain_rate, m, r, n) + kernel_gemm_s(a, b->plain_rate, m, k, r);
    double wgrad = kernel_gemm_s(a, b->plain_rate, n, r, m) + kernel_gemm_s(a, b->plain_rate, r, k, m);
    builder_op(b, "adapter", OP_GEMM, PHASE_F, forward / speed, flop, 0, 2);
    builder_op(b, "adapter", OP_GEMM, PHASE_B, backward / speed, flop, 0, 2);
    builder_op(b, "adapter", OP_GEMM, PHASE_W, wgrad / speed, flop, 0, 2);
    builder_pointwise(b, "adapter sum", 3 * m * n * b->bytes, 3 * m * k * b->bytes, 1);
    b->price->adapter_params += r * (n + k);
}

/* MXFP8 against one scale per tensor: scales are read and laid out beside the operands. Nine pairs of Megatron-Bridge's runs
 * on B200, GB200, GB300 that differ in the recipe alone: steps 1.02 to 1.12 times as long, median 1.06. */
#define MXFP8_SLOWDOWN 1.07

struct linear_times builder_linear(struct builder *b, const char *name, enum rate rate, double m, double n, double k)
{
    struct linear_times t = {{0}};
    if (m <= 0 || n <= 0 || k <= 0)
        return t;
    const struct accelerator *a = b->accelerator;
    double flop = 2 * m * n * k, speed = b->context->stack->gemm_speed / unaligned(rate, n, k);
    if (rate == RATE_FP8 && b->context->plan->precision == PRECISION_MXFP8)
        speed /= MXFP8_SLOWDOWN;
    double wgrad = a->gemm[rate].wgrad > 0 ? a->gemm[rate].wgrad : a->gemm[RATE_16BIT].wgrad;
    if (rate != RATE_16BIT && b->context->plan->precision == PRECISION_FP8_BLOCK)
        wgrad = fmax(wgrad, FP8_BLOCK_WGRAD);
    t.s[PHASE_F] = kernel_gemm_s(a, rate, m, n, k) / speed;
    t.s[PHASE_B] = kernel_gemm_s(a, rate, m, k, n) / speed;
    t.s[PHASE_W] = b->context->plan->lora_rank > 0 ? 0 : kernel_wgrad_s(a, rate, n, k, m, wgrad) / speed;
    for (int phase = 0; phase < PHASES; phase++)
        if (t.s[phase] > 0) {
            builder_op(b, name, OP_GEMM, phase, t.s[phase], flop, 0, 1);
            builder_shape(b, m, n, k, 1);
        }
    if (b->adapter_rank > 0)
        adapter(b, m, n, k);
    if (rate == RATE_FP8 || rate == RATE_FP4)
        builder_cast(b, m * k, m * n);
    return t;
}

void builder_move(struct builder *b, const char *name, double forward_bytes, double backward_bytes, double launches)
{
    builder_op(b, name, OP_POINTWISE, PHASE_F, kernel_pointwise_s(b->accelerator, forward_bytes), 0, forward_bytes, launches);
    builder_op(b, name, OP_POINTWISE, PHASE_B, kernel_pointwise_s(b->accelerator, backward_bytes), 0, backward_bytes, launches);
}

void builder_pointwise(struct builder *b, const char *name, double forward_bytes, double backward_bytes, double launches)
{
    double factor = b->context->stack->pointwise;
    builder_op(b, name, OP_POINTWISE, PHASE_F, kernel_pointwise_s(b->accelerator, forward_bytes * factor), 0, forward_bytes, launches);
    builder_op(b, name, OP_POINTWISE, PHASE_B, kernel_pointwise_s(b->accelerator, backward_bytes * factor), 0, backward_bytes,
               launches);
}

static void log_comm(struct builder *b, const char *name, enum op_class op_class, enum phase phase, double seconds, double bytes)
{
    struct op_log *log = b->context->log;
    if (log && log->n < log->max && seconds > 0)
        log->line[log->n++] = (struct op_line){.name = name, .op_class = op_class, .phase = phase, .seconds = seconds, .bytes = bytes};
}

static void launch(struct builder *b, enum phase phase, double n)
{
    if (!b->graphed)
        b->launches[phase] += n;
}

static double tp_collective(const struct builder *b, enum collective_op op, double bytes)
{
    return collective_s(b->context->cluster, &b->context->tp, op, bytes) / b->context->stack->collective_speed;
}

/* Inputs and gradients of 8- and 4-bit linears are cast before they are gathered (TransformerEngine's modules, torchao's
 * Float8ColwiseParallel); bytes: in 16 bit. NVFP4 sends a byte of scale per 16 elements. */
static double tp_gather(const struct builder *b, double bytes)
{
    double element_bytes = b->rate == RATE_FP4 ? 0.5 + 1.0 / 16 : b->input_bytes;
    return tp_collective(b, COLLECTIVE_ALL_GATHER, bytes * element_bytes / b->bytes);
}

static double beside(const struct builder *b, double collective, double cover)
{
    return beside_cover(collective, cover, b->context->stack->overlap_slowdown);
}

/* A collective split in pieces and pipelined with the GEMM that uses it (user
 * buffers, async TP): the first of four pieces shows. */
static double pipelined(const struct builder *b, double collective, double gemm)
{
    return fmax(collective / 4, beside(b, collective, gemm * 0.75));
}

/* Whether the backward of a column-parallel linear gathers its input once more. Where the gathered one is kept, it does
 * only beside per-op activation checkpointing, which runs that collective again; full recompute has it in its forward. */
static bool gathers_again(const struct builder *b)
{
    const struct stack *stack = b->context->stack;
    return !stack->keeps_gathered || (stack->sharded_per_layer && b->context->plan->recompute == RECOMPUTE_SELECTIVE);
}

void builder_tp_enter(struct builder *b, double width, struct linear_times column)
{
    const struct plan *plan = b->context->plan;
    if (plan->tp == 1)
        return;
    double bytes = b->tokens * width * b->bytes;
    struct layer_price *p = b->price;
    double forward = 0, backward;
    if (plan->sequence_parallel) {
        double gather = tp_gather(b, bytes), scatter = tp_collective(b, COLLECTIVE_REDUCE_SCATTER, bytes);
        forward = plan->overlap.tp ? pipelined(b, gather, column.s[PHASE_F]) : gather;
        double again = gathers_again(b) ? gather : 0;
        backward = b->async_tp || plan->overlap.tp ? beside(b, again, column.s[PHASE_B]) + beside(b, scatter, column.s[PHASE_W]) : again + scatter;
    } else {
        double reduce = tp_collective(b, COLLECTIVE_ALL_REDUCE, bytes);
        backward = b->async_tp ? beside(b, reduce, column.s[PHASE_W]) : reduce;
    }
    p->tp_s[PHASE_F] += forward;
    p->tp_s[PHASE_B] += backward;
    launch(b, PHASE_F, plan->sequence_parallel);
    launch(b, PHASE_B, plan->sequence_parallel && gathers_again(b) ? 2 : 1);
    log_comm(b, "tp enter", OP_TP, PHASE_F, forward, bytes);
    log_comm(b, "tp enter", OP_TP, PHASE_B, backward, bytes);
}

void builder_tp_leave(struct builder *b, double width, struct linear_times row)
{
    const struct plan *plan = b->context->plan;
    if (plan->tp == 1)
        return;
    double bytes = b->tokens * width * b->bytes;
    double forward, backward = 0;
    if (plan->sequence_parallel) {
        forward = tp_collective(b, COLLECTIVE_REDUCE_SCATTER, bytes);
        backward = tp_gather(b, bytes);
        if (plan->overlap.tp) {
            forward = pipelined(b, forward, row.s[PHASE_F]);
            backward = pipelined(b, backward, row.s[PHASE_B]);
        }
    } else {
        forward = tp_collective(b, COLLECTIVE_ALL_REDUCE, bytes);
    }
    b->price->tp_s[PHASE_F] += forward;
    b->price->tp_s[PHASE_B] += backward;
    launch(b, PHASE_F, 1);
    launch(b, PHASE_B, plan->sequence_parallel);
    log_comm(b, "tp leave", OP_TP, PHASE_F, forward, bytes);
    log_comm(b, "tp leave", OP_TP, PHASE_B, backward, bytes);
}

void builder_ep(struct builder *b, const char *name, enum phase phase, double seconds, double bytes)
{
    b->price->ep_s[phase] += seconds;
    launch(b, phase, 2);
    log_comm(b, name, OP_EP, phase, seconds, bytes);
}

/* The time by which the host makes phases first..last together longer, shared out by their launches. Alone, a device waits
 * only for a host that is slower over all; ranks that meet in collectives wait each time for the one that is late, so that
 * both add up where they are alike. Exponents of the mean: vTrain's A100 runs at tp 1, and at tp 2 to 8. */
static void raise_to_floor(struct builder *b, enum phase first, enum phase last)
{
    struct layer_price *p = b->price;
    double busy = 0, launches = 0, waits = 0;
    for (int i = (int)first; i <= (int)last; i++) {
        busy += p->compute_s[i] + p->tp_s[i] + p->cp_s[i] + p->ep_s[i];
        waits += p->tp_s[i];
        launches += b->launches[i];
    }
    double host = launches * b->context->stack->host_launch_s, exponent = waits > 0 ? 2 : 4;
    if (!(host > 0) || !(busy > 0))
        return;
    double idle = fmax(host, busy) * pow(1 + pow(fmin(host, busy) / fmax(host, busy), exponent), 1 / exponent) - busy;
    for (int i = (int)first; i <= (int)last; i++) {
        p->compute_s[i] += idle * b->launches[i] / launches;
        log_comm(b, "host launch floor", OP_HOST, (enum phase)i, idle * b->launches[i] / launches, 0);
    }
}

void builder_finish(struct builder *b)
{
    struct layer_price *p = b->price;
    memcpy(p->compute_s, b->device_s, sizeof p->compute_s);
    raise_to_floor(b, PHASE_F, PHASE_F);
    raise_to_floor(b, PHASE_B, PHASE_W);
    p->full_s = p->compute_s[PHASE_F];
    p->full_tp_s = p->tp_s[PHASE_F];
    p->full_cp_s = p->cp_s[PHASE_F];
    p->full_ep_s = p->ep_s[PHASE_F];
    p->kept_full_bytes = b->tokens_rank * (double)b->context->model->hidden * b->bytes;
}

void builder_keep(struct builder *b, double bytes, double selective_bytes)
{
    b->price->kept_bytes += bytes;
    b->price->kept_selective_bytes += selective_bytes;
}

void builder_offload(struct builder *b, enum offload_module module, double bytes)
{
    if (b->context->plan->offload_modules >> module & 1)
        b->price->offload_bytes += bytes;
}

bool builder_repeats(const struct builder *b, enum recompute_module module)
{
    uint32_t chosen = b->context->plan->recompute_modules;
    if (chosen)
        return chosen >> module & 1;
    return b->repeats_cheap && (module == MODULE_LAYERNORM || module == MODULE_MOE_ACT || module == MODULE_MLA_UP_PROJ);
}

void ops_norm(struct builder *b, const char *name, double width)
{
    double passes = b->context->stack->norm_passes, bytes = passes * b->tokens_rank * width * b->bytes;
    builder_pointwise(b, name, 2 * bytes, 3 * bytes, passes);
}

/* planexec's backward of a layer (exec/layer.c): at the input gradient of its norm1, and with 16-bit elements in the
 * attention core, whose gradients are summed in fp32 first. Kept for W: the gradient of gate and up, those of the outputs
 * of `down` and `out` (gathered, with sequence parallelism), of qkv; in 8 bits transposed copies of all four, which are
 * made, by rows as well, beside the gradient that they are of. */
static void count_buffers(struct builder *b, int kind)
{
    const struct model *m = b->context->model;
    const struct plan *plan = b->context->plan;
    double hidden = (double)m->hidden, all = b->tokens * hidden * b->bytes, mine = b->tokens_rank * hidden * b->bytes;
    double heads = (double)m->heads / plan->tp, kv_heads = fmax(1, (double)m->kv_heads / plan->tp);
    double qkv = b->tokens * (heads + 2 * kv_heads) * (double)m->head_dim * b->bytes;
    double ffn = (double)(m->kinds[kind].moe ? m->kinds[kind].shared_ffn : m->kinds[kind].ffn);
    double gates = b->tokens * (m->gated ? 2 : 1) * ffn / plan->tp * b->bytes, gathered = plan->sequence_parallel ? 2 * all : 0;
    double last = fmax(plan->sequence_parallel ? all + mine : 0, 2 * mine), made = 0;
    double core = b->tokens * heads * (double)m->head_dim * b->bytes + (b->bytes < 4 ? qkv + 4 / b->bytes * qkv : qkv);
    if (precision_is_fp8(plan->precision)) {
        double gates_made = 2 * gates + 1.5 * all + mine;
        gates /= 2;
        gathered = all;
        made = fmax(gates_made, 2 * qkv + 2 * all + 2 * mine + gates);
        qkv /= 2;
    }
    double norm1 = gates + qkv + gathered + 2 * mine + last;
    b->price->working_bytes = fmax(fmax(b->price->working_bytes, made), fmax(norm1, gates + gathered + 2 * mine + core));
    builder_keep(b, 16 * b->tokens_rank, 16 * b->tokens_rank); /* two norms' means and deviations */
}

void ops_price_layer(const struct ops_context *context, int kind, struct layer_price *ret)
{
    struct builder b;
    builder_init(&b, context, ret);
    const struct model *model = context->model;
    double hidden = (double)model->hidden, stored = b.tokens_rank * hidden * b.bytes;
    for (int i = 0; i < model->norms_per_layer; i++) {
        double before = b.device_s[PHASE_F], output = b.tokens_rank * hidden * b.input_bytes;
        ops_norm(&b, "norm", hidden);
        if (context->stack->keeps_gathered)
            output = b.tokens * hidden * b.input_bytes;
        if (!builder_keeps_input(&b, i == 0 && model->kinds[kind].mixer != MIXER_NONE ? LORA_LINEAR_QKV : LORA_LINEAR_FC1))
            output = 0;
        double eager = b.tokens_rank * hidden * context->stack->norm_kept_bytes, mask = context->plan->dropout ? b.tokens_rank * hidden : 0;
        bool repeats = builder_repeats(&b, MODULE_LAYERNORM);
        builder_keep(&b, stored + output + eager + mask, repeats || context->stack->sharded_per_layer ? stored + mask : stored + output + eager + mask);
        ret->selective_s += repeats ? b.device_s[PHASE_F] - before : 0;
        builder_offload(&b, i == 0 ? OFFLOAD_ATTN_NORM : OFFLOAD_MLP_NORM, stored);
        if (i == 0)
            builder_offload(&b, OFFLOAD_QKV_LINEAR, output);
    }
    const struct layer_kind *k = &model->kinds[kind];
    if (k->mixer == MIXER_ATTENTION)
        ops_attention(&b, kind);
    else if (k->mixer != MIXER_NONE)
        ops_mixer(&b, k->mixer);
    if (k->mixer != MIXER_NONE)
        builder_pointwise(&b, "residual", 3 * stored, 2 * stored, 1);
    if (k->moe)
        ops_moe(&b, kind);
    else if (!k->mixer_only)
        ops_mlp(&b, (double)k->ffn, MODULE_MLP);
    if (!k->mixer_only)
        builder_pointwise(&b, "residual", 3 * stored, 2 * stored, 1);
    builder_finish(&b);
    if (context->stack->counted_buffers)
        count_buffers(&b, kind);
    if (context->stack->sharded_per_layer) /* per-op activation checkpointing keeps the layer's input */
        ret->kept_selective_bytes -= (model->norms_per_layer - 1) * stored;
}

void ops_price_embedding(const struct ops_context *context, struct layer_price *ret)
{
    struct builder b;
    builder_init(&b, context, ret);
    double row = (double)context->model->hidden * b.bytes;
    builder_pointwise(&b, "embedding", 2 * b.tokens * row, 3 * b.tokens * row, context->model->learned_positions ? 2 : 1);
    if (context->plan->tp > 1) {
        bool sp = context->plan->sequence_parallel;
        double bytes = b.tokens * row;
        ret->tp_s[PHASE_F] += tp_collective(&b, sp ? COLLECTIVE_REDUCE_SCATTER : COLLECTIVE_ALL_REDUCE, bytes);
        ret->tp_s[PHASE_B] += sp ? tp_collective(&b, COLLECTIVE_ALL_GATHER, bytes) : 0;
    }
    builder_finish(&b);
    ret->kept_bytes = ret->kept_selective_bytes = ret->kept_full_bytes = 0;
}

/* Passes over the fp32 logits: fused kernels read and write them once each way. */
static void cross_entropy(struct builder *b, double vocab)
{
    const struct stack *stack = b->context->stack;
    double logits = b->tokens * vocab;
    double forward = stack->fused_cross_entropy ? 10 : 22, backward = stack->fused_cross_entropy ? 10 : 14;
    builder_pointwise(b, "cross-entropy", forward * logits, backward * logits, stack->fused_cross_entropy ? 4 : 12);
    double scalars = b->tokens * 4;
    if (b->context->plan->tp > 1) {
        double t = 3 * tp_collective(b, COLLECTIVE_ALL_REDUCE, scalars); /* max, target logit, sum of exponentials */
        b->price->tp_s[PHASE_F] += t;
        log_comm(b, "cross-entropy", OP_TP, PHASE_F, t, 3 * scalars);
    }
}

void ops_price_head(const struct ops_context *context, struct layer_price *ret)
{
    struct builder b;
    builder_init(&b, context, ret);
    const struct model *model = context->model;
    double hidden = (double)model->hidden, vocab = ops_vocab_per_rank(model, context->plan);
    if (model->final_norm)
        ops_norm(&b, "final norm", hidden);
    struct linear_times t = builder_linear(&b, "head", b.plain_rate, b.tokens, vocab, hidden);
    builder_tp_enter(&b, hidden, t);
    cross_entropy(&b, vocab);
    builder_finish(&b);
    ret->kept_bytes = 2 * b.tokens_rank * hidden * b.bytes;
    if (context->stack->counted_buffers) { /* + logits with maximum and sum, the norm's statistics; gradients of its output and input */
        ret->kept_bytes += b.tokens * (vocab * b.bytes + 8) + 8 * b.tokens_rank;
        ret->working_bytes = (b.tokens_rank + b.tokens) * hidden * b.bytes;
    }
    ret->kept_selective_bytes = ret->kept_full_bytes = ret->kept_bytes;
}

static void add_price(struct layer_price *sum, const struct layer_price *add)
{
    for (int i = 0; i < PHASES; i++) {
        sum->compute_s[i] += add->compute_s[i];
        sum->tp_s[i] += add->tp_s[i];
        sum->cp_s[i] += add->cp_s[i];
        sum->ep_s[i] += add->ep_s[i];
    }
    sum->kept_bytes += add->kept_bytes;
    sum->kept_selective_bytes += add->kept_selective_bytes;
    sum->kept_full_bytes += add->kept_full_bytes;
    sum->offload_bytes += add->offload_bytes;
    sum->adapter_params += add->adapter_params;
    sum->selective_s += add->selective_s;
    sum->flop += add->flop;
}

void ops_price_mtp(const struct ops_context *context, struct layer_price *ret)
{
    const struct model *model = context->model;
    struct layer_price part;
    struct builder b;
    double hidden = (double)model->hidden;
    builder_init(&b, context, ret);
    ops_norm(&b, "mtp norm", hidden);
    ops_norm(&b, "mtp norm", hidden);
    builder_linear(&b, "mtp projection", b.rate, b.tokens, hidden / context->plan->tp, 2 * hidden);
    builder_finish(&b);
    ret->kept_bytes = ret->kept_selective_bytes = ret->kept_full_bytes = 4 * b.tokens_rank * hidden * b.bytes;
    for (int i = 0; i < model->n_mtp_layers; i++) {
        ops_price_layer(context, model->mtp_kind[i], &part);
        add_price(ret, &part);
        ret->working_bytes = fmax(ret->working_bytes, part.working_bytes);
    }
    ops_price_head(context, &part);
    add_price(ret, &part);
    /* a recomputed MTP module repeats its layer only */
    ret->full_s = ret->compute_s[PHASE_F] - part.compute_s[PHASE_F];
    ret->full_tp_s = ret->tp_s[PHASE_F] - part.tp_s[PHASE_F];
    ret->full_cp_s = ret->cp_s[PHASE_F];
    ret->full_ep_s = ret->ep_s[PHASE_F];
}

double ops_vocab_per_rank(const struct model *model, const struct plan *plan)
{
    return (double)plan_padded_vocab(plan, model) / plan->tp;
}

void ops_shard_layer(const struct model *model, const struct plan *plan, int kind, struct layer_shard *ret)
{
    struct layer_parameters p;
    model_layer_parameters(model, kind, &p);
    double kv_ways = fmin(plan->tp, (double)model->kv_heads);
    ret->dense = (double)(p.attention_tp + p.mlp_tp) / plan->tp + (double)p.attention_kv / kv_ways +
                 (double)(p.attention_rep + p.mlp_rep + p.router + p.norm);
    ret->expert = model->kinds[kind].moe ? (double)p.expert * (double)model->experts / plan->ep / plan->etp : 0;
}

double ops_shard_embedding(const struct model *model, const struct plan *plan)
{
    double rows = ops_vocab_per_rank(model, plan);
    if (model->learned_positions)
        rows += (double)(model->positions_assumed && plan->seq_len > model->position_rows ? plan->seq_len : model->position_rows);
    return rows * (double)model->hidden;
}

double ops_shard_head(const struct model *model, const struct plan *plan)
{
    return ops_vocab_per_rank(model, plan) * (double)model->hidden + (model->final_norm ? (double)model->hidden : 0);
}
