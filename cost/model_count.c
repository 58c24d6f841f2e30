/* Parameters and FLOPs of a model, exact.
 *
 * Claim: every weight tensor of the family's own code, counted once.
 *   attention  q h*(heads*d), k and v h*(kv*d), o (heads*d_v)*h
 *   MLA        q h*q_lora + q_lora + q_lora*heads*(nope+rope), kv h*(kv_lora+rope) + kv_lora
 *              + kv_lora*heads*(nope+d_v), o heads*d_v*h   (DeepSeek-V2, arXiv 2405.04434, section 2.1)
 *   indexer    q_lora*H_I*d_I, h*d_I + LayerNorm 2*d_I, h*H_I    (DeepSeek-V3.2-Exp report, section 2.1)
 *   MLP        gated 3*h*ffn, else 2*h*ffn; router h*experts
 *   Mamba-2    input h*(2d + 2*groups*state + H), convolution (d + 2*groups*state)*(taps + bias), A, D and step bias 3H,
 *              gated norm d, output d*h; d = H*P   (modeling_nemotron_h.py; Dao and Gu 2024, arXiv 2405.21060)
 *   delta net  input h*(2*keys + 2d + 2H), convolution (2*keys + d)*taps, A and step bias 2H, norm P, output d*h
 *              (modeling_qwen3_next.py; Yang et al. 2024, arXiv 2412.06464)
 *   LatentMoE  experts between h_latent and ffn, two projections h*h_latent
 *   MTP        projection 2h*h, three norms, one layer; embedding and head are shared (arXiv 2412.19437, section 2.2)
 * FLOPs of a token: 2 per weight of every GEMM that it passes (head included,
 * table lookups 0, biases and norms not), plus 2*heads*(d+d_v) per key that a
 * query sees, on average over a causal sequence; Mamba-2 7*d*state for its scan (as Megatron-LM counts), a delta net
 * 6*d*key width (erase, write, read of its state). Training = 3 x forward.
 * Left out: softmax, activations, rotary, norms (time, but no tensor FLOPs). */
#include "cost/model.h"

#include <math.h>

#include "cost/model_internal.h"

static int64_t norm_parameters(const struct model *model)
{
    return model->norm_bias ? 2 * model->hidden : model->hidden;
}

/* Weights of attention's GEMMs by the way they are sharded; no biases, no norms. */
struct attention_weights {
    int64_t tp, kv, rep;
};

static struct attention_weights mixer_weights(const struct model *model, enum layer_mixer mixer)
{
    int64_t h = model->hidden, heads = model->heads;
    struct attention_weights w = {0, 0, 0};
    if (mixer == MIXER_NONE)
        return w;
    if (mixer != MIXER_ATTENTION) {
        w.tp = h * model_ssm_input(model, mixer) + model_ssm_inner(model) * h;
        return w;
    }
    if (model->mla) {
        int64_t q = heads * model->head_dim;
        w.rep = h * (model->kv_lora + model->qk_rope);
        w.tp = model->kv_lora * heads * (model->qk_nope + model->v_head_dim) + heads * model->v_head_dim * h;
        w.rep += model->q_lora > 0 ? h * model->q_lora : 0;
        w.tp += model->q_lora > 0 ? model->q_lora * q : h * q;
        if (model->index_heads > 0)
            w.rep += (model->q_lora > 0 ? model->q_lora : h) * model->index_heads * model->index_head_dim +
                     h * model->index_head_dim + h * model->index_heads;
        return w;
    }
    int64_t q = h * heads * model->head_dim;
    w.tp = (model->attention_gate ? 2 * q : q) + heads * model->v_head_dim * h;
    w.kv = h * model->kv_heads * (model->head_dim + model->v_head_dim);
    return w;
}

/* Convolution, A, D and step biases, the norm before the output projection. */
static void add_ssm_vectors(const struct model *model, enum layer_mixer mixer, struct layer_parameters *p)
{
    int64_t inner = model_ssm_inner(model), convolved = inner + model_ssm_keys(model);
    p->attention_tp += convolved * (model->ssm_conv + model->ssm_conv_bias);
    p->attention_tp += mixer == MIXER_MAMBA2 ? 3 * model->ssm_heads + inner : 2 * model->ssm_heads;
    p->attention_rep += mixer == MIXER_MAMBA2 ? 0 : model->ssm_head_dim;
}

