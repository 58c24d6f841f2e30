/* Every spelling of every field of config.json that has a price. */
#include "cost/model_internal.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "cost/base/err.h"
#include "cost/base/names.h"
#include "cost/model.h"

enum { SPELLINGS = 8, MANY = 1 << 24, KEYS_EXAMINED = 2000 /* files have 30 to 100 fields */ };
/* Short names have honest neighbours (use_mtp, use_mup): only longer ones are taken for misspelled. */
enum { NUMBER_NAME_MIN = 8, FLAG_NAME_MIN = 12 };

/* clang-format off */
/* The first spelling is the one used in messages; "a.b" is field b of object a.
 * Spellings that are there together must agree, unless `first_wins`. */
static const struct number_key {
    const char *names[SPELLINGS + 1];
    int64_t min, max;
    bool first_wins;
} number_keys[NUMBERS] = {
    [N_HIDDEN] = {{"hidden_size", "n_embd", "d_model", "n_embed"}, .min = 1, .max = 1 << 20},
    [N_LAYERS] = {{"num_hidden_layers", "n_layer", "n_layers", "num_layers"}, .min = 1, .max = MODEL_LAYERS_MAX},
    [N_HEADS] = {{"num_attention_heads", "n_head", "n_heads", "num_heads"}, .min = 1, .max = 1 << 16},
    [N_VOCAB] = {{"padded_vocab_size", "vocab_size"}, .min = 1, .max = MANY, .first_wins = true},
    [N_FFN] = {{"intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size", "ffn_config.ffn_hidden_size"}, .min = 1, .max = MANY},
    [N_KV_HEADS] = {{"num_key_value_heads", "n_head_kv", "num_kv_heads", "n_kv_heads", "multi_query_group_num", "num_query_groups",
                     "attn_config.kv_n_heads"}, .min = 1, .max = 1 << 16},
    [N_HEAD_DIM] = {{"head_dim", "attention_head_dim", "kv_channels"}, .min = 1, .max = 1 << 16, .first_wins = true},
    [N_DENSE_FFN] = {{"intermediate_size_mlp"}, .min = 1, .max = MANY},
    [N_EXPANSION] = {{"expansion_ratio"}, .min = 1, .max = 1024},
    [N_POSITIONS] = {{"max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "n_ctx"}, .min = 1, .max = INT64_C(1) << 40, .first_wins = true},
    [N_EXPERTS] = {{"num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts", "num_moe_experts", "num_routed_experts",
                    "ffn_config.moe_num_experts"}, .min = 0, .max = 1 << 16},
    [N_TOP_K] = {{"num_experts_per_tok", "num_experts_per_token", "experts_per_token", "moe_top_k", "moe_topk", "moe_k", "moe_router_topk",
                  "ffn_config.moe_top_k"}, .min = 1, .max = 1 << 16},
    [N_EXPERT_FFN] = {{"moe_intermediate_size", "moe_ffn_hidden_size"}, .min = 1, .max = MANY},
    [N_SHARED_EXPERTS] = {{"n_shared_experts", "num_shared_experts", "num_shared_expert", "moe_num_shared_experts"}, .min = 0, .max = 1 << 16},
    [N_SHARED_FFN] = {{"shared_expert_intermediate_size", "moe_shared_expert_intermediate_size", "shared_intermediate_size"}, .min = 0, .max = MANY},
    [N_FIRST_DENSE] = {{"first_k_dense_replace", "moe_layer_start_index"}, .min = 0, .max = MODEL_LAYERS_MAX},
    [N_LAST_SPARSE] = {{"moe_layer_end_index"}, .min = -1, .max = MODEL_LAYERS_MAX},
    [N_SPARSE_STEP] = {{"decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_interval"}, .min = 0, .max = MODEL_LAYERS_MAX},
    [N_GROUPS] = {{"n_group", "num_expert_group"}, .min = 0, .max = 1 << 16},
    [N_TOPK_GROUP] = {{"topk_group"}, .min = 0, .max = 1 << 16},
    [N_Q_LORA] = {{"q_lora_rank"}, .min = 0, .max = 1 << 20},
    [N_KV_LORA] = {{"kv_lora_rank"}, .min = 1, .max = 1 << 20},
    [N_QK_NOPE] = {{"qk_nope_head_dim"}, .min = 1, .max = 1 << 16},
    [N_QK_ROPE] = {{"qk_rope_head_dim"}, .min = 1, .max = 1 << 16},
    [N_V_HEAD_DIM] = {{"v_head_dim"}, .min = 1, .max = 1 << 16},
    [N_INDEX_HEADS] = {{"index_n_heads"}, .min = 1, .max = 1 << 16},
    [N_INDEX_HEAD_DIM] = {{"index_head_dim"}, .min = 1, .max = 1 << 16},
    [N_INDEX_TOPK] = {{"index_topk"}, .min = 1, .max = MANY},
    [N_MTP] = {{"num_nextn_predict_layers", "num_mtp_modules", "mtp_num_hidden_layers", "mtp_num_layers"}, .min = 0, .max = 64},
    [N_MTP_LAYERS] = {{"mtp_transformer_layers"}, .min = 1, .max = 1},
    [N_MAX_WINDOW_LAYERS] = {{"max_window_layers"}, .min = 0, .max = MODEL_LAYERS_MAX},
    [N_EMBED_WIDTH] = {{"word_embed_proj_dim"}, .min = 1, .max = 1 << 20},
    [N_SSM_HEADS] = {{"mamba_num_heads", "linear_num_value_heads"}, .min = 1, .max = 1 << 16},
    [N_SSM_HEAD_DIM] = {{"mamba_head_dim", "linear_value_head_dim"}, .min = 1, .max = 1 << 16},
    [N_SSM_GROUPS] = {{"n_groups", "linear_num_key_heads"}, .min = 1, .max = 1 << 16},
    [N_SSM_STATE] = {{"ssm_state_size", "linear_key_head_dim"}, .min = 1, .max = 1 << 16},
    [N_SSM_CONV] = {{"conv_kernel", "linear_conv_kernel_dim"}, .min = 1, .max = 1 << 10},
    [N_MOE_LATENT] = {{"moe_latent_size"}, .min = 1, .max = 1 << 20},
    [N_FULL_INTERVAL] = {{"full_attention_interval"}, .min = 1, .max = MODEL_LAYERS_MAX},
};

static const char *const flag_keys[FLAGS][SPELLINGS + 1] = {
    [B_TIED] = {"tie_word_embeddings"},
    [B_ATTENTION_BIAS] = {"attention_bias"},
    [B_QKV_BIAS] = {"qkv_bias", "add_qkv_bias", "use_qkv_bias"},
    [B_OUT_BIAS] = {"attention_out_bias"},
    [B_MLP_BIAS] = {"mlp_bias"},
    [B_BIAS] = {"use_bias", "add_bias_linear", "bias", "enable_bias"},
    [B_NO_BIAS] = {"no_bias"},
    [B_HEAD_BIAS] = {"lm_head_bias"},
    [B_GATED] = {"mlp_gated"},
    [B_QK_NORM] = {"use_qk_norm", "qk_layernorm", "attn_config.qk_ln"},
    [B_PARALLEL] = {"use_parallel_residual", "parallel_attn"},
    [B_NEW_DECODER] = {"new_decoder_architecture"},
    [B_MULTI_QUERY] = {"multi_query", "multi_query_attention"},
    [B_ALIBI] = {"alibi", "attn_config.alibi"},
    [B_LEARNED] = {"learned_pos_emb"},
    [B_USE_MTP] = {"use_mtp"},
    [B_ROUTER_BIAS] = {"use_routing_bias"},
    [B_USE_WINDOW] = {"use_sliding_window"},
    [B_ATTENTION_GATE] = {"attn_output_gate"},
    [B_NORM_FIRST] = {"do_layer_norm_before"},
    [B_CONV_BIAS] = {"use_conv_bias"},
};

/* Fields that resemble one of the above and mean something else, or are read elsewhere. */
static const char *const other_keys[] = {
    "qk_head_dim", "layer_types", "moe_layers", "mlp_only_layers", "moe_layer_freq", "mlp_layer_types",
    "sliding_window", "hidden_act", "model_type", "architectures", "hidden_sizes", "num_head_channels", "max_length",
    "q_head_dim", "k_head_dim", "kv_head_dim", "o_lora_rank", NULL,
};
/* clang-format on */

const char *model_number_name(enum model_number number, const struct model_family *family)
{
    const char *const *names = number_keys[number].names;
    bool linear = number >= N_SSM_HEADS && number <= N_SSM_CONV && family && (family->traits & GATED) != 0; /* Qwen's words */
    return number == N_VOCAB || linear ? names[1] : names[0];
}

/* Follows "a.b"; a missing or wrongly typed `a` gives an object without the field. */
static struct json_at find_object(struct json_at at, const char *name, const char **ret_key)
{
    const char *dot = strchr(name, '.');
    if (dot == NULL) {
        *ret_key = name;
        return at;
    }
    char object_name[32];
    snprintf(object_name, sizeof(object_name), "%.*s", (int)(dot - name), name);
    at.node = json_get(at.node, object_name);
    at.path = strncmp(object_name, "attn", 4) == 0 ? "attn_config" : "ffn_config";
    *ret_key = dot + 1;
    return at;
}

static void read_number(struct model_reader *reader, enum model_number number)
{
    const struct number_key *key = &number_keys[number];
    const char *first = NULL;
    for (int i = 0; key->names[i] != NULL; i++) {
        const char *name;
        int64_t value;
        struct json_at at = find_object(reader->at, key->names[i], &name);
        int found = json_read_int(at, name, key->min, key->max, &value, reader->err);
        reader->reported[number] = reader->reported[number] || found < 0;
        if (found != 1)
            continue;
        if (first == NULL) {
            reader->number[number] = value;
            first = key->names[i];
        } else if (value != reader->number[number] && !key->first_wins) {
            err_add(reader->err, "file '%s': fields '%s' %" PRId64 " and '%s' %" PRId64 " mean the same and disagree",
                    at.file, first, reader->number[number], key->names[i], value);
        }
    }
}

static void read_flag(struct model_reader *reader, enum model_flag flag)
{
    for (int i = 0; flag_keys[flag][i] != NULL; i++) {
        const char *name;
        bool value;
        struct json_at at = find_object(reader->at, flag_keys[flag][i], &name);
        if (json_read_bool(at, name, &value, reader->err) == 1) {
            reader->flag[flag] = value;
            return;
        }
    }
}

static bool known_key(const char *key)
{
    if (names_find(other_keys, key) >= 0)
        return true;
    for (int i = 0; i < NUMBERS; i++) {
        if (names_find(number_keys[i].names, key) >= 0)
            return true;
    }
    for (int i = 0; i < FLAGS; i++) {
        if (names_find(flag_keys[i], key) >= 0)
            return true;
    }
    return false;
}

static void report_misspelling(struct model_reader *reader, const char *key, const char *nearest)
{
    err_add(reader->err, "file '%s': field '%s' is unknown; did you mean '%s'?", reader->at.file, key, nearest);
    for (int i = 0; i < NUMBERS; i++) {
        if (names_find(number_keys[i].names, nearest) >= 0)
            reader->reported[i] = true;
    }
}

/* A field that nobody knows, near the name of one that is not there, is a misspelling. */
static void find_misspellings(struct model_reader *reader)
{
    const char *numbers[NUMBERS * SPELLINGS + 1], *flags[FLAGS * SPELLINGS + 1];
    int n = 0;
    for (int i = 0; i < NUMBERS; i++) {
        for (int j = 0; reader->number[i] == ABSENT && number_keys[i].names[j] != NULL; j++) {
            if (strlen(number_keys[i].names[j]) >= NUMBER_NAME_MIN)
                numbers[n++] = number_keys[i].names[j];
        }
    }
    numbers[n] = NULL;
    n = 0;
    for (int i = 0; i < FLAGS; i++) {
        for (int j = 0; reader->flag[i] == ABSENT && flag_keys[i][j] != NULL; j++) {
            if (strlen(flag_keys[i][j]) >= FLAG_NAME_MIN)
                flags[n++] = flag_keys[i][j];
        }
    }
    flags[n] = NULL;
    int left = KEYS_EXAMINED;
    for (const struct json *child = json_first(reader->at.node); child != NULL && left-- > 0;
         child = json_next(child)) {
        enum json_type type = json_type(child);
        if (known_key(json_key(child)) || (type != JSON_NUMBER && type != JSON_BOOL))
            continue;
        const char *nearest = names_nearest(type == JSON_BOOL ? flags : numbers, json_key(child));
        if (nearest != NULL)
            report_misspelling(reader, json_key(child), nearest);
    }
}

void model_read_keys(struct model_reader *reader)
{
    for (int i = 0; i < NUMBERS; i++) {
        reader->number[i] = ABSENT;
        read_number(reader, (enum model_number)i);
    }
    for (int i = 0; i < FLAGS; i++) {
        reader->flag[i] = ABSENT;
        read_flag(reader, (enum model_flag)i);
    }
    find_misspellings(reader);
}
