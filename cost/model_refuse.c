/* What this model of a transformer does not cover, said in one sentence with
 * field and value. Half-understood is worse than refused: a state-space layer
 * read as attention gives a confident wrong plan. */
#include "cost/model_internal.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "cost/base/err.h"
#include "cost/base/names.h"
#include "cost/model.h"

/* clang-format off */
/* A field whose presence (not null, false, 0 or empty) changes what a layer is. */
static const struct { const char *key, *what; } foreign_keys[] = {
    {"hybrid_override_pattern", "state-space (Mamba) layers"},
    {"layers_block_type", "state-space (Mamba) layers"},
    {"mamba_num_heads", "state-space (Mamba) layers"},
    {"mamba_d_state", "state-space (Mamba) layers"},
    {"ssm_state_size", "state-space (Mamba) layers"},
    {"ssm_cfg", "state-space (Mamba) layers"},
    {"linear_num_key_heads", "linear-attention layers"},
    {"linear_attn_config", "linear-attention layers"},
    {"compress_ratios", "compressed sparse attention"},
    {"o_lora_rank", "a low-rank output projection of attention"},
    {"hc_mult", "hyper-connections"},
    {"moe_latent_size", "experts in a latent space"},
    {"num_hash_layers", "hash-routed layers"},
    {"cross_attention_layers", "cross-attention layers"},
    {"is_encoder_decoder", "encoder-decoder models"},
    {"encoder_layers", "encoder-decoder models"},
    {"altup_num_inputs", "alternating updates (Gemma 3n)"},
    {"block_configs", "blocks that each have their own shape"},
    {"use_cla", "key/value heads shared across layers"},
    {"global_head_dim", "heads of another size in some layers"},
    {"hidden_size_per_layer_input", "embeddings of every layer"},
    {"enable_moe_block", "dense and expert MLPs in parallel"},
    {"num_kv_shared_layers", "key/value heads shared across layers"},
    {"conv_L_cache", "convolution layers"},
    {"dense_moe_hybrid", "dense and expert MLPs in parallel"},
};

/* Model types that no field betrays. */
static const struct { const char *name, *what; } foreign_types[] = {
    {"mamba", "state-space (Mamba) layers"}, {"mamba2", "state-space (Mamba) layers"}, {"falcon_mamba", "state-space (Mamba) layers"},
    {"jamba", "state-space (Mamba) layers"}, {"bamba", "state-space (Mamba) layers"}, {"zamba", "state-space (Mamba) layers"},
    {"zamba2", "state-space (Mamba) layers"}, {"falcon_h1", "state-space (Mamba) layers"},
    {"granitemoehybrid", "state-space (Mamba) layers"}, {"plamo2", "state-space (Mamba) layers"},
    {"rwkv", "recurrent layers"}, {"rwkv5", "recurrent layers"}, {"rwkv6", "recurrent layers"}, {"rwkv7", "recurrent layers"},
    {"recurrent_gemma", "recurrent layers"}, {"xlstm", "recurrent layers"}, {"retnet", "recurrent layers"},
    {"kimi_linear", "linear-attention layers"}, {"minimax_text_01", "linear-attention layers"}, {"minimax_m1", "linear-attention layers"},
    {"lfm2", "convolution layers"}, {"lfm2_moe", "convolution layers"}, {"deepseek_v4", "compressed sparse attention"},
    {"gemma3n", "alternating updates (Gemma 3n)"}, {"arctic", "dense and expert MLPs in parallel"},
    {"t5", "encoder-decoder models"}, {"mt5", "encoder-decoder models"}, {"bart", "encoder-decoder models"},
    {"whisper", "encoder-decoder models"}, {"t5gemma", "encoder-decoder models"},
    {"bert", "bidirectional encoders"}, {"roberta", "bidirectional encoders"}, {"xlm-roberta", "bidirectional encoders"},
    {"modernbert", "bidirectional encoders"}, {"distilbert", "bidirectional encoders"}, {"electra", "bidirectional encoders"},
    {"openelm", "layers that each have their own shape"}, {"deci", "layers that each have their own shape"},
    {"nemotron-nas", "layers that each have their own shape"},
};

static const struct { const char *name, *what; } foreign_layers[] = {
    {"linear_attention", "linear-attention layers"}, {"mamba", "state-space (Mamba) layers"}, {"mamba2", "state-space (Mamba) layers"},
    {"conv", "convolution layers"}, {"recurrent", "recurrent layers"}, {"hybrid", "state-space (Mamba) layers"},
    {"cross_attention", "cross-attention layers"},
};
/* clang-format on */

