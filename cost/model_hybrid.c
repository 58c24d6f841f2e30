/* Models whose layers differ in what mixes tokens.
 *
 * Nemotron-H (configuration_nemotron_h.py): hybrid_override_pattern, a letter per layer, each of them one block with its
 * own norm: M Mamba-2, * attention, - MLP, E experts; or the same as words in layers_block_type.
 * Qwen3-Next, Qwen3.5 (configuration_qwen3_next.py): layer_types with linear_attention, or every
 * full_attention_interval-th layer attention and the others gated delta nets; each with an MLP behind it. */
#include "cost/model_internal.h"

#include <stddef.h>
#include <string.h>

#include "cost/base/err.h"
#include "cost/model.h"

const char *const layer_mixer_names[] = {"attention", "Mamba-2", "gated delta net", "no mixer", NULL};

_Static_assert(sizeof(layer_mixer_names) / sizeof(layer_mixer_names[0]) == MIXERS + 1, "one word per mixer");

static const struct {
    char letter;
    const char *word;
    struct layer_block block;
} blocks[] = {
    {'M', "mamba", {MIXER_MAMBA2, true, false}},
    {'*', "attention", {MIXER_ATTENTION, true, false}},
    {'-', "mlp", {MIXER_NONE, false, false}},
    {'E', "moe", {MIXER_NONE, false, true}},
};
enum { BLOCKS = sizeof(blocks) / sizeof(blocks[0]) };

static bool hybrid(const struct model_reader *reader)
{
    return (reader->family->traits & HYBRID) != 0;
}

/* A letter may take several bytes, of which the first says how many go with it. */
static int letter_bytes(const char *text)
{
    int n = 1;
    while (((unsigned char)text[n] & 0xC0) == 0x80)
        n++;
    return n;
}

static int read_letters(struct model_reader *reader, const char *key, const char *letters, struct layer_block *ret, int max)
{
    int n = 0;
    for (; n < max && letters[n] != '\0'; n++) {
        int found = 0;
        while (found < BLOCKS && letters[n] != blocks[found].letter)
            found++;
        if (found == BLOCKS)
            return err_add(reader->err, "file '%s': field '%s[%d]' is '%.*s', which is not understood; it must be one of M, *, -, E", reader->at.file,
                           key, n, letter_bytes(letters + n), letters + n);
        ret[n] = blocks[found].block;
    }
    return letters[n] == '\0' ? n : err_add(reader->err, "file '%s': field '%s' has more than %d entries", reader->at.file, key, max);
}

static int read_words(struct model_reader *reader, const char *key, const struct json *words, struct layer_block *ret, int max)
{
    int n = 0;
    const struct json *child = json_first(words);
    for (; n < max && child != NULL; n++, child = json_next(child)) {
        const char *word = json_text(child);
        int found = 0;
        while (found < BLOCKS && !(word && strcmp(word, blocks[found].word) == 0))
            found++;
        if (found == BLOCKS)
            return err_add(reader->err, "file '%s': field '%s[%d]' is %s%.40s%s, which is not understood; it must be mamba, attention, mlp or moe",
                           reader->at.file, key, n, word ? "'" : "", word ? word : json_type_name(child), word ? "'" : "");
        ret[n] = blocks[found].block;
    }
    return child == NULL ? n : err_add(reader->err, "file '%s': field '%s' has more than %d entries", reader->at.file, key, max);
}

/* In *ret the field, NULL where it is absent or null. */
static int find_field(struct model_reader *reader, const char *key, enum json_type type, const struct json **ret)
{
    *ret = json_get(reader->at.node, key);
    if (*ret != NULL && json_type(*ret) == JSON_NULL)
        *ret = NULL;
    if (*ret == NULL || json_type(*ret) == type)
        return 0;
    return err_add(reader->err, "file '%s': field '%s' is %s; it must be %s", reader->at.file, key, json_type_name(*ret),
                   type == JSON_STRING ? "a string" : "a list");
}

static bool same_blocks(const struct layer_block *a, const struct layer_block *b, int n)
{
    int same = 0;
    while (same < n && a[same].mixer == b[same].mixer && a[same].mixer_only == b[same].mixer_only && a[same].moe == b[same].moe)
        same++;
    return same == n;
}

