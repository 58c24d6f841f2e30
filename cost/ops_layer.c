/* The ops inside one transformer layer: attention, dense MLP, mixture of experts.
 *
 * Kept for backward (Korthikanti et al. 2022 section 4.1, counted op by op so that
 * GQA, SwiGLU, MLA and flash come out right): per token the inputs of every linear
 * and of every nonlinear op; flash keeps q, k, v, the output and 4 bytes per head
 * and token instead of the 5 s^2 bytes per head of the unfused core.
 * With the 8-bit recipes the inputs of linears are kept in 8 bit.
 * Selective recompute: with the unfused attention core Megatron repeats that core
 * (Korthikanti et al. 2022); with flash attention, which keeps no scores, it repeats
 * what is cheap: norms, activation functions and the latent up-projections
 * (Megatron-core's recompute modules layernorm, moe_act and mla_up_proj); the
 * per-layer-sharded stacks (torchtitan) keep every second GEMM output and the
 * attention output. */
#include <math.h>

#include "cost/collective.h"
#include "cost/kernel.h"
#include "cost/memory.h"
#include "cost/ops_internal.h"

/* Widths of q, k, v on one rank, elements per token. */
struct widths {
    double q, k, v, out;
    double heads, kv_heads;
};

static struct widths local_widths(const struct builder *b)
{
    const struct model *m = b->context->model;
    double tp = b->context->plan->tp;
    struct widths w = {.heads = (double)m->heads / tp, .kv_heads = fmax(1, (double)m->kv_heads / tp)};
    w.q = w.heads * (double)m->head_dim;
    w.k = w.kv_heads * (double)m->head_dim;
    w.v = w.kv_heads * (double)m->v_head_dim;
    w.out = w.heads * (double)m->v_head_dim;
    return w;
}

/* Rows and keys of a flash kernel's tile: with a window, a tile of queries reads whole tiles of keys. */
#define WINDOW_TILE 128

static struct attention_shape core_shape(const struct builder *b, const struct widths *w, int kind)
{
    const struct model *m = b->context->model;
    const struct plan *plan = b->context->plan;
    bool ulysses = plan->context_parallel == CP_ULYSSES && plan->cp > 1;
    double seq = (double)plan->seq_len;
    struct attention_shape s = {.batch = plan->micro_batch, .heads = w->heads, .kv_heads = w->kv_heads, .queries = seq / plan->cp, .keys = seq};
    if (ulysses) {
        s.heads /= plan->cp;
        s.kv_heads = fmax(1, s.kv_heads / plan->cp);
        s.queries = seq;
    }
    s.span = model_layer_span(m, kind, plan->seq_len);
    if (m->kinds[kind].window > 0 && !m->kinds[kind].chunked) /* tiles at both edges of the band */
        s.span = fmin(s.span + WINDOW_TILE, model_attention_span(plan->seq_len, 0));
    s.qk_dim = (double)m->head_dim;
    s.v_dim = (double)m->v_head_dim;
    return s;
}

/* Ring: cp-1 exchanges of this rank's k and v, each beside one block of attention;
 * backward moves k, v and their gradients. Ulysses: all-to-alls of q, k, v, out. */
static void context_parallel(struct builder *b, const struct widths *w, double forward_s, double backward_s)
{
    const struct ops_context *c = b->context;
    const struct plan *plan = c->plan;
    if (plan->cp == 1)
        return;
    double cp = plan->cp, kv_bytes = b->tokens * (w->k + w->v) * b->bytes;
    if (plan->context_parallel == CP_ULYSSES) {
        double all_bytes = b->tokens * (w->q + w->k + w->v + w->out) * b->bytes;
        double t = collective_s(c->cluster, &c->cp, COLLECTIVE_ALL_TO_ALL, all_bytes) / c->stack->collective_speed;
        b->price->cp_s[PHASE_F] += t;
        b->price->cp_s[PHASE_B] += t;
        return;
    }
    struct span hop = c->cp;
    double f = collective_s(c->cluster, &hop, COLLECTIVE_P2P, kv_bytes), back = collective_s(c->cluster, &hop, COLLECTIVE_P2P, 2 * kv_bytes);
    double slow = c->stack->overlap_slowdown;
    f /= c->stack->collective_speed;
    back /= c->stack->collective_speed;
    b->price->cp_s[PHASE_F] += (cp - 1) * (fmax(0, f - forward_s / cp) + slow * fmin(f, forward_s / cp));
    b->price->cp_s[PHASE_B] += (cp - 1) * (fmax(0, back - backward_s / cp) + slow * fmin(back, backward_s / cp));
}

