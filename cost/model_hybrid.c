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

/* Blocks by letters or by words; -1 with a sentence, 0 where neither field is there. */
static int read_pattern(struct model_reader *reader, const char *letters_key, const char *words_key, struct layer_block *ret, int max)
{
    const char *letters = json_text(json_get(reader->at.node, letters_key));
    const struct json *words = json_get(reader->at.node, words_key), *child = json_first(words);
    int n = 0;
    for (; n < max && (letters ? letters[n] != '\0' : child != NULL); n++) {
        const char *word = letters ? NULL : json_text(child);
        int found = 0;
        while (found < BLOCKS && !(letters ? letters[n] == blocks[found].letter : word && strcmp(word, blocks[found].word) == 0))
            found++;
        if (found == BLOCKS) {
            char letter[2] = {letters ? letters[n] : '\0', '\0'};
            return err_add(reader->err, "file '%s': field '%s[%d]' is '%.40s', which is not understood; it must be %s", reader->at.file,
                           letters ? letters_key : words_key, n, letters ? letter : word ? word : json_type_name(child),
                           letters ? "one of M, *, -, E" : "mamba, attention, mlp or moe");
        }
        ret[n] = blocks[found].block;
        child = letters ? NULL : json_next(child);
    }
    if (letters ? letters[n] != '\0' : child != NULL)
        return err_add(reader->err, "file '%s': field '%s' has more than %d entries", reader->at.file, letters ? letters_key : words_key, max);
    return n;
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
