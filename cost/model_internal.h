/* What the files of the model reader share; nobody else includes this.
 *
 * model.c         config.json -> struct model, in the order: find the language
 *                 model's object, refuse what is not understood, family, keys,
 *                 shapes, layers, checks
 * model_family.c  what a model_type implies (the table to add a family to)
 * model_keys.c    every spelling of every field, misspellings
 * model_refuse.c  what is not understood, by field and by model_type
 * model_layers.c  which layer is of which kind
 * model_hybrid.c  state-space and linear-attention mixers
 * model_count.c   parameters and FLOPs
 */
#ifndef COST_MODEL_INTERNAL_H
#define COST_MODEL_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "cost/base/json.h"

struct err;
struct model;

/* ---- families ---- */

/* How a family differs from Llama (RMSNorm, ungated, no biases, rotary positions, untied head unless said here). */
enum model_trait {
    GATED = 1 << 0,      /* SwiGLU/GeGLU */
    TIED = 1 << 1,       /* when tie_word_embeddings is absent */
    LAYER_NORM = 1 << 2, /* without bias */
    NORM_BIAS = 1 << 3,
    QKV_BIAS = 1 << 4,
    OUT_BIAS = 1 << 5,
    MLP_BIAS = 1 << 6,
    HEAD_BIAS = 1 << 7,
    EXPERT_BIAS = 1 << 8,
    ROUTER_BIAS = 1 << 9,   /* one number per expert, learned (gpt-oss) or set by the balancer (DeepSeek-V3) */
    QK_NORM = 1 << 10,      /* norms of q and k, unless the file says no */
    QK_NORM_FULL = 1 << 11, /* these norms, when there, go over the whole projection */
    QK_NORM_BARE = 1 << 12, /* use_qk_norm means a norm without weights (Llama-4) */
    LEARNED = 1 << 13,      /* a learned position table */
    ALIBI = 1 << 14,
    EMBED_NORM = 1 << 15,
    SINKS = 1 << 16,
    MLA = 1 << 17,
    FOUR_H = 1 << 18,         /* inner width 4 x hidden when not stated */
    HALF_FFN = 1 << 19,       /* intermediate_size is that of both input projections together (Qwen 1) */
    MULTI_QUERY = 1 << 20,    /* one key/value head unless multi_query is false */
    QKV_ONLY = 1 << 21,       /* attention_bias does not speak of the output projection */
    BIAS_ATTENTION = 1 << 22, /* `bias` speaks of attention only (InternLM) */
    BIAS_IGNORED = 1 << 23,   /* `no_bias` does not speak of q, k, v (Qwen 1) */
    WINDOW_OFF = 1 << 24,     /* sliding_window counts only with use_sliding_window true (Qwen) */
    SHARED_ONE = 1 << 25,     /* one shared expert of the routed experts' width (Llama-4) */
    SHARED_GATE = 1 << 26,
    PARALLEL_ONE = 1 << 27,  /* a parallel block has one norm instead of two */
    CHUNKED = 1 << 28,       /* the window is a chunk */
    V_FROM_HIDDEN = 1 << 29, /* MLA: v_head_dim is hidden_size / heads when not stated */
    HYBRID = 1 << 30,        /* layers of several mixers: a pattern of blocks, or attention among gated delta nets */
};

struct model_family {
    const char *name; /* model_type (without "_text") */
    uint32_t traits;
    int norms; /* per layer */
    int period,
        full; /* of every `period` layers, number `full` sees everything, the others the window; 0 = all alike */
    const char *window_key; /* NULL = sliding_window */
    int position_extra;     /* rows of the position table beyond the positions */
    /* What the family's own code takes when the file leaves it out (0 = it must be there). */
    int heads, kv_heads, head_dim, vocab, positions;
};