/* Passes over the scores, bytes and launches: the fused kernel reads below the diagonal and writes all; without it the
 * scores are cast to fp32, scaled, masked, normalized and cast back, each a pass. Dropout's kernel is another. */
struct score_passes {
    double forward_bytes, backward_bytes, forward_launches, backward_launches;
};

static struct score_passes score_passes(const struct builder *b, const struct attention_shape *s)
{
    double rows = s->batch * s->heads * s->queries, scores = rows * s->keys, seen = rows * s->span;
    /* Megatron-LM's kernel works on 4 (sequence, head) pairs at a time and refuses other numbers (FusedScaleMaskSoftmax) */
    bool fused = b->context->plan->attention == ATTENTION_UNFUSED && fmod(s->batch * s->heads, 4) == 0;
    struct score_passes p = {2 * seen + 2 * scores, 4 * seen + 2 * scores, 1, 1};
    if (!fused)
        p = (struct score_passes){33 * scores, 40 * scores, 5, 5};
    if (b->context->plan->dropout)
        p = (struct score_passes){p.forward_bytes + 5 * scores, p.backward_bytes + 5 * scores, p.forward_launches + 1, p.backward_launches + 1};
    return p;
}

/* softmax(q k^T) v without a fused kernel: two batched GEMMs and passes over the s x s scores. */
static void unfused_core(struct builder *b, const struct attention_shape *s, double *ret_forward, double *ret_backward)
{
    const struct accelerator *a = b->accelerator;
    double scores = s->batch * s->heads * s->queries * s->keys, rows = s->batch * s->heads * s->queries;
    double flop = 2 * scores * (s->qk_dim + s->v_dim);
    struct score_passes passes = score_passes(b, s);
    double moved = kernel_pointwise_s(a, b->bytes * scores); /* the scores, written by the first product, read by the second */
    double gemms = fmax(moved, kernel_gemm_s(a, b->plain_rate, rows, s->keys, s->qk_dim)) + fmax(moved, kernel_gemm_s(a, b->plain_rate, rows, s->v_dim, s->keys));
    double forward = gemms + kernel_pointwise_s(a, passes.forward_bytes), backward = 2 * gemms + kernel_pointwise_s(a, passes.backward_bytes);
    forward /= b->context->stack->attention_speed;
    backward /= b->context->stack->attention_speed;
    builder_op(b, "attention core", OP_ATTENTION, PHASE_F, forward, flop, 0, 2 + passes.forward_launches);
    builder_op(b, "attention core", OP_ATTENTION, PHASE_B, backward, 2 * flop, 0, 4 + passes.backward_launches);
    /* softmax's output; with dropout its mask and its output too (Korthikanti et al. 2022: 5 bytes) */
    double kept = ((b->context->plan->attention == ATTENTION_EAGER ? b->context->stack->score_kept_bytes : 2) + (b->context->plan->dropout ? 3 : 0)) * scores;
    bool repeats = !b->context->plan->recompute_modules || builder_repeats(b, MODULE_CORE_ATTN);
    builder_keep(b, kept, repeats ? 0 : kept);
    b->price->selective_s += repeats ? forward : 0;
    b->price->working_bytes = fmax(b->price->working_bytes, 4 * scores); /* gradients of the softmax's output and input */
    *ret_forward = forward;
    *ret_backward = backward;
}

/* Ring attention runs one kernel per block of keys, half of each block masked on
 * average, and merges the partial outputs (fp32 read, read, write). */