static void add_attention_vectors(const struct model *model, struct layer_parameters *p)
{
    int64_t q = model->heads * model->head_dim, kv = model->kv_heads * model->head_dim;
    if (model->mla) {
        p->attention_rep += model->kv_lora + model->q_lora; /* norms of the latents */
        p->attention_rep += model->qkv_bias ? model->q_lora + model->kv_lora + model->qk_rope : 0;
        p->attention_rep += model->index_heads > 0 ? 2 * model->index_head_dim : 0;
    } else {
        p->attention_tp += model->qkv_bias ? (model->attention_gate ? 2 * q : q) : 0;
        p->attention_kv += model->qkv_bias ? 2 * kv : 0;
        if (model->qk_norm_full)
            p->attention_rep += q + kv;
        else if (model->qk_norm)
            p->attention_rep += 2 * model->head_dim;
    }
    p->attention_tp += model->attention_sinks ? model->heads : 0;
    p->attention_rep += model->out_bias ? model->hidden : 0;
}

void model_layer_parameters(const struct model *model, int kind, struct layer_parameters *ret)
{
    const struct layer_kind *k = &model->kinds[kind];
    int64_t h = model->hidden, inputs = model->gated ? 2 : 1;
    struct attention_weights w = mixer_weights(model, k->mixer);
    struct layer_parameters p = {.attention_tp = w.tp, .attention_kv = w.kv, .attention_rep = w.rep};
    if (k->mixer == MIXER_ATTENTION)
        add_attention_vectors(model, &p);
    else if (k->mixer != MIXER_NONE)
        add_ssm_vectors(model, k->mixer, &p);
    int64_t dense = k->moe ? k->shared_ffn : k->ffn;
    p.mlp_tp = (inputs + 1) * h * dense + (model->mlp_bias ? inputs * dense : 0);
    p.mlp_rep = (model->mlp_bias && dense > 0 ? h : 0) + (k->shared_gate ? h : 0);
    if (k->moe) {
        int64_t width = model_expert_width(model);
        p.expert = (inputs + 1) * width * k->ffn + (model->expert_bias ? inputs * k->ffn + width : 0);
        p.mlp_rep += 2 * h * model->moe_latent;
        p.router = h * model->experts + (model->router_bias ? model->experts : 0);
    }
    p.norm = model->norms_per_layer * norm_parameters(model);
    *ret = p;
}

static int64_t layer_total(const struct layer_parameters *p, int64_t experts)
{
    return p->attention_tp + p->attention_kv + p->attention_rep + p->mlp_tp + p->mlp_rep + p->router + p->norm +
           experts * p->expert;
}

int64_t model_mtp_parameters(const struct model *model)
{
    int64_t h = model->hidden, total = 2 * h * h + 3 * norm_parameters(model);
    for (int i = 0; i < model->n_mtp_layers; i++) {
        struct layer_parameters p;
        model_layer_parameters(model, model->mtp_kind[i], &p);
        total += layer_total(&p, model->kinds[model->mtp_kind[i]].moe ? model->experts : 0);
    }
    return total;
}

void model_count_parameters(const struct model *model, struct model_parameters *ret)
{
    int64_t h = model->hidden;
    struct model_parameters p = {.embedding = model->vocab * h};
    p.embedding += model->learned_positions ? model->position_rows * h : 0;
    p.head = (model->tied ? 0 : model->vocab * h) + (model->head_bias ? model->vocab : 0);
    p.norm = (model->final_norm + model->embedding_norm) * norm_parameters(model);
    int64_t idle = 0; /* experts that one token does not pass */
    for (int i = 0; i < model->n_kinds; i++) {
        struct layer_parameters layer;
        int64_t n = model->kinds[i].layers, experts = model->kinds[i].moe ? model->experts : 0;
        model_layer_parameters(model, i, &layer);
        p.attention += n * (layer.attention_tp + layer.attention_kv + layer.attention_rep);
        p.mlp += n * (layer.mlp_tp + layer.mlp_rep);
        p.experts += n * experts * layer.expert;
        p.router += n * layer.router;
        p.norm += n * layer.norm;
        idle += experts > 0 ? n * (experts - model->experts_per_token) * layer.expert : 0;
    }
    p.total = p.embedding + p.head + p.attention + p.mlp + p.experts + p.router + p.norm;
    p.active = p.total - idle;
    p.mtp = model->mtp_modules > 0 ? model->mtp_modules * model_mtp_parameters(model) : 0;
    *ret = p;
}

