/* What a model_type implies and config.json does not say.
 *
 * To add a family: one row in `families` (traits are explained in
 * model_internal.h), a row in `same_as` for a name of the same shape, and its
 * published parameter total with a source in tests/golden/models.txt.
 * Sources: the modeling_*.py and configuration_*.py of each family in
 * Hugging Face transformers, or beside the weights for remote code. */
#include "cost/model_internal.h"

#include <ctype.h>
#include <stddef.h>
#include <string.h>

#define ALL_BIASES (NORM_BIAS | QKV_BIAS | OUT_BIAS | MLP_BIAS)
#define GPT_3 (LAYER_NORM | ALL_BIASES | LEARNED | TIED | FOUR_H)

/* clang-format off */
static const struct model_family families[] = {
    /* name, traits, norms per layer, what else differs */
    {"llama",        GATED, .norms = 2},
    {"qwen2",        GATED | QKV_BIAS | WINDOW_OFF, .norms = 2},
    {"qwen2_moe",    GATED | QKV_BIAS | WINDOW_OFF | SHARED_GATE, .norms = 2},
    {"qwen3",        GATED | QK_NORM | WINDOW_OFF, .norms = 2},
    {"qwen",         GATED | QKV_BIAS | HALF_FFN | BIAS_IGNORED, .norms = 2},
    {"deepseek_v2",  GATED | MLA, .norms = 2},
    {"deepseek_v3",  GATED | MLA | ROUTER_BIAS, .norms = 2},
    {"minicpm3",     GATED | MLA | V_FROM_HIDDEN | TIED, .norms = 2},
    {"glm",          GATED | QKV_ONLY, .norms = 2},
    {"glm4",         GATED | QKV_ONLY, .norms = 4},
    {"glm4_moe",     GATED | QKV_ONLY | ROUTER_BIAS, .norms = 2},
    {"chatglm",      GATED | QKV_BIAS, .norms = 2},
    {"gpt_oss",      GATED | QKV_BIAS | OUT_BIAS | SINKS | ROUTER_BIAS | EXPERT_BIAS, .norms = 2, .period = 2, .full = 1},
    {"llama4",       GATED | SHARED_ONE | QK_NORM_BARE | CHUNKED, .norms = 2, .period = 4, .full = 3, .window_key = "attention_chunk_size"},
    {"gemma",        GATED | TIED, .norms = 2, .head_dim = 256},
    {"gemma2",       GATED | TIED, .norms = 4, .head_dim = 256, .period = 2, .full = 1},
    {"gemma3",       GATED | TIED | QK_NORM, .norms = 4, .head_dim = 256, .period = 6, .full = 5, .heads = 8, .kv_heads = 4, .vocab = 262208},
    {"minimax_m2",   GATED | QK_NORM | QK_NORM_FULL | ROUTER_BIAS, .norms = 2},
    {"phi",          LAYER_NORM | ALL_BIASES | HEAD_BIAS | FOUR_H, .norms = 1},
    {"phimoe",       GATED | LAYER_NORM | NORM_BIAS, .norms = 2},
    {"olmo2",        GATED | QK_NORM | QK_NORM_FULL, .norms = 2},
    {"exaone4",      GATED | QK_NORM, .norms = 2},
    {"ernie4_5",     GATED | TIED | ROUTER_BIAS, .norms = 2},
    {"internlm",     GATED | QKV_BIAS | OUT_BIAS | BIAS_ATTENTION, .norms = 2},
    {"stablelm",     GATED | LAYER_NORM | NORM_BIAS | PARALLEL_ONE, .norms = 2},
    {"cohere",       GATED | LAYER_NORM | TIED | QK_NORM_FULL, .norms = 1},
    {"cohere2",      GATED | LAYER_NORM | TIED, .norms = 1, .period = 4, .full = 3},
    {"dbrx",         GATED | LAYER_NORM, .norms = 2},
    {"starcoder2",   LAYER_NORM | ALL_BIASES | TIED, .norms = 2},
    {"nemotron",     LAYER_NORM | NORM_BIAS, .norms = 2},
    {"gpt2",         GPT_3, .norms = 2},
    {"gpt",          GPT_3, .norms = 2, .vocab = 51200, .positions = 2048}, /* Megatron-LM; GPT-2's 50257 padded */
    {"gpt_bigcode",  GPT_3 | MULTI_QUERY, .norms = 2},
    {"gpt_neo",      LAYER_NORM | NORM_BIAS | OUT_BIAS | MLP_BIAS | LEARNED | TIED | FOUR_H, .norms = 2, .period = 2, .full = 0, .window_key = "window_size"},
    {"gpt_neox",     LAYER_NORM | ALL_BIASES | FOUR_H, .norms = 2},
    {"gptj",         LAYER_NORM | NORM_BIAS | MLP_BIAS | HEAD_BIAS | FOUR_H, .norms = 1},
    {"opt",          GPT_3, .norms = 2, .position_extra = 2},
    {"bloom",        LAYER_NORM | ALL_BIASES | ALIBI | EMBED_NORM | TIED | FOUR_H, .norms = 2},
    {"falcon",       LAYER_NORM | NORM_BIAS | MULTI_QUERY | TIED | FOUR_H | PARALLEL_ONE, .norms = 1},
    {"nemotron_h",   HYBRID | ROUTER_BIAS, .norms = 1},
    {"qwen3_next",   HYBRID | GATED | QK_NORM | WINDOW_OFF | SHARED_GATE, .norms = 2},
    {"mpt",          LAYER_NORM | LEARNED | TIED | FOUR_H | QK_NORM_FULL, .norms = 2, .positions = 2048},
};

