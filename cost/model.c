/* config.json -> struct model. Which file holds what: model_internal.h. */
#include "cost/model.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cost/base/err.h"
#include "cost/base/json.h"
#include "cost/base/unit.h"
#include "cost/model_internal.h"

static const double parameters_max = 9e15; /* the exact counts are int64 sums of products below this */

/* ---- which object is the language model ---- */

static bool looks_like_model(const struct json *object)
{
    static const char *const keys[] = {"hidden_size", "n_embd", "d_model", "num_hidden_layers", "num_attention_heads"};
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        if (json_has(object, keys[i]))
            return true;
    }
    return false;
}

/* Multimodal files nest it; the towers beside it are named in a warning. */
static void find_language_model(struct model_reader *reader)
{
    static const char *const nests[] = {"text_config", "language_config", "llm_config", "thinker_config"};
    for (size_t i = 0; i < sizeof(nests) / sizeof(nests[0]);) {
        const struct json *nested = json_get(reader->at.node, nests[i]);
        bool object = nested != NULL && json_type(nested) == JSON_OBJECT;
        bool leads_on = object && (looks_like_model(nested) || json_has(nested, "text_config"));
        size_t used = strlen(reader->path);
        if (!leads_on || used + strlen(nests[i]) + 2 > sizeof(reader->path)) {
            i++;
            continue;
        }
        snprintf(reader->path + used, sizeof(reader->path) - used, "%s%s", used > 0 ? "." : "", nests[i]);
        reader->at.path = reader->path;
        reader->at.node = nested;
        i = 0;
    }
}

static void warn_not_counted(const struct model_reader *reader)
{
    static const struct {
        const char *key, *what;
    } towers[] = {
        {"vision_config", "vision tower"}, {"visual", "vision tower"},        {"vit_config", "vision tower"},
        {"audio_config", "audio tower"},   {"speech_config", "audio tower"},  {"talker_config", "speech head"},
        {"aligner_config", "aligner"},     {"projector_config", "projector"},
    };
    for (size_t i = 0; i < sizeof(towers) / sizeof(towers[0]); i++) {
        if (json_has(reader->root.node, towers[i].key) || json_has(reader->at.node, towers[i].key))
            err_add(reader->warn, "file '%s': the %s ('%s') is not counted, only the language model is",
                    reader->root.file, towers[i].what, towers[i].key);
    }
    if (json_has(reader->at.node, "indexer_types"))
        err_add(reader->warn, "file '%s': indexer_types is ignored: every layer is counted with an indexer of its own",
                reader->root.file);
    const struct json *quantization = json_get(reader->root.node, "quantization_config");
    if (quantization == NULL || json_type(quantization) == JSON_NULL)
        quantization = json_get(reader->at.node, "quantization_config");
    if (quantization == NULL || json_type(quantization) == JSON_NULL)
        return;
    const char *method = json_text(json_get(quantization, "quant_method"));
    err_add(reader->warn,
            "file '%s': quantization_config%s%.32s%s is ignored: training weights take the precision of the plan",
            reader->root.file, method != NULL ? " (" : "", method != NULL ? method : "", method != NULL ? ")" : "");
}

/* ---- family ---- */

/* A text of the language model's object, else of the whole file; NULL when neither has it. */
static const char *read_text(const struct model_reader *reader, const char *key)
{
    const char *text = NULL;
    if (json_read_string(reader->at, key, &text, reader->err) == 0 && reader->at.node != reader->root.node)
        json_read_string(reader->root, key, &text, reader->err);
    return text;
}

static const char *read_architecture(const struct model_reader *reader)
{
    const struct json *list = json_get(reader->root.node, "architectures");
    const struct json *first = list != NULL && json_type(list) == JSON_ARRAY ? json_first(list) : NULL;
    return first != NULL ? json_text(first) : NULL;
}

/* The same for words that only refine: of another type they say nothing. */
static const char *find_text(const struct model_reader *reader, const char *key)
{
    const char *text = json_text(json_get(reader->at.node, key));
    return text != NULL ? text : json_text(json_get(reader->root.node, key));
}