/* By model_type, else by architectures[0]; hidden_act decides for Megatron's "gpt". NULL = unknown. */
const struct model_family *model_family_find(const char *model_type, const char *architecture, const char *hidden_act);
/* What an unknown model_type is read as. */
const struct model_family *model_family_unknown(const char *hidden_act);

/* ---- keys ---- */

/* clang-format off */
enum model_number {
    N_HIDDEN, N_LAYERS, N_HEADS, N_VOCAB, N_FFN, N_KV_HEADS, N_HEAD_DIM, N_DENSE_FFN, N_EXPANSION, N_POSITIONS,
    N_EXPERTS, N_TOP_K, N_EXPERT_FFN, N_SHARED_EXPERTS, N_SHARED_FFN, N_FIRST_DENSE, N_LAST_SPARSE, N_SPARSE_STEP, N_GROUPS, N_TOPK_GROUP,
    N_Q_LORA, N_KV_LORA, N_QK_NOPE, N_QK_ROPE, N_V_HEAD_DIM, N_INDEX_HEADS, N_INDEX_HEAD_DIM, N_INDEX_TOPK,
    N_MTP, N_MTP_LAYERS, N_MAX_WINDOW_LAYERS, N_EMBED_WIDTH,
    N_SSM_HEADS, N_SSM_HEAD_DIM, N_SSM_GROUPS, N_SSM_STATE, N_SSM_CONV, N_MOE_LATENT, N_FULL_INTERVAL, NUMBERS
};

enum model_flag {
    B_TIED, B_ATTENTION_BIAS, B_QKV_BIAS, B_OUT_BIAS, B_MLP_BIAS, B_BIAS, B_NO_BIAS, B_HEAD_BIAS, B_GATED, B_QK_NORM,
    B_PARALLEL, B_NEW_DECODER, B_MULTI_QUERY, B_ALIBI, B_LEARNED, B_USE_MTP, B_ROUTER_BIAS, B_USE_WINDOW, B_ATTENTION_GATE,
    B_NORM_FIRST, B_CONV_BIAS, FLAGS
};
/* clang-format on */

enum { ABSENT = -1 };

/* One config.json while it is read. */
struct model_reader {
    struct json_at at;   /* the object of the language model */
    struct json_at root; /* the whole file */
    char path[64];
    struct err *warn, *err;
    const struct model_family *family;
    bool assumed;            /* family is a guess */
    bool positions_assumed;  /* the position table has the family's default length */
    int64_t number[NUMBERS]; /* ABSENT = not there */
    int flag[FLAGS];         /* ABSENT, 0, 1 */
    bool reported[NUMBERS];  /* misspelled or wrong: not missing as well */
};

void model_read_keys(struct model_reader *reader);
/* The spelling that messages use. */
const char *model_number_name(enum model_number number, const struct model_family *family);

/* ---- the rest ---- */

/* -1 with one sentence when the file describes something that this model of a transformer does not cover. hybrid: of a
 * family whose mixers are read (model_hybrid.c). */
int model_refuse(const struct model_reader *reader, const char *model_type, const char *architecture, bool hybrid);
void model_read_layers(struct model_reader *reader, struct model *model);
/* model_hybrid.c: what each layer is made of. */
struct layer_block {
    uint8_t mixer;        /* enum layer_mixer */
    bool mixer_only, moe; /* moe counts where `pattern` is set */
};
/* Shapes of the state-space mixers; layers counted from the pattern where the file does not count them. */
void model_read_mixers(struct model_reader *reader, struct model *model);
/* ret[layers]; true where a pattern says which blocks are experts. */
bool model_read_blocks(struct model_reader *reader, int64_t layers, struct layer_block *ret);
/* The blocks of one MTP module; 0 = not stated. */
int model_read_mtp_blocks(struct model_reader *reader, struct layer_block *ret, int max);
/* Parameters in floating point: safe for any input, to refuse sizes that the exact counts cannot hold. */
double model_rough_parameters(const struct model *model);

#endif