/* Other names of the same shape (what differs between them is stated in the file). */
static const struct { const char *name, *family; } same_as[] = {
    {"mistral", "llama"}, {"mixtral", "llama"}, {"ministral", "llama"}, {"mistral3", "llama"}, {"pixtral", "llama"},
    {"granite", "llama"}, {"granitemoe", "llama"}, {"granitemoeshared", "llama"}, {"internlm2", "llama"}, {"internlm3", "llama"},
    {"yi", "llama"}, {"deepseek", "llama"}, {"smollm3", "llama"}, {"phi3", "llama"}, {"phi4", "llama"}, {"aquila", "llama"},
    {"baichuan", "llama"}, {"seed_oss", "llama"}, {"arcee", "llama"}, {"mllama", "llama"},
    {"qwen2_vl", "qwen2"}, {"qwen2_5_vl", "qwen2"}, {"qwen2_audio", "qwen2"}, {"qwen3_vl", "qwen3"}, {"qwen3_moe", "qwen3"},
    {"qwen3_vl_moe", "qwen3"}, {"qwen3_omni_moe", "qwen3"}, {"olmoe", "olmo2"}, {"olmo3", "olmo2"},
    {"ernie4_5_moe", "ernie4_5"}, {"hunyuan_v1_dense", "llama"}, {"hunyuan_v1_moe", "llama"}, {"exaone", "llama"},
    {"deepseek_v32", "deepseek_v3"}, {"kimi_k2", "deepseek_v3"}, {"kimi_k25", "deepseek_v3"},
    {"glm_moe_dsa", "deepseek_v3"}, {"glm4_moe_lite", "deepseek_v3"}, {"glm4v", "glm4"}, {"glm4v_moe", "glm4_moe"},
    {"qwen3_5", "qwen3_next"}, {"qwen3_5_moe", "qwen3_next"}, {"minimax", "minimax_m2"}, {"codegen", "gptj"}, {"refinedweb", "falcon"}, {"refinedwebmodel", "falcon"},
};
/* clang-format on */

enum {
    FAMILIES = sizeof(families) / sizeof(families[0]),
    SAME_AS = sizeof(same_as) / sizeof(same_as[0]),
    NAME_MAX_BYTES = 64
};

/* Lower case, without '_' and '-': "Qwen3Moe" and "qwen3_moe" are one name. */
static void fold_name(const char *name, size_t length, char *ret)
{
    size_t n = 0;
    for (size_t i = 0; i < length && n < NAME_MAX_BYTES - 1; i++) {
        if (name[i] != '_' && name[i] != '-')
            ret[n++] = (char)tolower((unsigned char)name[i]);
    }
    ret[n] = '\0';
}

static bool same_name(const char *folded, const char *name)
{
    char other[NAME_MAX_BYTES];
    fold_name(name, strlen(name), other);
    return strcmp(folded, other) == 0;
}

static const struct model_family *by_name(const char *name)
{
    for (int i = 0; i < FAMILIES; i++) {
        if (strcmp(families[i].name, name) == 0)
            return &families[i];
    }
    return NULL;
}

static const struct model_family *by_folded_name(const char *folded)
{
    for (int i = 0; i < FAMILIES; i++) {
        if (same_name(folded, families[i].name))
            return &families[i];
    }
    for (int i = 0; i < SAME_AS; i++) {
        if (same_name(folded, same_as[i].name))
            return by_name(same_as[i].family);
    }
    return NULL;
}

/* model_type up to a blank (notes such as "gpt (Megatron-LM fork)"), without "_text". */
static const struct model_family *by_model_type(const char *model_type)
{
    char folded[NAME_MAX_BYTES];
    size_t length = strcspn(model_type, " (");
    if (length > 5 && strncmp(model_type + length - 5, "_text", 5) == 0)
        length -= 5;
    fold_name(model_type, length, folded);
    return by_folded_name(folded);
}

static const struct model_family *by_architecture(const char *architecture)
{
    static const char *const endings[] = {"ForCausalLM", "LMHeadModel", "ForConditionalGeneration", "Model"};
    char folded[NAME_MAX_BYTES];
    size_t length = strlen(architecture);
    for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); i++) {
        const char *found = strstr(architecture, endings[i]);
        if (found != NULL && found[strlen(endings[i])] == '\0')
            length = (size_t)(found - architecture);
        if (length < strlen(architecture))
            break;
    }
    fold_name(architecture, length, folded);
    return by_folded_name(folded);
}

static bool gated_name(const char *hidden_act)
{
    static const char *const names[] = {"silu", "swish", "swiglu", "swiglu_oai", "geglu", "gelu_gated", "reglu"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(hidden_act, names[i]) == 0)
            return true;
    }
    return false;
}

const struct model_family *model_family_unknown(const char *hidden_act)
{
    if (hidden_act == NULL || gated_name(hidden_act))
        return by_name("llama");
    return by_name("nemotron"); /* LayerNorm, ungated, rotary */
}

const struct model_family *model_family_find(const char *model_type, const char *architecture, const char *hidden_act)
{
    const struct model_family *family = model_type != NULL ? by_model_type(model_type) : NULL;
    if (family == NULL && model_type == NULL && architecture != NULL)
        family = by_architecture(architecture);
    /* Megatron-LM trains everything under one name: the activation tells the generations apart. */
    if (family == by_name("gpt") && hidden_act != NULL && strncmp(hidden_act, "gelu", 4) != 0)
        return model_family_unknown(hidden_act);
    if (family == by_name("gpt") && hidden_act != NULL && gated_name(hidden_act))
        return by_name("llama");
    return family;
}