static const char *read_activation(const struct model_reader *reader)
{
    const char *text = find_text(reader, "hidden_act");
    return text != NULL ? text : find_text(reader, "activation_function");
}

static int find_family(struct model_reader *reader, struct model *model)
{
    const char *model_type = read_text(reader, "model_type"), *architecture = read_architecture(reader);
    const char *activation = read_activation(reader);
    reader->family = model_family_find(model_type, architecture, activation);
    if (model_refuse(reader, model_type, architecture, reader->family && (reader->family->traits & HYBRID)) != 0)
        return -1;
    reader->assumed = reader->family == NULL;
    if (reader->assumed)
        reader->family = model_family_unknown(activation);
    const char *family = model_type != NULL ? model_type : architecture != NULL ? architecture : "unknown";
    snprintf(model->family, sizeof(model->family), "%s", family);
    return 0;
}

static void warn_assumed(const struct model_reader *reader, const struct model *m)
{
    if (!reader->assumed)
        return;
    err_add(
        reader->warn, "file '%s': model_type '%s' is not known; read as %s, %s MLP, %s positions, %s biases, %s head",
        reader->at.file, m->family, m->norm == MODEL_RMS_NORM ? "RMSNorm" : "LayerNorm", m->gated ? "gated" : "ungated",
        m->alibi               ? "ALiBi"
        : m->learned_positions ? "learned"
                               : "rotary",
        m->qkv_bias || m->mlp_bias ? "with" : "no", m->tied ? "tied" : "untied");
}

/* What the family's own code takes where the file is silent, said aloud. */
static void take_default(struct model_reader *reader, enum model_number number, int value)
{
    if (value == 0 || reader->number[number] != ABSENT)
        return;
    reader->number[number] = value;
    err_add(reader->warn, "file '%s': field '%s' is absent; %d taken, the default of %s", reader->at.file,
            model_number_name(number, reader->family), value, reader->family->name);
}

static void take_defaults(struct model_reader *reader)
{
    const struct model_family *f = reader->family;
    bool table = (f->traits & LEARNED) != 0 && reader->flag[B_LEARNED] != 0 && reader->flag[B_ALIBI] != 1;
    take_default(reader, N_HEADS, f->heads);
    take_default(reader, N_KV_HEADS, f->kv_heads);
    take_default(reader, N_HEAD_DIM, f->head_dim);
    take_default(reader, N_VOCAB, f->vocab);
    reader->positions_assumed = table && reader->number[N_POSITIONS] == ABSENT;
    if (table)
        take_default(reader, N_POSITIONS, f->positions);
}

/* ---- essential fields ---- */

static void require(const struct model_reader *reader, enum model_number number, bool needed, char *list, size_t size)
{
    if (!needed || reader->number[number] != ABSENT || reader->reported[number])
        return;
    size_t used = strlen(list);
    snprintf(list + used, size - used, "%s%s", used > 0 ? ", " : "", model_number_name(number, reader->family));
}

static void check_missing(const struct model_reader *reader, const struct model *model)
{
    char list[512] = "";
    const int64_t *n = reader->number;
    bool experts = n[N_EXPERTS] > 0, some_ffn = n[N_DENSE_FFN] != ABSENT || (experts && n[N_EXPERT_FFN] != ABSENT);
    bool index = n[N_INDEX_HEADS] != ABSENT || n[N_INDEX_HEAD_DIM] != ABSENT || n[N_INDEX_TOPK] != ABSENT;
    require(reader, N_HIDDEN, true, list, sizeof(list));
    require(reader, N_LAYERS, true, list, sizeof(list));
    require(reader, N_HEADS, true, list, sizeof(list));
    require(reader, N_FFN, !some_ffn && (reader->family->traits & FOUR_H) == 0, list, sizeof(list));
    require(reader, N_VOCAB, true, list, sizeof(list));
    require(reader, N_POSITIONS, model->learned_positions, list, sizeof(list));
    require(reader, N_TOP_K, experts, list, sizeof(list));
    require(reader, N_KV_LORA, model->mla, list, sizeof(list));
    require(reader, N_QK_NOPE, model->mla, list, sizeof(list));
    require(reader, N_QK_ROPE, model->mla, list, sizeof(list));
    require(reader, N_V_HEAD_DIM, model->mla && (reader->family->traits & V_FROM_HIDDEN) == 0, list, sizeof(list));
    require(reader, N_INDEX_HEADS, index, list, sizeof(list));
    require(reader, N_INDEX_HEAD_DIM, index, list, sizeof(list));
    require(reader, N_INDEX_TOPK, index, list, sizeof(list));
    for (int i = N_SSM_HEADS; i <= N_SSM_CONV; i++)
        require(reader, (enum model_number)i, (reader->family->traits & HYBRID) != 0, list, sizeof(list));
    if (list[0] == '\0')
        return;
    if (!looks_like_model(reader->at.node))
        err_add(reader->err, "file '%s' is not a model's config.json: missing %s", reader->at.file, list);
    else
        err_add(reader->err, "file '%s': missing %s", reader->at.file, list);
}

