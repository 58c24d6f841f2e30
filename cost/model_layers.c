/* Which layer is of which kind: dense or experts, and how far attention looks. */
#include "cost/model_internal.h"

#include <inttypes.h>
#include <stddef.h>
#include <string.h>

#include "cost/base/err.h"
#include "cost/model.h"

enum { UNSET = 0xFF };

/* Per layer; UNSET where no list of the file says. */
struct layer_words {
    uint8_t moe[MODEL_LAYERS_MAX];
    uint8_t windowed[MODEL_LAYERS_MAX];
    struct layer_block block[MODEL_LAYERS_MAX];
};

static const struct json *list_field(struct model_reader *reader, const char *key)
{
    const struct json *node = json_get(reader->at.node, key);
    if (node == NULL || json_type(node) == JSON_NULL)
        return NULL;
    if (json_type(node) != JSON_ARRAY)
        err_add(reader->err, "file '%s': field '%s' is %s; it must be a list", reader->at.file, key, json_type_name(node));
    return json_type(node) == JSON_ARRAY && json_first(node) != NULL ? node : NULL;
}

static bool right_length(struct model_reader *reader, const char *key, const struct json *list, int64_t layers)
{
    if (json_length(list) == layers)
        return true;
    err_add(reader->err, "file '%s': field '%s' has %d entries for %" PRId64 " layers", reader->at.file, key,
            json_length(list), layers);
    return false;
}

/* A list of words, each one of two. */
static void read_words(struct model_reader *reader, const char *key, const char *const *no, const char *const *yes,
                       int64_t layers, uint8_t *ret)
{
    const struct json *list = list_field(reader, key);
    if (list == NULL || !right_length(reader, key, list, layers))
        return;
    int i = 0;
    for (const struct json *child = json_first(list); child != NULL; child = json_next(child), i++) {
        const char *word = json_text(child);
        for (int j = 0; word != NULL && no[j] != NULL; j++)
            ret[i] = strcmp(word, no[j]) == 0 ? 0 : ret[i];
        for (int j = 0; word != NULL && yes[j] != NULL; j++)
            ret[i] = strcmp(word, yes[j]) == 0 ? 1 : ret[i];
        if (ret[i] == UNSET) {
            err_add(reader->err, "file '%s': field '%s[%d]' is %s%.40s%s, which is not understood", reader->at.file,
                    key, i, word != NULL ? "'" : "", word != NULL ? word : json_type_name(child),
                    word != NULL ? "'" : "");
            return;
        }
    }
}

/* Layer numbers; the others get the opposite when `all` is set. */
static void read_indices(struct model_reader *reader, const char *key, uint8_t value, bool all, int64_t layers,
                         uint8_t *ret)
{
    const struct json *list = list_field(reader, key);
    if (list == NULL)
        return;
    if (all)
        memset(ret, !value, (size_t)layers);
    int i = 0;
    for (const struct json *child = json_first(list); child != NULL; child = json_next(child), i++) {
        double index = json_double(child);
        bool whole =
            json_type(child) == JSON_NUMBER && index >= 0 && index < (double)layers && index == (double)(int)index;
        if (!whole) {
            err_add(reader->err, "file '%s': field '%s[%d]' is not a layer number from 0 to %" PRId64, reader->at.file,
                    key, i, layers - 1);
            return;
        }
        ret[(int)index] = value;
    }
}

/* moe_layer_freq: every n-th layer, or a list of 0 and 1. Returns n, or 1. */
static int64_t read_frequency(struct model_reader *reader, int64_t layers, uint8_t *ret)
{
    static const char key[] = "moe_layer_freq";
    int64_t frequency = 1;
    const struct json *node = json_get(reader->at.node, key);
    if (node == NULL || json_type(node) != JSON_ARRAY) {
        json_read_int(reader->at, key, 1, MODEL_LAYERS_MAX, &frequency, reader->err);
        return frequency;
    }
    if (!right_length(reader, key, node, layers))
        return 1;
    int i = 0;
    for (const struct json *child = json_first(node); child != NULL; child = json_next(child), i++) {
        bool is_number = json_type(child) == JSON_NUMBER;
        bool one = is_number && json_double(child) == 1.0; /* exactly what the file says */
        bool zero = is_number && json_double(child) == 0.0;
        if (!one && !zero) {
            err_add(reader->err, "file '%s': field '%s[%d]' must be 0 or 1", reader->at.file, key, i);
            return 1;
        }
        ret[i] = one;
    }
    return 1;
}