static double core_seconds(const struct builder *b, const struct attention_shape *s)
{
    const struct plan *plan = b->context->plan;
    if (plan->cp == 1 || plan->context_parallel == CP_ULYSSES)
        return kernel_attention_s(b->accelerator, s);
    struct attention_shape block = *s;
    block.keys = s->keys / plan->cp;
    block.span = s->span / plan->cp;
    double merge = kernel_pointwise_s(b->accelerator, 12 * s->batch * s->heads * s->queries * s->v_dim);
    return plan->cp * kernel_attention_s(b->accelerator, &block) + (plan->cp - 1) * merge;
}

/* FlashAttention's first version / its second: "around 2x" forward and backward on A100 (Dao 2023, arXiv:2307.08691, figures 4 to 6). */
#define FLASH1_SPEED 0.5

static double flash_speed(const struct builder *b)
{
    const struct stack *stack = b->context->stack;
    const double *peak = b->accelerator->peak_flop_per_s;
    bool first = b->context->plan->attention == ATTENTION_FLASH1;
    double products = peak[kernel_rate(b->accelerator, b->plain_rate)] / peak[RATE_16BIT]; /* 1 but for fp32 */
    return products * stack->attention_speed * (stack->flash2 || first ? b->accelerator->flash2_speed : 1) * (first ? FLASH1_SPEED : 1);
}

static bool has_windows(const struct model *m)
{
    for (int i = 0; i < m->n_kinds; i++)
        if (m->kinds[i].window > 0)
            return true;
    return false;
}

/* Attention in 8 bit / in 16: the products run at twice the rate, softmax as before (cuDNN on Blackwell; not for models
 * with windows, whose kernels are those of 16 bit). */
#define FP8_ATTENTION_SPEED 1.3

static void fused_core(struct builder *b, const struct attention_shape *s, double *ret_forward, double *ret_backward)
{
    const struct plan *plan = b->context->plan;
    double forward = core_seconds(b, s) / flash_speed(b);
    if (plan->fp8_attention && precision_is_fp8(plan->precision) && !has_windows(b->context->model))
        forward /= FP8_ATTENTION_SPEED;
    double backward = forward * kernel_attention_backward(b->accelerator, s);
    double flop = 2 * s->batch * s->heads * s->queries * s->span * (s->qk_dim + s->v_dim);
    builder_op(b, "attention core", OP_ATTENTION, PHASE_F, forward, flop, 0, 1);
    builder_op(b, "attention core", OP_ATTENTION, PHASE_B, backward, 2.5 * flop, 0, 3);
    *ret_forward = forward;
    *ret_backward = backward;
}

static void attention_core(struct builder *b, const struct widths *w, int kind)
{
    struct attention_shape s = core_shape(b, w, kind);
    const struct model *m = b->context->model;
    const struct plan *plan = b->context->plan;
    double lse = b->tokens * w->heads * 4, t = b->tokens * b->bytes, forward, backward;
    bool unfused = plan->attention >= ATTENTION_UNFUSED;
    if (unfused)
        unfused_core(b, &s, &forward, &backward);
    else
        fused_core(b, &s, &forward, &backward);
    if (m->index_heads > 0) { /* the indexer scores every key (DeepSeek-V3.2) */
        double scores = b->tokens * model_attention_span(plan->seq_len, 0);
        double index_flop = 2 * scores * (double)(m->index_heads * m->index_head_dim);
        double index_s = index_flop / (b->accelerator->peak_flop_per_s[RATE_16BIT] * 0.5);
        builder_op(b, "sparse indexer", OP_ATTENTION, PHASE_F, index_s, index_flop, 0, 4);
        builder_op(b, "sparse indexer", OP_ATTENTION, PHASE_B, 2 * index_s, 2 * index_flop, 0, 6);
    }
    context_parallel(b, w, forward, backward);
    if (unfused) {
        builder_keep(b, t * w->out, t * w->out);
        return;
    }
    double copy = b->input_bytes < b->bytes ? b->tokens * w->out * b->input_bytes : 0; /* beside the one that flash needs */
    if (plan->micro_batch > 1 && !b->context->stack->sharded_per_layer && !b->context->stack->counted_buffers) /* flash has the batch outside, Megatron's linears the sequence */
        copy = t * w->out;
    builder_keep(b, t * w->out + lse + copy, t * w->out + lse + copy);
}