/* ---- shapes ---- */

static bool pick(int flag, bool otherwise)
{
    return flag == ABSENT ? otherwise : flag != 0;
}

static void read_biases(const struct model_reader *reader, struct model *model)
{
    uint32_t traits = reader->family->traits;
    const int *flag = reader->flag;
    bool qkv = (traits & QKV_BIAS) != 0, out = (traits & OUT_BIAS) != 0, mlp = (traits & MLP_BIAS) != 0;
    int all = flag[B_BIAS];
    if (flag[B_NO_BIAS] != ABSENT && (traits & BIAS_IGNORED) == 0)
        all = !flag[B_NO_BIAS];
    if (all != ABSENT) {
        qkv = out = all != 0;
        mlp = (traits & BIAS_ATTENTION) != 0 ? mlp : all != 0;
    }
    qkv = pick(flag[B_QKV_BIAS], pick(flag[B_ATTENTION_BIAS], qkv));
    if ((traits & QKV_ONLY) == 0)
        out = pick(flag[B_ATTENTION_BIAS], out);
    model->qkv_bias = qkv;
    model->out_bias = pick(flag[B_OUT_BIAS], out);
    model->mlp_bias = pick(flag[B_MLP_BIAS], mlp);
    bool everywhere = model->qkv_bias && model->out_bias && model->mlp_bias; /* MPT's no_bias speaks of the norms too */
    model->norm_bias = (traits & NORM_BIAS) != 0 || (everywhere && model->norm == MODEL_LAYER_NORM);
    model->head_bias = pick(flag[B_HEAD_BIAS], (traits & HEAD_BIAS) != 0);
    model->expert_bias = (traits & EXPERT_BIAS) != 0;
    bool balanced = (traits & ROUTER_BIAS) != 0;
    const char *method = find_text(reader, "topk_method");
    if (method != NULL)
        balanced = strcmp(method, "noaux_tc") == 0;
    model->router_bias = pick(flag[B_ROUTER_BIAS], balanced);
}

static void read_positions(const struct model_reader *reader, struct model *model)
{
    uint32_t traits = reader->family->traits;
    const char *kind = find_text(reader, "position_embedding_type");
    model->alibi = pick(reader->flag[B_ALIBI], (traits & ALIBI) != 0);
    model->learned_positions = pick(reader->flag[B_LEARNED], (traits & LEARNED) != 0);
    if (kind != NULL) {
        model->alibi = strstr(kind, "alibi") != NULL;
        model->learned_positions = strstr(kind, "learned") != NULL || strstr(kind, "absolute") != NULL;
    }
    if (model->alibi)
        model->learned_positions = false;
    model->positions_assumed = reader->positions_assumed;
    model->max_positions = reader->number[N_POSITIONS] != ABSENT ? reader->number[N_POSITIONS] : 0;
    model->position_rows = model->learned_positions ? model->max_positions + reader->family->position_extra : 0;
}

