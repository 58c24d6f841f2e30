/* The architecture of a model as flags of pretrain_gpt.py, and what it cannot build.
 *
 * Initialisation, tokenizer, data and learning rates are the user's. Megatron-LM counts a
 * window without the token itself, patterns of layers are Python lists, 1 for a window or
 * for experts. Latent attention normalises its projections, which --qk-layernorm switches. */
#include <math.h>
#include <string.h>

#include "cost/base/err.h"
#include "cost/model.h"
#include "sim/writers/export_internal.h"

/* A kind of layer that stands for all of its sort; NULL = there is none. */
static const struct layer_kind *kind_of(const struct model *m, bool moe)
{
    for (int i = 0; i < m->n_kinds; i++)
        if (m->kinds[i].moe == moe)
            return &m->kinds[i];
    return NULL;
}

static const char *missing_part(const struct model *m)
{
    const struct layer_kind *dense = kind_of(m, false), *moe = kind_of(m, true);
    bool biases = m->qkv_bias || m->out_bias || m->mlp_bias, all = m->qkv_bias && m->out_bias && m->mlp_bias;
    bool experts_differ = m->expert_bias && m->qkv_bias && m->out_bias; /* an MLP's biases are the experts' */
    for (int i = 0; i < m->n_kinds; i++) {
        const struct layer_kind *kind = &m->kinds[i];
        if (kind->mixer != MIXER_ATTENTION || kind->mixer_only)
            return "layers other than attention with an MLP";
        if (kind->chunked)
            return "attention in chunks";
        if (!kind->moe && kind->ffn != dense->ffn)
            return "MLPs of different widths";
        if (kind->moe && (kind->ffn != moe->ffn || kind->shared_ffn != moe->shared_ffn))
            return "experts of different widths";
    }
    if (m->alibi)
        return "ALiBi";
    if (m->index_heads > 0)
        return "a sparse attention indexer";
    if (m->norms_per_layer != 2)
        return m->norms_per_layer == 1 ? "attention and MLP side by side behind one norm" : "norms behind attention and MLP too";
    if (m->qk_norm_full && !m->mla)
        return "a norm over all heads of q and k together";
    if (m->embedding_norm)
        return "a norm behind the embedding";
    if (m->head_bias)
        return "a bias in the head";
    if (m->norm == MODEL_LAYER_NORM && !m->norm_bias)
        return "LayerNorm without a bias";
    if (!m->final_norm)
        return "no norm before the head";
    if (biases && !all && !experts_differ && (m->out_bias || m->mlp_bias))
        return "biases in some linears beside q, k and v, and not in others";
    return NULL;
}

static void add_biases(const struct model *m, struct flag_list *list)
{
    if (m->out_bias)
        return;
    flag_add(list, "--disable-bias-linear");
    if (m->qkv_bias)
        flag_add(list, "--add-qkv-bias");
}

static bool begins(const char *text, const char *word)
{
    return strncmp(text, word, strlen(word)) == 0;
}

static void add_activation(const struct exporter *e, struct flag_list *list)
{
    const struct model *m = e->request->model;
    const char *word = e->request->words->activation;
    bool silu = word[0] == '\0' || begins(word, "silu") || begins(word, "swi"), gelu = begins(word, "gelu");
    if (m->expert_bias) { /* gpt-oss: x sigmoid(1.702 x) (y + 1), both clamped at 7 */
        flag_add(list, "--quick-geglu");
        flag_add_text(list, "--glu-linear-offset", "1.0");
        flag_add_text(list, "--activation-func-clamp-value", "7.0");
    } else if (m->gated && silu) {
        flag_add(list, "--swiglu");
    } else if (!m->gated && (begins(word, "relu2") || begins(word, "squared_relu"))) {
        flag_add(list, "--squared-relu");
    } else if (m->gated || !(gelu || word[0] == '\0')) {
        err_add(e->err, "model '%s' has the activation '%s' in %s MLP, but Megatron-LM takes silu in a gated one, gelu or relu2 in one without a gate", m->name,
                word, m->gated ? "a gated" : "an ungated");
    }
}