/* DeepSeek-V2's latent attention: down-projections on every rank, up-projections
 * over heads; k gets the shared rotary part copied to every head. */
static struct linear_times latent_projections(struct builder *b, const struct widths *w)
{
    const struct model *m = b->context->model;
    double hidden = (double)m->hidden, q_lora = (double)m->q_lora, kv_lora = (double)m->kv_lora, rope = (double)m->qk_rope;
    double t = b->tokens * b->bytes, kv_up = w->heads * (double)(m->qk_nope + m->v_head_dim);
    struct linear_times up, kv;
    if (q_lora > 0) {
        builder_linear(b, "q down", b->rate, b->tokens_rank, q_lora, hidden);
        ops_norm(b, "q norm", q_lora);
        up = builder_linear(b, "q up", b->rate, b->tokens, w->q, q_lora);
    } else {
        up = builder_linear(b, "q", b->rate, b->tokens, w->q, hidden);
    }
    builder_linear(b, "kv down", b->rate, b->tokens_rank, kv_lora + rope, hidden);
    ops_norm(b, "kv norm", kv_lora);
    kv = builder_linear(b, "kv up", b->rate, b->tokens, kv_up, kv_lora);
    /* fused: the rotary part of q in place; k from its latent part and the shared rotary one */
    double rotary_bytes = t * w->heads * (2 * rope + (double)(m->qk_nope + m->head_dim));
    builder_pointwise(b, "rotary, concatenation", rotary_bytes, rotary_bytes, 2);
    double latents = b->tokens_rank * (q_lora + kv_lora) * (b->bytes + b->input_bytes);
    builder_keep(b, latents, latents);
    for (int i = 0; i < PHASES; i++)
        up.s[i] += kv.s[i];
    return up;
}

/* A norm of every head gives a block to a row of head_dim elements and stays far from the bandwidth: at 128 it takes 3.9
 * times as long as a kernel made for such rows (sgl-project/sglang#13189, H20) and 5.8 times as long as a norm of the same
 * bytes over the hidden size (flashinfer-ai/flashinfer#2396, B200). */
static double head_norm(const struct model *m)
{
    return fmax(1, 4 * 128 / (double)m->head_dim);
}

void ops_attention(struct builder *b, int kind)
{
    const struct model *m = b->context->model;
    bool sharded = b->context->stack->sharded_per_layer;
    double hidden = (double)m->hidden, t = b->tokens * b->bytes;
    struct widths w = local_widths(b);
    struct linear_times column;
    double enter = hidden;
    builder_adapts(b, LORA_LINEAR_QKV);
    if (m->mla) {
        double before = b->device_s[PHASE_F];
        column = latent_projections(b, &w);
        enter = (double)(m->q_lora + m->kv_lora);
        bool repeats = builder_repeats(b, MODULE_MLA_UP_PROJ);
        builder_keep(b, t * (w.q + w.k + w.v), repeats ? 0 : t * (w.q + w.k + w.v));
        if (repeats)
            b->price->selective_s += (b->device_s[PHASE_F] - before) * 0.8; /* all but the down-projections */
    } else {
        double gate = m->attention_gate ? w.q : 0;
        column = builder_linear(b, "qkv", b->rate, b->tokens, w.q + gate + w.k + w.v, hidden);
        if (m->qk_norm)
            builder_pointwise(b, "q/k norm", head_norm(m) * 2 * t * (w.q + w.k), head_norm(m) * 3 * t * (w.q + w.k), 2);
        if (!m->learned_positions && !m->alibi)
            builder_pointwise(b, "rotary", 2 * t * (w.q + w.k), 2 * t * (w.q + w.k), 2);
        double normed = m->qk_norm ? t * (w.q + w.k) : 0;
        builder_keep(b, t * (w.q + w.k + w.v) + normed + t * gate, sharded ? t * (w.q + w.v) : t * (w.q + w.k + w.v) + normed + t * gate);
    }
    builder_tp_enter(b, enter, column);
    builder_offload(b, OFFLOAD_CORE_ATTN, t * (w.q + w.k + w.v));
    builder_offload(b, OFFLOAD_ATTN_PROJ, t * w.out);
    attention_core(b, &w, kind);
    builder_adapts(b, LORA_LINEAR_PROJ);
    struct linear_times row = builder_linear(b, "attention out", b->rate, b->tokens, hidden, w.out);
    builder_tp_leave(b, hidden, row);
    b->price->working_bytes = fmax(b->price->working_bytes, t * (2 * w.q + w.k + w.v + w.out));
    if (sharded) /* every second GEMM is repeated, and what lies between */
        b->price->selective_s += row.s[PHASE_F] + column.s[PHASE_F] * w.k / (w.q + w.k + w.v);
}

