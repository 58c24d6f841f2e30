/* The ops of state-space mixers: Mamba-2 and gated delta nets.
 *
 * Input projection, causal convolution, chunked scan, gated norm, output projection. The scans are several kernels, each a
 * pass over its inputs and over one state of heads x head_dim x state per chunk (Dao and Gu 2024, section 6, chunks of 128
 * in Megatron-core and the released weights; delta nets: chunks of 64 in flash-linear-attention): priced by those bytes, at
 * the rate of a multiprocessor. Backward computes the states again: mamba_ssm's combined kernel and
 * flash-linear-attention keep the inputs alone. Heads, groups and states are cut by tp. */
#include "cost/ops_internal.h"

/* What one rank does per token, in elements. */
struct scan {
    double inner, keys, input, heads; /* values; keys and queries (B and C); input projection */
    double states;                    /* fp32 elements of the states between chunks */
};

static struct scan scan_of(const struct builder *b, enum layer_mixer mixer)
{
    const struct model *m = b->context->model;
    double tp = b->context->plan->tp, chunk = mixer == MIXER_MAMBA2 ? 128 : 64;
    struct scan s = {(double)model_ssm_inner(m) / tp, (double)model_ssm_keys(m) / tp, (double)model_ssm_input(m, mixer) / tp, (double)m->ssm_heads / tp, 0};
    s.states = s.inner * (double)m->ssm_state / chunk;
    return s;
}

/* Bytes of the scan's kernels forward. Mamba-2: chunk sums (dt), B C products, states of chunks (x, B; write), their running
 * sum (read, write), outputs (x, B, C, state; write). Delta net: norms of q and k, products and triangular solve (k; w, u),
 * states (w, u, k; u again), outputs (q, k, u, state; write). */
static double scan_bytes(const struct builder *b, const struct scan *s, enum layer_mixer mixer)
{
    double t = b->tokens, values = s->inner * b->bytes, keys = s->keys * b->bytes, states = 4 * s->states;
    if (mixer == MIXER_MAMBA2)
        return t * (3 * values + 3 * keys + 4 * states + 24 * s->heads);
    return t * (8 * values + 6 * keys + 2 * states + 24 * s->heads);
}

/* Bytes that one multiprocessor's scans get through a second: their matrix products, in tiles of one chunk and head, bind
 * them, not the memory, so that a faster memory does not help (Nemotron-H-56B on 32 to 2,048 H100, dgxc-benchmarking
 * 25.05; Nemotron 3 Nano and Super on B200, B300, GB200, GB300, Megatron-Bridge: 10.5 to 13.3 GB/s). */
static const double scan_bytes_per_s = 12e9;

static void scan(struct builder *b, const struct scan *s, enum layer_mixer mixer)
{
    double bytes = scan_bytes(b, s, mixer), launches = mixer == MIXER_MAMBA2 ? 5 : 8;
    double seconds = bytes / (scan_bytes_per_s * b->accelerator->sm_count);
    builder_op(b, "scan", OP_POINTWISE, PHASE_F, seconds, 0, bytes, launches);
    builder_op(b, "scan", OP_POINTWISE, PHASE_B, 3.5 * seconds, 0, 3.5 * bytes, launches);
}

void ops_mixer(struct builder *b, enum layer_mixer mixer)
{
    struct scan s = scan_of(b, mixer);
    double hidden = (double)b->context->model->hidden, t = b->tokens * b->bytes, convolved = s.inner + s.keys;
    builder_adapts(b, LORA_LINEAR_QKV);
    struct linear_times column = builder_linear(b, "mixer in", b->rate, b->tokens, s.input, hidden);
    builder_tp_enter(b, hidden, column);
    builder_pointwise(b, "convolution", 2 * convolved * t, 5 * convolved * t, 1);
    scan(b, &s, mixer);
    builder_pointwise(b, "gated norm", 3 * s.inner * t, 5 * s.inner * t, 1);
    builder_adapts(b, LORA_LINEAR_PROJ);
    struct linear_times row = builder_linear(b, "mixer out", b->rate, b->tokens, hidden, s.inner);
    builder_tp_leave(b, hidden, row);
    double kept = (s.input + s.inner) * t + (builder_keeps_input(b, LORA_LINEAR_PROJ) ? s.inner * b->tokens * b->input_bytes : 0);
    builder_keep(b, kept, kept);
    b->price->working_bytes = s.input * t + convolved * t + 4 * s.states * b->tokens;
}