static void read_norms(const struct model_reader *reader, struct model *model)
{
    uint32_t traits = reader->family->traits;
    const int *flag = reader->flag;
    const char *norm = find_text(reader, "norm");
    model->norm = (traits & LAYER_NORM) != 0 ? MODEL_LAYER_NORM : MODEL_RMS_NORM;
    if (norm != NULL)
        model->norm = strstr(norm, "rms") != NULL ? MODEL_RMS_NORM : MODEL_LAYER_NORM;
    model->norms_per_layer = reader->family->norms;
    if ((traits & PARALLEL_ONE) != 0 && flag[B_PARALLEL] != ABSENT)
        model->norms_per_layer = flag[B_PARALLEL] != 0 ? 1 : 2;
    if (flag[B_NEW_DECODER] == 1)
        model->norms_per_layer = 2;
    model->qk_norm = pick(flag[B_QK_NORM], (traits & QK_NORM) != 0) && (traits & QK_NORM_BARE) == 0;
    model->qk_norm_full = model->qk_norm && (traits & QK_NORM_FULL) != 0;
    model->final_norm = flag[B_NORM_FIRST] != 0;
    model->embedding_norm = (traits & EMBED_NORM) != 0;
}

static void read_mlp(const struct model_reader *reader, struct model *model)
{
    uint32_t traits = reader->family->traits;
    const char *ffn_type = json_text(json_get(json_get(reader->at.node, "ffn_config"), "ffn_type"));
    model->gated =
        pick(reader->flag[B_GATED], (traits & GATED) != 0 || (ffn_type != NULL && strcmp(ffn_type, "mptglu") == 0));
    const int64_t *n = reader->number;
    model->experts = n[N_EXPERTS] != ABSENT ? n[N_EXPERTS] : 0;
    model->experts_per_token = model->experts > 0 ? n[N_TOP_K] : 0;
    model->n_group = n[N_GROUPS] > 0 ? n[N_GROUPS] : 1;
    model->topk_group = n[N_TOPK_GROUP] > 0 ? n[N_TOPK_GROUP] : 1;
    model->moe_latent = model->experts > 0 && n[N_MOE_LATENT] > 0 ? n[N_MOE_LATENT] : 0;
    model->mtp_modules = n[N_MTP] != ABSENT && reader->flag[B_USE_MTP] != 0 ? n[N_MTP] : 0;
}

static int64_t read_kv_heads(const struct model_reader *reader, int64_t heads)
{
    int64_t stated = reader->number[N_KV_HEADS] != ABSENT ? reader->number[N_KV_HEADS] : heads;
    int multi_query = reader->flag[B_MULTI_QUERY];
    if (reader->flag[B_NEW_DECODER] == 1)
        return stated;
    if ((reader->family->traits & MULTI_QUERY) != 0)
        return multi_query != 0 ? 1 : heads;
    return multi_query == 0 ? heads : stated;
}

static void read_attention(const struct model_reader *reader, struct model *model)
{
    const int64_t *n = reader->number;
    model->mla = (reader->family->traits & MLA) != 0 || n[N_KV_LORA] != ABSENT;
    model->attention_sinks = (reader->family->traits & SINKS) != 0;
    bool delta_nets = (reader->family->traits & (HYBRID | GATED)) == (HYBRID | GATED); /* Qwen3-Next's code always gates */
    model->attention_gate = pick(reader->flag[B_ATTENTION_GATE], delta_nets);
    model->heads = n[N_HEADS];
    model->kv_heads = model->mla ? model->heads : read_kv_heads(reader, model->heads);
    model->head_dim = n[N_HEAD_DIM];
    if (model->head_dim == ABSENT && n[N_HEADS] != ABSENT && n[N_HIDDEN] != ABSENT)
        model->head_dim = n[N_HIDDEN] / n[N_HEADS];
    model->v_head_dim = model->head_dim;
    if (!model->mla)
        return;
    model->q_lora = n[N_Q_LORA] > 0 ? n[N_Q_LORA] : 0;
    model->kv_lora = n[N_KV_LORA];
    model->qk_nope = n[N_QK_NOPE];
    model->qk_rope = n[N_QK_ROPE];
    model->head_dim = model->qk_nope + model->qk_rope;
    model->v_head_dim = n[N_V_HEAD_DIM];
    if (model->v_head_dim == ABSENT && (reader->family->traits & V_FROM_HIDDEN) != 0 && n[N_HEADS] > 0)
        model->v_head_dim = n[N_HIDDEN] / n[N_HEADS];
    model->index_heads = n[N_INDEX_HEADS] > 0 ? n[N_INDEX_HEADS] : 0;
    model->index_head_dim = model->index_heads > 0 ? n[N_INDEX_HEAD_DIM] : 0;
    model->index_topk = model->index_heads > 0 ? n[N_INDEX_TOPK] : 0;
}