static void place_experts(struct model_reader *reader, int64_t layers, uint8_t *moe)
{
    static const char *const dense[] = {"dense", NULL}, *const sparse[] = {"sparse", "moe", NULL};
    int64_t first = reader->number[N_FIRST_DENSE] != ABSENT ? reader->number[N_FIRST_DENSE] : 0;
    int64_t last = reader->number[N_LAST_SPARSE] != ABSENT ? reader->number[N_LAST_SPARSE] : layers;
    int64_t step = reader->number[N_SPARSE_STEP] != ABSENT ? reader->number[N_SPARSE_STEP] : 1;
    int64_t frequency = read_frequency(reader, layers, moe);
    read_words(reader, "mlp_layer_types", dense, sparse, layers, moe);
    read_indices(reader, "moe_layers", 1, true, layers, moe);
    read_indices(reader, "mlp_only_layers", 0, false, layers, moe);
    for (int64_t i = 0; i < layers; i++) {
        if (moe[i] == UNSET)
            moe[i] = i >= first && i <= last && i % frequency == 0 && step > 0 && (i + 1) % step == 0;
    }
}

/* "LLLG": local and global layers, repeated. */
static void read_pattern(struct model_reader *reader, const char *key, const char *pattern, int64_t layers,
                         uint8_t *ret)
{
    size_t length = strlen(pattern);
    if (length == 0 || strspn(pattern, "LG") != length) {
        err_add(reader->err, "file '%s': field '%s' is '%.40s'; it must be a number or letters L and G",
                reader->at.file, key, pattern);
        return;
    }
    for (int64_t i = 0; i < layers; i++)
        ret[i] = pattern[(size_t)i % length] == 'L';
}

/* Which layers have the window, when there is one: a list, a pattern, or the family's habit. */
static void place_windows(struct model_reader *reader, int64_t layers, uint8_t *windowed)
{
    static const char *const full[] = {"full_attention", "attention", "global_attention", "global", "linear_attention", NULL};
    static const char *const window[] = {"sliding_attention", "chunked_attention", "local_attention", "local", NULL};
    int period = reader->family->period, whole = reader->family->full;
    bool newer = json_has(reader->at.node, "_sliding_window_pattern");
    const char *pattern_key = newer ? "_sliding_window_pattern" : "sliding_window_pattern";
    const char *pattern = json_text(json_get(reader->at.node, pattern_key));
    if (list_field(reader, "layer_types") != NULL)
        read_words(reader, "layer_types", full, window, layers, windowed);
    else if (list_field(reader, "attention_layers") != NULL)
        read_words(reader, "attention_layers", full, window, layers, windowed);
    else if (pattern != NULL)
        read_pattern(reader, pattern_key, pattern, layers, windowed);
    else if (json_read_int32(reader->at, pattern_key, 1, MODEL_LAYERS_MAX, &period, reader->err) == 1)
        whole = period - 1;
    bool late = (reader->family->traits & WINDOW_OFF) != 0 && reader->number[N_MAX_WINDOW_LAYERS] != ABSENT;
    int64_t from = late ? reader->number[N_MAX_WINDOW_LAYERS] : 0;
    for (int64_t i = 0; i < layers; i++) {
        if (windowed[i] == UNSET)
            windowed[i] = i >= from && (period == 0 || i % period != whole);
    }
}

static int64_t read_window(struct model_reader *reader)
{
    const char *key = reader->family->window_key != NULL ? reader->family->window_key : "sliding_window";
    int64_t window = 0;
    bool off = (reader->family->traits & WINDOW_OFF) != 0;
    if (reader->flag[B_USE_WINDOW] == 0 || (reader->flag[B_USE_WINDOW] == ABSENT && off))
        return 0;
    json_read_int(reader->at, key, -1, INT64_C(1) << 40, &window, reader->err);
    return window > 0 ? window : 0;
}

static int64_t or_else(int64_t value, int64_t other)
{
    return value != ABSENT ? value : other;
}