static void add_positions(const struct exporter *e, struct flag_list *list)
{
    const struct model *m = e->request->model;
    const struct model_words *w = e->request->words;
    int64_t most = m->max_positions > e->plan->seq_len ? m->max_positions : e->plan->seq_len;
    flag_add_int(list, "--max-position-embeddings", most);
    flag_add_text(list, "--position-embedding-type", m->learned_positions ? "learned_absolute" : "rope");
    if (m->learned_positions)
        return;
    if (m->mla && strcmp(w->rope_type, "yarn") != 0) /* Megatron-LM's default beside latent attention is yarn */
        flag_add_text(list, "--rope-type", "rope");
    if (w->rope_base > 0 && w->rope_base < 1e15)
        flag_add_int(list, "--rotary-base", (int64_t)llround(w->rope_base));
    if (w->rope_share > 0 && w->rope_share < 1)
        flag_add_double(list, "--rotary-percent", w->rope_share);
    if (strcmp(w->rope_type, "llama3") == 0) {
        flag_add(list, "--use-rope-scaling");
        flag_add_double(list, "--rope-scaling-factor", w->rope_factor > 0 ? w->rope_factor : 8);
    } else if (strcmp(w->rope_type, "yarn") == 0 && m->mla) {
        flag_add_text(list, "--rope-type", "yarn");
        flag_add_double(list, "--rotary-scaling-factor", w->rope_factor > 0 ? w->rope_factor : 40);
        if (w->rope_mscale > 0)
            flag_add_double(list, "--mscale", w->rope_mscale);
        if (w->rope_mscale_all_dim > 0)
            flag_add_double(list, "--mscale-all-dim", w->rope_mscale_all_dim);
    } else if (w->rope_type[0]) {
        err_add(e->warn, "rope_scaling '%s' of model '%s' is not written: it changes no time, and no flag of Megatron-LM says it", w->rope_type, m->name);
    }
}

static void add_attention(const struct exporter *e, struct flag_list *list)
{
    const struct model *m = e->request->model;
    flag_add_int(list, "--num-attention-heads", m->heads);
    if (m->mla) {
        flag_add(list, "--multi-latent-attention");
        if (m->q_lora > 0)
            flag_add_int(list, "--q-lora-rank", m->q_lora);
        flag_add_int(list, "--kv-lora-rank", m->kv_lora);
        flag_add_int(list, "--qk-head-dim", m->qk_nope);
        flag_add_int(list, "--qk-pos-emb-head-dim", m->qk_rope);
        flag_add_int(list, "--v-head-dim", m->v_head_dim);
    } else {
        flag_add_int(list, "--kv-channels", m->head_dim);
    }
    if (!m->mla && m->kv_heads != m->heads) {
        flag_add(list, "--group-query-attention");
        flag_add_int(list, "--num-query-groups", m->kv_heads);
    }
    if (m->mla || m->qk_norm)
        flag_add(list, "--qk-layernorm");
    if (m->attention_sinks)
        flag_add_text(list, "--softmax-type", "learnable");
    if (m->attention_gate)
        flag_add(list, "--attention-output-gate");
}

/* "([0]*3+[1]*58)" or "([1]*5+[0]*1)*8": the shortest period, its runs counted. */
static const char *pattern(struct flag_list *list, const uint8_t *bit, int n)
{
    int period = 1;
    for (bool good = false; !good; period += !good) {
        good = n % period == 0;
        for (int i = period; i < n && good; i++)
            good = bit[i] == bit[i - period];
    }
    size_t size = (size_t)period * 16 + 32, used = 0;
    char *text = arena_alloc(&list->arena, size);
    for (int i = 0, run; i < period; i += run) {
        for (run = 1; i + run < period && bit[i + run] == bit[i];)
            run++;
        used += (size_t)snprintf(text + used, size - used, "%s[%d]*%d", i == 0 ? "(" : "+", bit[i], run);
    }
    snprintf(text + used, size - used, n == period ? ")" : ")*%d", n / period);
    return text;
}

static void add_windows(const struct exporter *e, struct flag_list *list)
{
    const struct model *m = e->request->model;
    uint8_t bit[MODEL_LAYERS_MAX] = {0};
    int64_t window = 0, windows = 0;
    char text[32];
    for (int i = 0; i < m->layers; i++) {
        int64_t here = m->kinds[m->kind_of_layer[i]].window;
        bit[i] = here > 0;
        windows += here > 0;
        if (here > 0 && window > 0 && here != window) {
            err_add(e->err, "model '%s' has windows of %lld and %lld tokens, but Megatron-LM takes one width", m->name, (long long)window, (long long)here);
            return;
        }
        window = here > 0 ? here : window;
    }
    if (windows == 0)
        return;
    snprintf(text, sizeof text, "(%lld,0)", (long long)window - 1);
    flag_add_text(list, "--window-size", text);
    if (windows < m->layers)
        flag_add_text(list, "--window-attn-skip-freq", pattern(list, bit, (int)m->layers));
}