static bool counts(const struct json *node)
{
    switch (json_type(node)) {
    case JSON_NULL:
        return false;
    case JSON_BOOL:
        return json_true(node);
    case JSON_NUMBER:
        return json_double(node) < 0 || json_double(node) > 0;
    case JSON_STRING:
        return json_text(node)[0] != '\0';
    default:
        return json_first(node) != NULL;
    }
}

static const char *show_value(const struct json *node, char *buffer, size_t size)
{
    if (json_type(node) == JSON_STRING)
        snprintf(buffer, size, "'%.40s%s'", json_text(node), strlen(json_text(node)) > 40 ? "..." : "");
    else if (json_type(node) == JSON_NUMBER)
        snprintf(buffer, size, "%.15g", json_double(node));
    else
        snprintf(buffer, size, "%s", json_type(node) == JSON_BOOL ? "true" : json_type_name(node));
    return buffer;
}

/* Fields that a family with several mixers is read by. */
static bool hybrid_key(const struct model_family *family, const char *key)
{
    static const char *const pattern[] = {"hybrid_override_pattern", "layers_block_type", "mamba_num_heads", "ssm_state_size", "moe_latent_size", NULL};
    static const char *const delta_net[] = {"linear_num_key_heads", NULL};
    return family && (family->traits & HYBRID) != 0 && names_find((family->traits & GATED) != 0 ? delta_net : pattern, key) >= 0;
}

static int refuse_keys(const struct model_reader *reader)
{
    char value[64];
    for (size_t i = 0; i < sizeof(foreign_keys) / sizeof(foreign_keys[0]); i++) {
        const struct json *node = json_get(reader->at.node, foreign_keys[i].key);
        if (node == NULL || !counts(node) || hybrid_key(reader->family, foreign_keys[i].key))
            continue;
        return err_add(reader->err, "file '%s': not understood: %s (field '%s%s%s' is %s)", reader->at.file,
                       foreign_keys[i].what, reader->at.path, reader->at.path[0] != '\0' ? "." : "",
                       foreign_keys[i].key, show_value(node, value, sizeof(value)));
    }
    return 0;
}

/* "Qwen3NextForCausalLM" or "qwen3_next_text" against "qwen3_next". */
static bool names_type(const char *text, const char *type)
{
    for (; *type != '\0'; type++) {
        if (*type == '_' || *type == '-') {
            text += *text == '_' || *text == '-';
        } else {
            int lower = *text >= 'A' && *text <= 'Z' ? *text - 'A' + 'a' : *text;
            if (lower != *type)
                return false;
            text++;
        }
    }
    return *text == '\0' || strcmp(text, "_text") == 0 || strncmp(text, "For", 3) == 0 ||
           strcmp(text, "LMHeadModel") == 0 || strcmp(text, "Model") == 0;
}

static int refuse_type(const struct model_reader *reader, const char *field, const char *type)
{
    if (type == NULL)
        return 0;
    for (size_t i = 0; i < sizeof(foreign_types) / sizeof(foreign_types[0]); i++) {
        if (names_type(type, foreign_types[i].name))
            return err_add(reader->err, "file '%s': not understood: %s (field '%s' is '%.64s')", reader->at.file,
                           foreign_types[i].what, field, type);
    }
    return 0;
}

static int refuse_layer_types(const struct model_reader *reader, bool hybrid)
{
    int index = 0;
    for (const struct json *child = json_first(json_get(reader->at.node, "layer_types")); child != NULL;
         child = json_next(child), index++) {
        const char *word = json_text(child);
        for (size_t i = 0; word != NULL && i < sizeof(foreign_layers) / sizeof(foreign_layers[0]); i++) {
            if (strcmp(word, foreign_layers[i].name) == 0 && !(hybrid && strcmp(word, "linear_attention") == 0))
                return err_add(reader->err, "file '%s': not understood: %s (field 'layer_types[%d]' is '%s')",
                               reader->at.file, foreign_layers[i].what, index, word);
        }
    }
    index = 0;
    for (const struct json *child = json_first(json_get(reader->at.node, "attn_type_list")); child != NULL;
         child = json_next(child), index++) {
        if (json_type(child) == JSON_NUMBER && !counts(child))
            return err_add(reader->err,
                           "file '%s': not understood: linear-attention layers (field 'attn_type_list[%d]' is 0)",
                           reader->at.file, index);
    }
    return 0;
}

int model_refuse(const struct model_reader *reader, const char *model_type, const char *architecture, bool hybrid)
{
    if (refuse_layer_types(reader, hybrid) != 0 || refuse_keys(reader) != 0)
        return -1;
    if (refuse_type(reader, "model_type", model_type) != 0)
        return -1;
    return refuse_type(reader, "architectures", architecture);
}