static void read_shapes(struct model_reader *reader, struct model *model)
{
    const int64_t *n = reader->number;
    model->hidden = n[N_HIDDEN];
    model->layers = n[N_LAYERS];
    model->vocab = n[N_VOCAB];
    read_attention(reader, model);
    read_norms(reader, model);
    read_biases(reader, model);
    read_positions(reader, model);
    read_mlp(reader, model);
    model_read_mixers(reader, model);
    bool tied = (reader->family->traits & TIED) != 0;
    if (reader->at.node != reader->root.node)
        json_read_bool(reader->root, "tie_word_embeddings", &tied, reader->err);
    model->tied = pick(reader->flag[B_TIED], tied);
}

/* ---- checks ---- */

static void check_shapes(const struct model_reader *reader, const struct model *m)
{
    struct err *err = reader->err;
    const char *file = reader->at.file;
    const int64_t *n = reader->number;
    if (!m->mla && n[N_HEAD_DIM] == ABSENT && m->heads > 0 && m->hidden > 0 && m->hidden % m->heads != 0)
        err_add(err,
                "file '%s': num_attention_heads %" PRId64 " does not divide hidden_size %" PRId64
                " and head_dim is not given",
                file, m->heads, m->hidden);
    if (m->heads > 0 && m->heads % m->kv_heads != 0)
        err_add(err, "file '%s': num_key_value_heads %" PRId64 " does not divide num_attention_heads %" PRId64, file,
                m->kv_heads, m->heads);
    if (m->experts > 0 && m->experts_per_token > m->experts)
        err_add(err, "file '%s': num_experts_per_tok %" PRId64 " is more than num_experts %" PRId64, file,
                m->experts_per_token, m->experts);
    if (m->experts > 0 && m->experts % m->n_group != 0)
        err_add(err, "file '%s': n_group %" PRId64 " does not divide num_experts %" PRId64, file, m->n_group,
                m->experts);
    if (m->experts > 0 && m->topk_group > m->n_group)
        err_add(err, "file '%s': topk_group %" PRId64 " is more than n_group %" PRId64, file, m->topk_group,
                m->n_group);
    if (n[N_FIRST_DENSE] != ABSENT && m->layers > 0 && n[N_FIRST_DENSE] > m->layers)
        err_add(err, "file '%s': first_k_dense_replace %" PRId64 " is more than num_hidden_layers %" PRId64, file,
                n[N_FIRST_DENSE], m->layers);
    if (n[N_EMBED_WIDTH] != ABSENT && n[N_EMBED_WIDTH] != m->hidden && m->hidden > 0)
        err_add(
            err,
            "file '%s': not understood: an embedding of another width than hidden_size (field 'word_embed_proj_dim' is %" PRId64
            ")",
            file, n[N_EMBED_WIDTH]);
    if (m->ssm_heads > 0 && m->ssm_groups > 0 && m->ssm_heads % m->ssm_groups != 0)
        err_add(err, "file '%s': %s %" PRId64 " does not divide %s %" PRId64, file, model_number_name(N_SSM_GROUPS, reader->family),
                m->ssm_groups, model_number_name(N_SSM_HEADS, reader->family), m->ssm_heads);
    if (m->index_topk > 0 && m->index_head_dim <= 0)
        err_add(err, "file '%s': index_head_dim must be positive", file);
}