/* Bytes of one kept element of an activation function's input under selective
 * recompute: DeepSeek-V3's fp8 recipe keeps it in 8 bit (arXiv 2412.19437 section 3.3.3). */
static double gate_bytes(const struct builder *b)
{
    return b->context->plan->precision == PRECISION_FP8_BLOCK ? 1 : b->bytes;
}

void ops_mlp(struct builder *b, double ffn, enum recompute_module module)
{
    const struct model *m = b->context->model;
    bool sharded = b->context->stack->sharded_per_layer;
    double hidden = (double)m->hidden, inner = ffn / b->context->plan->tp, t = b->tokens * b->bytes, gates = m->gated ? 2 : 1;
    double start = b->device_s[PHASE_F];
    builder_adapts(b, LORA_LINEAR_FC1);
    struct linear_times column = builder_linear(b, m->gated ? "gate, up" : "up", b->rate, b->tokens, gates * inner, hidden);
    builder_tp_enter(b, hidden, column);
    double before = b->device_s[PHASE_F];
    builder_pointwise(b, "activation", (gates + 1) * inner * t, (2 * gates + 1) * inner * t, m->gated && b->context->stack->pointwise > 1.5 ? 2 : 1);
    bool whole = builder_repeats(b, module), cheap = b->repeats_cheap && !b->context->plan->recompute_modules;
    b->price->selective_s += whole ? b->device_s[PHASE_F] - start : cheap ? b->device_s[PHASE_F] - before : 0;
    builder_adapts(b, LORA_LINEAR_FC2);
    struct linear_times row = builder_linear(b, "down", b->rate, b->tokens, hidden, inner);
    builder_tp_leave(b, hidden, row);
    double output = builder_keeps_input(b, LORA_LINEAR_FC2) ? inner * b->tokens * b->input_bytes : 0, kept = gates * inner * t + output;
    if (m->gated && b->context->stack->eager_activation)
        kept += inner * t;
    double sharded_kept = gates * 0.5 * inner * t + b->tokens_rank * hidden * b->bytes;
    builder_keep(b, kept, whole ? 0 : sharded ? sharded_kept : cheap ? gates * inner * b->tokens * gate_bytes(b) : kept);
    /* gradients of the activation's input, of the layer's output and input; what the activation gave is freed by then */
    b->price->working_bytes = fmax(b->price->working_bytes, gates * inner * t + 2 * b->tokens_rank * hidden * b->bytes);
    if (sharded)
        b->price->selective_s += column.s[PHASE_F] / 2 + kernel_pointwise_s(b->accelerator, (gates + 1) * inner * t + 20 * b->tokens_rank * hidden);
}

/* Of an element cast to 8 bit: read in 16, written along rows and along columns (their wgrad has no transposed read). */
#define EXPERT_CAST_BYTES 4

/* Grouped GEMMs of the local experts: F, dgrad, wgrad. Transformer Engine launches one GEMM per expert from a loop in
 * C++, some ten in the time of an operator of Python's, and with the 8-bit recipes as many quantizations; fused
 * (cuDNN's grouped MLP) there is one kernel, which also casts what it hands on. hands_on: its output, not its input,
 * stays inside. */