/* Megatron-LM takes the softmax of the chosen experts' scores alone, which sums to 1, unless told otherwise. */
static void add_router(const struct exporter *e, struct flag_list *list)
{
    const struct model *m = e->request->model;
    const struct model_words *w = e->request->words;
    bool sigmoid = m->router_bias && !m->expert_bias, before = !sigmoid && (w->raw_topk || m->experts_per_token == 1); /* balanced by a bias on the scores */
    if (sigmoid) {
        flag_add_text(list, "--moe-router-score-function", "sigmoid");
        flag_add(list, "--moe-router-enable-expert-bias");
    } else if (before) {
        flag_add(list, "--moe-router-pre-softmax");
    }
    if (w->routed_scale > 0 && w->routed_scale != 1 && (sigmoid || before))
        flag_add_double(list, "--moe-router-topk-scaling-factor", w->routed_scale);
    else if (w->routed_scale > 0 && w->routed_scale != 1)
        err_add(e->warn, "routed_scaling_factor %g of model '%s' is not written: it changes no time, and no flag of Megatron-LM says it beside norm_topk_prob", w->routed_scale, m->name);
}

static void add_experts(const struct exporter *e, struct flag_list *list)
{
    const struct model *m = e->request->model;
    const struct layer_kind *kind = kind_of(m, true);
    uint8_t bit[MODEL_LAYERS_MAX] = {0};
    if (m->experts == 0 || !kind)
        return;
    flag_add_int(list, "--num-experts", m->experts);
    flag_add_int(list, "--moe-router-topk", m->experts_per_token);
    flag_add_int(list, "--moe-ffn-hidden-size", kind->ffn);
    if (kind->shared_ffn > 0)
        flag_add_int(list, "--moe-shared-expert-intermediate-size", kind->shared_ffn);
    if (kind->shared_gate)
        flag_add(list, "--moe-shared-expert-gate");
    if (m->moe_latent > 0)
        flag_add_int(list, "--moe-latent-size", m->moe_latent);
    if (m->n_group > 1) {
        flag_add_int(list, "--moe-router-num-groups", m->n_group);
        flag_add_int(list, "--moe-router-group-topk", m->topk_group);
    }
    add_router(e, list);
    for (int i = 0; i < m->layers; i++)
        bit[i] = m->kinds[m->kind_of_layer[i]].moe;
    if (kind_of(m, false))
        flag_add_text(list, "--moe-layer-freq", pattern(list, bit, (int)m->layers));
    if (m->expert_bias && e->plan->etp > 1)
        export_refuse(e, "etp", export_number(e->plan->etp).text, "experts with biases whole", "1");
}

void megatron_add_model(const struct exporter *e, struct flag_list *list)
{
    const struct model *m = e->request->model;
    if (!m)
        return;
    const struct layer_kind *mlp = kind_of(m, false) ? kind_of(m, false) : kind_of(m, true);
    const char *missing = missing_part(m);
    if (missing) {
        err_add(e->err, "model '%s' has %s, which no flag of Megatron-LM's pretrain_gpt.py builds", m->name, missing);
        return;
    }
    flag_add_int(list, "--num-layers", m->layers);
    flag_add_int(list, "--hidden-size", m->hidden);
    flag_add_int(list, "--ffn-hidden-size", mlp->ffn);
    add_attention(e, list);
    add_windows(e, list);
    add_positions(e, list);
    flag_add_text(list, "--normalization", m->norm == MODEL_RMS_NORM ? "RMSNorm" : "LayerNorm");
    if (e->request->words->norm_epsilon > 0)
        flag_add_double(list, "--norm-epsilon", e->request->words->norm_epsilon);
    add_activation(e, list);
    add_biases(m, list);
    if (!m->tied)
        flag_add(list, "--untie-embeddings-and-output-weights");
    flag_add_int(list, "--vocab-size", m->vocab);
    flag_add_int(list, "--make-vocab-size-divisible-by", 128);
    add_experts(e, list);
    if (m->mtp_modules > 0)
        flag_add_int(list, "--mtp-num-layers", m->mtp_modules);
}