/* Words of mixture-of-experts models that came to nothing: better refused than planned as dense. */
static void check_experts(const struct model_reader *reader, const struct model *model)
{
    if (model->experts > 0 || reader->number[N_EXPERTS] == 0)
        return;
    for (const struct json *child = json_first(reader->at.node); child != NULL; child = json_next(child)) {
        const char *key = json_key(child);
        bool number = json_type(child) == JSON_NUMBER && json_double(child) > 1;
        if (number && (strstr(key, "expert") != NULL || strncmp(key, "moe_", 4) == 0)) {
            err_add(
                reader->err,
                "file '%s': field '%s' speaks of experts, but their number is not given (num_experts, num_local_experts, n_routed_experts)",
                reader->at.file, key);
            return;
        }
    }
}

static void check_widths(const struct model_reader *reader, const struct model *model)
{
    for (int i = 0; i < model->n_kinds; i++) {
        if (model->kinds[i].ffn <= 0 && !model->kinds[i].mixer_only) {
            err_add(reader->err, "file '%s': missing %s for the %s layers", reader->at.file,
                    model->kinds[i].moe ? "moe_intermediate_size" : "intermediate_size",
                    model->kinds[i].moe ? "expert" : "dense");
            return;
        }
    }
    char size[32];
    double parameters = model_rough_parameters(model);
    if (!(parameters < parameters_max)) {
        snprintf(size, sizeof(size), "%.2g", parameters);
        err_add(reader->err, "file '%s': the model would have about %s parameters; the limit is %.0e", reader->at.file,
                size, parameters_max);
    }
}

/* ---- name ---- */

static void copy_part(char *ret, size_t size, const char *text, size_t length)
{
    snprintf(ret, size, "%.*s", (int)(length < size ? length : size - 1), text);
}

/* _name_or_path or the file's name without .json, last component; "config.json" takes its folder's. */
static void read_name(const struct model_reader *reader, struct model *model)
{
    const char *text = json_text(json_get(reader->root.node, "_name_or_path"));
    if (text == NULL || text[0] == '\0')
        text = reader->root.file;
    size_t end = strlen(text);
    for (int tries = 0; tries < 2; tries++) {
        while (end > 0 && text[end - 1] == '/')
            end--;
        size_t start = end;
        while (start > 0 && text[start - 1] != '/')
            start--;
        size_t length = end - start;
        if (length > 5 && strncmp(text + end - 5, ".json", 5) == 0)
            length -= 5;
        copy_part(model->name, sizeof(model->name), text + start, length);
        if (strcmp(model->name, "config") != 0 || start == 0)
            return;
        end = start;
    }
}

/* ---- the whole ---- */

static void read_model(struct model_reader *reader, struct model *model)
{
    find_language_model(reader);
    if (find_family(reader, model) != 0)
        return;
    model_read_keys(reader);
    take_defaults(reader);
    read_shapes(reader, model);
    check_missing(reader, model);
    check_shapes(reader, model);
    check_experts(reader, model);
    if (model->layers > 0 && model->hidden > 0)
        model_read_layers(reader, model);
    if (reader->err->count > 0)
        return;
    check_widths(reader, model);
    bool any_moe = false;
    for (int i = 0; i < model->n_kinds; i++)
        any_moe = any_moe || model->kinds[i].moe;
    if (!any_moe)
        model->experts = model->experts_per_token = 0;
    read_name(reader, model);
    warn_assumed(reader, model);
    warn_not_counted(reader);
}

int model_parse(const struct json *root, const char *file, struct model *ret_model, struct err *warn, struct err *err)
{
    struct err problems;
    err_clear(&problems);
    if (json_type(root) != JSON_OBJECT)
        return err_add(err, "file '%s' holds %s; a model's config.json is an object", file, json_type_name(root));
    struct json_at at = {file, "", root};
    struct model_reader reader = {.at = at, .root = at, .warn = warn, .err = &problems};
    struct model model = {.n_group = 1, .topk_group = 1};
    read_model(&reader, &model);
    if (problems.count > 0)
        return err_append(err, &problems);
    *ret_model = model;
    return 0;
}

int model_load(const char *path, struct model *ret_model, struct err *warn, struct err *err)
{
    struct json *root;
    if (json_load_python(path, &root, err) != 0)
        return -1;
    int result = model_parse(root, path[0] == '-' && path[1] == '\0' ? "standard input" : path, ret_model, warn, err);
    json_free(root);
    return result;
}