static void experts(struct builder *b, const char *name, double local, double tokens, double in, double out, bool hands_on)
{
    const struct accelerator *a = b->accelerator;
    double flop = 2 * local * tokens * in * out, speed = b->context->stack->gemm_speed;
    double forward = kernel_grouped_gemm_s(a, b->rate, local, tokens, in, out) / speed;
    double wgrad = kernel_grouped_wgrad_s(a, b->rate, local, tokens, in, out, memory_gradient_bytes(b->context->plan, b->context->stack)) / speed;
    if (b->context->stack->counted_buffers) /* planexec measured its products with the gradients they are added to */
        wgrad = forward * (a->expert[b->rate].wgrad > 0 ? a->expert[b->rate].wgrad : 1);
    if (b->context->plan->precision == PRECISION_FP8_BLOCK)
        wgrad *= FP8_BLOCK_WGRAD;
    bool fused = b->context->plan->fused_grouped_mlp;
    double launches = fused ? 1 : 2 + 0.1 * local * (precision_is_fp8(b->context->plan->precision) ? 2 : 1);
    if (b->rate == RATE_FP8 || b->rate == RATE_FP4)
        builder_move(b, "expert casts", fused && !hands_on ? 0 : EXPERT_CAST_BYTES * local * tokens * in,
                     fused && hands_on ? 0 : EXPERT_CAST_BYTES * local * tokens * out, fused ? 0.5 : 1);
    for (int phase = 0; phase < (b->context->plan->lora_rank == 0 ? PHASES : PHASE_W); phase++) {
        builder_op(b, name, OP_EXPERTS, phase, phase == PHASE_W ? wgrad : forward, flop, 0, launches);
        builder_shape(b, tokens, out, in, local);
    }
}

/* What DeepEP's kernels on 20 SMs send over NVLink / NCCL's all-to-all: 4096 tokens, 7168 wide, 8 of 256 experts on 8 H100
 * take 491 us to dispatch in 8 bit, 972 us to combine (aiconfigurator 095f58a). HybridEP keeps up with NCCL. */
#define DEEPEP_LINK_SHARE 0.92

/* Multiprocessors that compute lacks beside an exchange: 20 of 132 by default (DeepEP), 32 of 148 in Megatron-Bridge's
 * recipes (HybridEP). */
#define DEEPEP_SM_SHARE 0.15
#define HYBRIDEP_SM_SHARE 0.22

static struct routing routing_of(const struct model *m)
{
    return (struct routing){.chosen = (int)m->experts_per_token, .groups = (int)m->n_group, .limit = (int)m->topk_group};
}

/* Rows that a pass over memory reads and writes on either side of the experts. All-to-all: copies into the order of
 * ranks and, after it, of experts; DeepEP and HybridEP: what arrived into the order of experts. */
static double permuted_rows(const struct ops_context *c, double tokens)
{
    double pairs = tokens * (double)c->model->experts_per_token;
    struct routing routing = routing_of(c->model);
    switch (c->plan->moe_dispatcher) {
    case DISPATCHER_ALL_TO_ALL: return tokens + (c->plan->ep > 1 ? 3 : 1) * pairs;
    default: return tokens * routing_places(&routing, c->plan->ep) + pairs;
    }
}

/* Dispatch and combine, forward and again backward. With overlap.ep the forward of one micro-batch runs beside the
 * backward of another: each of the four has a quarter of the layer's compute beside it. */
