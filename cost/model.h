/* A language model as Hugging Face's config.json describes it, reduced to what
 * costs time and memory: shapes, layer kinds, counts.
 *
 * Units: plain counts (elements, heads, tokens). The struct owns no memory and
 * may be copied. Reading is thread-safe. */
#ifndef COST_MODEL_H
#define COST_MODEL_H

#include <stdbool.h>
#include <stdint.h>

struct err;
struct json;

enum { MODEL_LAYERS_MAX = 1024, MODEL_KINDS_MAX = 12, MODEL_MTP_LAYERS_MAX = 8 };

enum model_norm { MODEL_RMS_NORM, MODEL_LAYER_NORM };

/* What mixes tokens in a layer: attention, a Mamba-2 state space (arXiv:2405.21060), a gated delta net
 * (arXiv:2412.06464), or nothing (Nemotron-H, whose layers are one block each). */
enum layer_mixer { MIXER_ATTENTION, MIXER_MAMBA2, MIXER_DELTA_NET, MIXER_NONE, MIXERS };
extern const char *const layer_mixer_names[]; /* "attention", "Mamba-2", "gated delta net", "no mixer", NULL */

/* What one transformer layer is made of; a model has few different kinds. */
struct layer_kind {
    enum layer_mixer mixer;
    bool mixer_only;    /* no MLP behind the mixer (Nemotron-H); ffn is 0 */
    bool moe;           /* routed experts instead of a dense MLP */
    int64_t ffn;        /* dense: MLP inner width; moe: inner width of ONE routed expert */
    int64_t shared_ffn; /* moe: inner width of all shared experts together, 0 = none */
    bool shared_gate;   /* moe: a sigmoid gate on the shared expert (Qwen2-MoE): hidden parameters */
    int64_t window;     /* attention looks back at most this many tokens; 0 = all (causal) */
    bool chunked;       /* the window does not slide: the sequence is cut into chunks of `window` tokens (Llama-4) */
    int64_t layers;     /* layers of this kind in the main model (MTP modules not included) */
};

struct model {
    char name[128];  /* file's base name or _name_or_path */
    char family[64]; /* model_type */
    int64_t hidden, layers, vocab, max_positions;
    int64_t heads, kv_heads;      /* query heads, key/value heads (MLA: kv_heads = heads) */
    int64_t head_dim, v_head_dim; /* of q/k and of v (equal but for MLA) */
    enum model_norm norm;
    bool norm_bias;               /* LayerNorm with bias */
    int norms_per_layer;          /* 2 usually; gemma2/3 4; parallel blocks 1 */
    bool qk_norm;                 /* per-head norm of q and k: weights head_dim each (full width when qk_norm_full) */
    bool qk_norm_full;            /* q/k norm over the whole projection (heads*head_dim and kv_heads*head_dim) */
    bool gated;                   /* SwiGLU/GeGLU: two input projections in the MLP */
    bool qkv_bias, out_bias, mlp_bias, expert_bias, router_bias, head_bias;
    bool attention_sinks;         /* gpt-oss: one learned logit per head */
    bool attention_gate;          /* an output gate projection in attention (doubles q) */
    bool learned_positions;       /* position table of max_positions x hidden */
    int64_t position_rows;        /* rows of that table (OPT has 2 more than positions) */
    bool positions_assumed;       /* the file does not state the table's length: a longer sequence means a longer table */
    bool embedding_norm;          /* a norm right after the embedding (BLOOM) */
    bool alibi;
    bool tied;                    /* head shares the token embedding */
    bool final_norm;
    /* multi-head latent attention (DeepSeek-V2/V3, Kimi-K2, GLM-5) */
    bool mla;
    int64_t q_lora, kv_lora, qk_nope, qk_rope; /* q_lora 0 = plain q projection */
    /* sparse attention indexer (DeepSeek-V3.2, GLM-5); 0 = none */
    int64_t index_heads, index_head_dim, index_topk;
    /* Mamba-2 and gated delta nets; ssm_heads 0 = none. Heads carry values of ssm_head_dim; Mamba-2: groups share B and C
     * of ssm_state each; delta net: as many key heads of width ssm_state. */
    int64_t ssm_heads, ssm_head_dim, ssm_groups, ssm_state;
    int64_t ssm_conv; /* taps of the causal convolution before the scan */
    bool ssm_conv_bias;
    /* mixture of experts; experts 0 = dense model */
    int64_t experts, experts_per_token;
    int64_t moe_latent; /* routed experts see tokens projected to this width (Nemotron 3's LatentMoE); 0 = hidden */
    int64_t n_group, topk_group; /* node-limited routing; 1,1 = free */
    int64_t mtp_modules;         /* multi-token-prediction modules (each its layers + projection 2h x h) */
    int n_mtp_layers;            /* layers of one module: usually one of the last kind */
    uint8_t mtp_kind[MODEL_MTP_LAYERS_MAX];
    /* layers: kind_of_layer[i] indexes kinds */
    int n_kinds;
    struct layer_kind kinds[MODEL_KINDS_MAX];
    uint8_t kind_of_layer[MODEL_LAYERS_MAX];
};