/* Widths of the MLPs; ABSENT where the file does not say. */
static void fill_kind(const struct model_reader *reader, const struct model *model, struct layer_kind *kind)
{
    if (kind->mixer_only)
        return;
    const int64_t *n = reader->number;
    uint32_t traits = reader->family->traits;
    int64_t ffn = n[N_FFN] != ABSENT && (traits & HALF_FFN) != 0 ? n[N_FFN] / 2 : n[N_FFN];
    if (ffn == ABSENT && (traits & FOUR_H) != 0)
        ffn = or_else(n[N_EXPANSION], 4) * model->hidden;
    if (!kind->moe) {
        kind->ffn = or_else(n[N_DENSE_FFN], ffn);
        return;
    }
    kind->ffn = or_else(n[N_EXPERT_FFN], ffn);
    kind->shared_ffn = (traits & SHARED_ONE) != 0 ? kind->ffn : 0;
    if (n[N_SHARED_EXPERTS] != ABSENT)
        kind->shared_ffn = n[N_SHARED_EXPERTS] * kind->ffn;
    kind->shared_ffn = or_else(n[N_SHARED_FFN], kind->shared_ffn);
    kind->shared_gate = kind->shared_ffn > 0 && (traits & SHARED_GATE) != 0;
}

static bool same_kind(const struct layer_kind *a, const struct layer_kind *b)
{
    return a->mixer == b->mixer && a->mixer_only == b->mixer_only && a->moe == b->moe && a->ffn == b->ffn && a->shared_ffn == b->shared_ffn && a->window == b->window &&
           a->chunked == b->chunked;
}

static int find_kind(struct model *model, const struct layer_kind *kind)
{
    for (int i = 0; i < model->n_kinds; i++) {
        if (same_kind(&model->kinds[i], kind))
            return i;
    }
    model->kinds[model->n_kinds] = *kind; /* eight at most: dense or experts, window or not; two mixers or one of four blocks */
    return model->n_kinds++;
}

static struct layer_kind kind_of(const struct model_reader *reader, const struct model *model, const struct layer_block *block, bool moe, int64_t window)
{
    struct layer_kind kind = {.mixer = (enum layer_mixer)block->mixer, .mixer_only = block->mixer_only, .moe = moe};
    fill_kind(reader, model, &kind);
    kind.window = kind.mixer == MIXER_ATTENTION ? window : 0;
    kind.chunked = kind.window > 0 && (reader->family->traits & CHUNKED) != 0;
    return kind;
}

/* A module repeats the last layer unless the file lists its blocks. */
static void read_mtp_layers(struct model_reader *reader, struct model *model)
{
    struct layer_block blocks[MODEL_MTP_LAYERS_MAX];
    model->n_mtp_layers = model_read_mtp_blocks(reader, blocks, MODEL_MTP_LAYERS_MAX);
    for (int i = 0; i < model->n_mtp_layers; i++) {
        struct layer_kind kind = kind_of(reader, model, &blocks[i], blocks[i].moe, 0);
        model->mtp_kind[i] = (uint8_t)find_kind(model, &kind);
    }
    if (model->n_mtp_layers > 0)
        return;
    model->n_mtp_layers = 1;
    model->mtp_kind[0] = model->kind_of_layer[model->layers - 1];
}

void model_read_layers(struct model_reader *reader, struct model *model)
{
    struct layer_words words;
    memset(&words, UNSET, sizeof(words));
    int64_t window = read_window(reader);
    bool stated = model_read_blocks(reader, model->layers, words.block);
    if (stated)
        for (int64_t i = 0; i < model->layers; i++)
            words.moe[i] = words.block[i].moe;
    else if (model->experts > 0)
        place_experts(reader, model->layers, words.moe);
    else
        memset(words.moe, 0, sizeof(words.moe));
    place_windows(reader, model->layers, words.windowed);
    for (int64_t i = 0; i < model->layers; i++) {
        struct layer_kind kind = kind_of(reader, model, &words.block[i], words.moe[i] == 1, words.windowed[i] == 1 ? window : 0);
        model->kind_of_layer[i] = (uint8_t)find_kind(model, &kind);
        model->kinds[model->kind_of_layer[i]].layers++;
    }
    if (model->mtp_modules > 0)
        read_mtp_layers(reader, model);
}