/* Blocks by letters or by words; -1 with a sentence, 0 where neither field is there. */
static int read_pattern(struct model_reader *reader, const char *letters_key, const char *words_key, struct layer_block *ret, int max)
{
    const struct json *letters, *words;
    struct layer_block again[MODEL_LAYERS_MAX];
    if (find_field(reader, letters_key, JSON_STRING, &letters) < 0 || find_field(reader, words_key, JSON_ARRAY, &words) < 0)
        return -1;
    if (letters == NULL)
        return read_words(reader, words_key, words, ret, max);
    int n = read_letters(reader, letters_key, json_text(letters), ret, max);
    if (n < 0 || words == NULL)
        return n;
    int other = read_words(reader, words_key, words, again, max);
    if (other < 0 || (other == n && same_blocks(ret, again, n)))
        return other;
    return err_add(reader->err, "file '%s': fields '%s' and '%s' mean the same and disagree", reader->at.file, letters_key, words_key);
}

void model_read_mixers(struct model_reader *reader, struct model *model)
{
    const int64_t *n = reader->number;
    if (!hybrid(reader))
        return;
    model->ssm_heads = n[N_SSM_HEADS];
    model->ssm_head_dim = n[N_SSM_HEAD_DIM];
    model->ssm_groups = n[N_SSM_GROUPS];
    model->ssm_state = n[N_SSM_STATE];
    model->ssm_conv = n[N_SSM_CONV];
    model->ssm_conv_bias = reader->flag[B_CONV_BIAS] == 1;
    if (model->layers == ABSENT) { /* Nemotron 3 Ultra counts them by its list alone */
        struct layer_block list[MODEL_LAYERS_MAX];
        int layers = read_pattern(reader, "hybrid_override_pattern", "layers_block_type", list, MODEL_LAYERS_MAX);
        reader->number[N_LAYERS] = model->layers = layers > 0 ? layers : ABSENT;
        reader->reported[N_LAYERS] |= layers < 0;
    }
}

/* Attention among gated delta nets. */
static void place_attention(struct model_reader *reader, int64_t layers, struct layer_block *ret)
{
    const struct json *word = json_first(json_get(reader->at.node, "layer_types"));
    int64_t every = reader->number[N_FULL_INTERVAL] != ABSENT ? reader->number[N_FULL_INTERVAL] : 4;
    for (int64_t i = 0; i < layers; i++) {
        bool linear = word ? json_text(word) && strcmp(json_text(word), "linear_attention") == 0 : (i + 1) % every != 0;
        ret[i] = (struct layer_block){.mixer = linear ? MIXER_DELTA_NET : MIXER_ATTENTION};
        word = word ? json_next(word) : NULL;
    }
}

bool model_read_blocks(struct model_reader *reader, int64_t layers, struct layer_block *ret)
{
    memset(ret, 0, (size_t)layers * sizeof(*ret));
    if (!hybrid(reader))
        return false;
    if ((reader->family->traits & GATED) != 0) {
        place_attention(reader, layers, ret);
        return false;
    }
    int n = read_pattern(reader, "hybrid_override_pattern", "layers_block_type", ret, (int)layers);
    if (n >= 0 && n != layers)
        err_add(reader->err, "file '%s': hybrid_override_pattern or layers_block_type has %d entries for %lld layers", reader->at.file, n,
                (long long)layers);
    return true;
}

int model_read_mtp_blocks(struct model_reader *reader, struct layer_block *ret, int max)
{
    int n = hybrid(reader) ? read_pattern(reader, "mtp_hybrid_override_pattern", "mtp_layers_block_type", ret, max) : 0;
    return n > 0 ? n : 0;
}

int64_t model_ssm_inner(const struct model *model)
{
    return model->ssm_heads * model->ssm_head_dim;
}

int64_t model_ssm_keys(const struct model *model)
{
    return 2 * model->ssm_groups * model->ssm_state;
}

/* Mamba-2: z, x, B, C and a step per head; delta net: q, k, v, z, and two gates per head. */
int64_t model_ssm_input(const struct model *model, enum layer_mixer mixer)
{
    return 2 * model_ssm_inner(model) + model_ssm_keys(model) + (mixer == MIXER_DELTA_NET ? 2 : 1) * model->ssm_heads;
}

int64_t model_expert_width(const struct model *model)
{
    return model->moe_latent > 0 ? model->moe_latent : model->hidden;
}