/* Parameters of the whole model by part. total = embedding + head + attention +
 * mlp + experts + router + norm (main model, MTP apart). A tied head counts 0. */
struct model_parameters {
    int64_t total, active; /* active: parameters that one token passes, both embeddings included */
    int64_t embedding;     /* token table + learned positions */
    int64_t head, attention, mlp, experts, router, norm;
    int64_t mtp;           /* all MTP modules, not in total */
};

/* Parameters of one layer by the way they are sharded. */
struct layer_parameters {
    int64_t attention_tp;  /* divided by tp (q, o, biases of column-parallel; MLA up-projections; other mixers) */
    int64_t attention_kv;  /* k and v projections: divided by min(tp, kv_heads) */
    int64_t attention_rep; /* on every tp rank (MLA down-projections, q/k norms, row-parallel biases, indexer) */
    int64_t mlp_tp;        /* dense MLP and shared experts: divided by tp */
    int64_t mlp_rep;       /* row-parallel biases, shared gate, projections to and from the experts' latent space */
    int64_t expert;        /* ONE routed expert: divided by etp */
    int64_t router;        /* on every rank */
    int64_t norm;          /* on every rank */
};

/* FLOPs per token of a training sequence of seq_len tokens, multiply-add = 2,
 * attention counted causal-halved (windows respected), no recompute. */
struct model_flops {
    double forward;  /* per token, MTP modules not included */
    double training; /* 3 x forward */
    double head;     /* part of forward */
    double attention_scores; /* part of forward: QK^T and PV, the indexer's scores, scans of state-space mixers */
    double mtp;      /* forward of all MTP modules, not in forward */
};

/* Reads a config.json; warnings (unknown quantisation, vision tower not
 * counted, ...) go to warn. What is not understood (convolution or recurrent
 * layers, ...) is an error naming field and value. */
int model_load(const char *path, struct model *ret_model, struct err *warn, struct err *err);
int model_parse(const struct json *root, const char *file, struct model *ret_model, struct err *warn, struct err *err);

void model_count_parameters(const struct model *model, struct model_parameters *ret);
void model_layer_parameters(const struct model *model, int kind, struct layer_parameters *ret);
int64_t model_mtp_parameters(const struct model *model); /* one module */
/* Width of a state-space mixer's values (ssm_heads x ssm_head_dim), of its keys and queries together, and of its input
 * projection. */
int64_t model_ssm_inner(const struct model *model);
int64_t model_ssm_keys(const struct model *model);
int64_t model_ssm_input(const struct model *model, enum layer_mixer mixer);
int64_t model_expert_width(const struct model *model); /* what a routed expert reads and writes per token */
void model_count_flops(const struct model *model, int64_t seq_len, struct model_flops *ret);
/* Mean number of keys that a query of a causal sequence sees: (s+1)/2 without window. */
double model_attention_span(int64_t seq_len, int64_t window);
/* The same for the attention of one layer: window, chunks and the indexer's top-k respected. */
double model_layer_span(const struct model *model, int kind, int64_t seq_len);

#endif