static void dispatch(struct builder *b, double tokens, double row_elements)
{
    const struct ops_context *c = b->context;
    const struct model *m = c->model;
    struct routing routing = routing_of(m);
    enum moe_dispatcher kind = c->plan->moe_dispatcher;
    double row = row_elements * b->bytes;
    double copies = tokens * row * (double)m->experts_per_token;
    double t = kind == DISPATCHER_ALL_TO_ALL
                   ? collective_s(c->cluster, &c->ep, COLLECTIVE_ALL_TO_ALL, copies)
                   : collective_dispatch_s(c->cluster, &c->ep, tokens, row, &routing, kind == DISPATCHER_FLEX ? DEEPEP_LINK_SHARE : 1);
    t /= c->stack->collective_speed;
    if (kind == DISPATCHER_HYBRIDEP) /* part of the exchange */
        t += kernel_pointwise_s(b->accelerator, permuted_rows(c, tokens) * row);
    double cover = (b->device_s[PHASE_F] + b->device_s[PHASE_B] + b->device_s[PHASE_W]) / 4;
    double exposed = c->plan->overlap.ep ? beside_cover(t, cover, kind == DISPATCHER_HYBRIDEP ? HYBRIDEP_SM_SHARE : DEEPEP_SM_SHARE) : t;
    builder_ep(b, "dispatch", PHASE_F, exposed, copies);
    builder_ep(b, "combine", PHASE_F, exposed, copies);
    builder_ep(b, "combine", PHASE_B, exposed, copies);
    builder_ep(b, "dispatch", PHASE_B, exposed, copies);
}

/* Biases of routed experts. Of gate and up they are added in the GEMM, and summed in backward. Of down Megatron-core adds
 * bias times the routing weight expert by expert in fp32 and joins the pieces: per element F writes the product (4
 * bytes), adds it (10), joins (8) and casts (6); B casts (6), multiplies and sums for the bias (12) and for the weight (12). */
static void expert_biases(struct builder *b, double pairs, double gates_inner, double hidden, double local)
{
    double joined = pairs * hidden;
    if (b->context->plan->fused_grouped_mlp) { /* the kernels add them; sums remain */
        builder_move(b, "expert biases", 0, pairs * (gates_inner + hidden) * b->bytes, 1);
        return;
    }
    builder_move(b, "expert biases", 28 * joined, 30 * joined + pairs * gates_inner * b->bytes, 2 + 0.1 * local);
}

/* planexec's router reads in 16 bit what linears in 8 bits do not keep. */
static double router_input(const struct builder *b, const struct layer_kind *k)
{
    double elements = b->tokens_rank * (double)b->context->model->hidden;
    return b->input_bytes == b->bytes ? 0 : elements * (k->shared_ffn > 0 ? b->bytes : b->bytes - b->input_bytes);
}

/* Bytes of a row: of gradients of the experts' output and input, of the activation's input and output; in 8 bits two
 * copies of the output's, then one, and two of the activation's input's. */
static double expert_gradients(const struct builder *b, double row, double input, double output)
{
    double all = 2 * row + input + output;
    return b->input_bytes == b->bytes ? all : fmax(all + row, all - 0.5 * row + input);
}