double model_rough_parameters(const struct model *model)
{
    double h = (double)model->hidden, heads = (double)model->heads,
           layers = (double)(model->layers + model->mtp_modules), widest = 0;
    double latents =
        (double)(model->q_lora + model->kv_lora + model->qk_rope + model->index_head_dim + model->index_heads);
    double index = (double)model->index_heads * (double)model->index_head_dim;
    double width = heads * (double)(model->head_dim + model->v_head_dim + model->qk_nope) * 2 + index;
    double attention = (2 * h + (double)(model->q_lora + model->kv_lora)) * (width + latents + 1);
    double scanned = (double)model->ssm_heads * ((double)model->ssm_head_dim + 1), keys = (double)model->ssm_groups * (double)model->ssm_state;
    attention += (h + (double)model->ssm_conv + 4) * (4 * scanned + 2 * keys) + 2 * h * (double)model->moe_latent;
    for (int i = 0; i < model->n_kinds; i++) {
        const struct layer_kind *k = &model->kinds[i];
        double experts = k->moe ? (double)model->experts : 1;
        double mlp = 4 * (fmax(h, (double)model->moe_latent) + 1) * ((double)k->ffn * experts + (double)k->shared_ffn + experts);
        widest = mlp > widest ? mlp : widest;
    }
    return layers * (attention + widest + 16 * h) + 2 * (h + 1) * ((double)model->vocab + (double)model->position_rows);
}

double model_attention_span(int64_t seq_len, int64_t window)
{
    double s = (double)seq_len, w = (double)window;
    if (window <= 0 || window >= seq_len)
        return (s + 1) / 2;
    return w - w * (w - 1) / (2 * s); /* the first w queries see 1..w keys, the others w */
}

/* Chunks of c tokens, the last one shorter. */
static double chunked_span(int64_t seq_len, int64_t chunk)
{
    if (chunk <= 0 || chunk >= seq_len)
        return model_attention_span(seq_len, 0);
    double s = (double)seq_len, c = (double)chunk, rest = (double)(seq_len % chunk);
    return ((s - rest) * (c + 1) / 2 + rest * (rest + 1) / 2) / s;
}

double model_layer_span(const struct model *model, int kind, int64_t seq_len)
{
    const struct layer_kind *k = &model->kinds[kind];
    int64_t window = k->window;
    if (k->chunked)
        return chunked_span(seq_len, window);
    if (model->index_topk > 0 && (window == 0 || model->index_topk < window))
        window = model->index_topk;
    return model_attention_span(seq_len, window);
}

/* Weights of the GEMMs that one token passes in one layer. */
static double active_weights(const struct model *model, int kind)
{
    const struct layer_kind *k = &model->kinds[kind];
    struct attention_weights w = mixer_weights(model, k->mixer);
    double h = (double)model->hidden, matrices = model->gated ? 3 : 2;
    double weights = (double)(w.tp + w.kv + w.rep);
    if (!k->moe)
        return weights + matrices * h * (double)k->ffn;
    weights += matrices * (h * (double)k->shared_ffn + (double)model_expert_width(model) * (double)model->experts_per_token * (double)k->ffn);
    weights += 2 * h * (double)model->moe_latent;
    return weights + h * (double)model->experts + (k->shared_gate ? h : 0);
}

static double score_flops(const struct model *model, int kind, int64_t seq_len)
{
    enum layer_mixer mixer = model->kinds[kind].mixer;
    if (mixer == MIXER_NONE)
        return 0;
    if (mixer != MIXER_ATTENTION)
        return (mixer == MIXER_MAMBA2 ? 7.0 : 6.0) * (double)model_ssm_inner(model) * (double)model->ssm_state;
    double per_key = 2.0 * (double)model->heads * (double)(model->head_dim + model->v_head_dim);
    double flops = per_key * model_layer_span(model, kind, seq_len);
    if (model->index_heads > 0)
        flops += 2.0 * (double)model->index_heads * (double)model->index_head_dim * model_attention_span(seq_len, 0);
    return flops;
}

void model_count_flops(const struct model *model, int64_t seq_len, struct model_flops *ret)
{
    double h = (double)model->hidden;
    struct model_flops f = {.head = 2.0 * (double)model->vocab * h};
    f.forward = f.head;
    for (int i = 0; i < model->n_kinds; i++) {
        double layers = (double)model->kinds[i].layers, scores = score_flops(model, i, seq_len);
        f.attention_scores += layers * scores;
        f.forward += layers * (2.0 * active_weights(model, i) + scores);
    }
    f.training = 3.0 * f.forward;
    if (model->mtp_modules > 0) {
        double layers = 0;
        for (int i = 0; i < model->n_mtp_layers; i++)
            layers += 2.0 * active_weights(model, model->mtp_kind[i]) + score_flops(model, model->mtp_kind[i], seq_len);
        f.mtp = (double)model->mtp_modules * (layers + 2.0 * 2.0 * h * h + f.head);
    }
    *ret = f;
}