void ops_moe(struct builder *b, int kind)
{
    const struct ops_context *c = b->context;
    const struct model *m = c->model;
    const struct layer_kind *k = &m->kinds[kind];
    const struct plan *plan = c->plan;
    double hidden = (double)m->hidden, topk = (double)m->experts_per_token, gates = m->gated ? 2 : 1;
    double tokens = b->tokens / (plan->tp > 1 ? plan->tp : 1); /* routed tokens are split over tp (sequence parallel) */
    double pairs = tokens * topk, etp = plan->etp, local = (double)m->experts / plan->ep, inner = (double)k->ffn / etp;
    double width = (double)model_expert_width(m), row = width * b->bytes;
    builder_adapts(b, LORA_MODULES);
    bool graphed = b->graphed;
    b->graphed = plan->cuda_graph != CUDA_GRAPH_NONE;
    builder_linear(b, "router", b->plain_rate, tokens, (double)m->experts, hidden);
    if (m->moe_latent > 0) {
        builder_linear(b, "latent in", b->rate, tokens, width, hidden);
        builder_linear(b, "latent out", b->rate, tokens, hidden, width);
        builder_keep(b, 2 * tokens * width * b->input_bytes, 2 * tokens * width * b->input_bytes);
    }
    double permute = c->stack->permute, sort = plan->moe_dispatcher == DISPATCHER_HYBRIDEP ? 0 : permute * permuted_rows(c, tokens) * row;
    builder_move(b, "top-k", permute * tokens * (double)m->experts * 24, permute * tokens * (double)m->experts * 16, 8);
    b->graphed = plan->cuda_graph == CUDA_GRAPH_FULL; /* partial graphs leave out what depends on the routing */
    if (sort > 0)
        builder_move(b, "permute", sort, sort, 3);
    double before = b->device_s[PHASE_F];
    double per_expert = pairs * etp / local;
    experts(b, "experts gate, up", local, per_expert, width, gates * inner, true);
    double activation = b->device_s[PHASE_F];
    if (!plan->fused_grouped_mlp)
        builder_pointwise(b, "experts activation", pairs * etp * (gates + 1) * inner * b->bytes, pairs * etp * (2 * gates + 1) * inner * b->bytes, 2);
    bool repeats = builder_repeats(b, MODULE_MOE_ACT) && !c->stack->counted_buffers; /* planexec repeats dense activations alone */
    b->price->selective_s += repeats ? b->device_s[PHASE_F] - activation : 0;
    experts(b, "experts down", local, per_expert, inner, width, false);
    if (sort > 0)
        builder_move(b, "unpermute", sort, sort, 3);
    if (m->expert_bias)
        expert_biases(b, pairs * etp, gates * inner, width, local);
    dispatch(b, tokens, width);
    b->graphed = graphed;
    if (plan->etp > 1) {
        double bytes = pairs * etp * row;
        double t = (collective_s(c->cluster, &c->etp, COLLECTIVE_ALL_GATHER, bytes) + collective_s(c->cluster, &c->etp, COLLECTIVE_REDUCE_SCATTER, bytes)) / c->stack->collective_speed;
        b->price->tp_s[PHASE_F] += t;
        b->price->tp_s[PHASE_B] += t;
    }
    if (k->shared_ffn > 0)
        ops_mlp(b, (double)k->shared_ffn, MODULE_SHARED_EXPERTS);
    bool trains = plan->lora_rank == 0; /* experts have no adapters */
    double output = trains ? pairs * etp * inner * b->input_bytes : 0;
    double kept = pairs * etp * (gates * inner * b->bytes + (trains ? width * b->input_bytes : 0)) + tokens * (double)m->experts * 4;
    if (!m->gated) /* fused gated activations take the routing probability along; others keep their output before it too */
        output += pairs * etp * inner * b->bytes;
    double share = plan->tp > 1 && !plan->sequence_parallel ? tokens * row : 0; /* this rank's rows, cut out */
    if (c->stack->counted_buffers) /* outputs as they came home; per choice: its number, weight, token, weight and number as sent, place */
        kept += pairs * etp * (row + 4 * 4) + pairs * 2 * 4 + share + router_input(b, k);
    double cheap = kept - pairs * etp * gates * inner * (b->bytes - gate_bytes(b));
    builder_offload(b, OFFLOAD_EXPERT_FC1, pairs * etp * width * b->input_bytes);
    builder_offload(b, OFFLOAD_MOE_ACT, pairs * etp * gates * inner * b->bytes);
    if (builder_repeats(b, MODULE_MOE)) {
        builder_keep(b, kept + output, 0);
        b->price->selective_s += b->device_s[PHASE_F] - before;
    } else {
        builder_keep(b, kept + output, repeats ? cheap : kept + output);
    }
    if (c->stack->counted_buffers && builder_repeats(b, MODULE_LAYERNORM)) /* the router holds the norm's output */
        builder_keep(b, 0, b->tokens_rank * (double)m->hidden * b->bytes - router_input(b, k));
    double working = pairs * etp * gates * inner * b->bytes + 2 * pairs * row;
    if (c->stack->counted_buffers) /* dy and dx; the experts' gradients */
        working = b->tokens_rank * row + share + tokens * row + pairs * etp * expert_gradients(b, row, gates * inner * b->bytes, inner * b->bytes);
    b->price->working_bytes = fmax(b->price->working_bytes, working);
}
