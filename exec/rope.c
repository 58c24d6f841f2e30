/* default  f_i = theta^(-2i/d)
 * linear   f_i / factor (Chen et al. 2023, arXiv 2306.15595)
 * llama3   long wavelengths (beyond original / low) divided by the factor, short ones (below original / high) kept, in
 *          between a mixture that is linear in original / wavelength (Llama 3.1)
 * yarn     pairs that turn more than beta_fast times over the original length kept, less than beta_slow divided, a ramp
 *          over the pairs in between; cosine and sine times 0.1 ln(factor) + 1 (Peng et al. 2023, arXiv 2309.00071) */
#include "exec/rope.h"

#include <math.h>
#include <string.h>

#include "cost/base/err.h"
#include "cost/base/json.h"
#include "cost/base/names.h"

static const double pi = 3.14159265358979323846;

static double number(const struct json *object, const char *key, double otherwise)
{
    const struct json *node = object ? json_get(object, key) : NULL;
    return node && json_type(node) == JSON_NUMBER ? json_double(node) : otherwise;
}

static const struct json *object_of(const struct json *config)
{
    static const char *const keys[] = {"rope_scaling", "rope_parameters"};
    for (int i = 0; i < 2; i++) {
        const struct json *node = json_get(config, keys[i]);
        if (node && json_type(node) == JSON_OBJECT)
            return node;
    }
    return NULL;
}

static int read_kind(const struct json *scaling, const char *file, enum rope_kind *ret, struct err *err)
{
    static const char *const words[] = {"default", "linear", "llama3", "yarn", NULL};
    const struct json *node = json_has(scaling, "rope_type") ? json_get(scaling, "rope_type") : json_get(scaling, "type");
    const char *word = node && json_type(node) == JSON_STRING ? json_text(node) : words[ROPE_DEFAULT];
    char list[64];
    for (const struct json *child = json_first(scaling); child; child = json_next(child))
        if (json_type(child) == JSON_OBJECT)
            return err_add(err, "model '%s': planexec does not run rotary positions that differ from layer to layer", file);
    if (strcmp(word, "mrope") == 0) /* of text, the same as default */
        word = words[ROPE_DEFAULT];
    int kind = names_find(words, word);
    if (kind < 0)
        return err_add(err, "model '%s': planexec does not know the rope_type '%s'; it has %s", file, word,
                       names_join(words, list, sizeof list));
    *ret = (enum rope_kind)kind;
    return 0;
}

static double attention_scale(double factor, double mscale)
{
    return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1;
}

static double attention_factor(const struct json *scaling, double factor)
{
    double mscale = number(scaling, "mscale", 0), all = number(scaling, "mscale_all_dim", 0);
    double usual = mscale > 0 && all > 0 ? attention_scale(factor, mscale) / attention_scale(factor, all)
                                         : attention_scale(factor, 1);
    return number(scaling, "attention_factor", usual);
}

/* Not by whole heads: partial_rotary_factor of Phi and GLM, rotary_pct of GPT-NeoX. */
static bool is_partial(const struct json *config, const struct json *scaling)
{
    double part = number(config, "partial_rotary_factor", number(config, "rotary_pct", 1));
    part = number(scaling, "partial_rotary_factor", part);
    return part < 1 || part > 1;
}

int rope_read(const struct json *config, const char *file, struct rope *ret, struct err *err)
{
    const struct json *scaling = object_of(config);
    double theta = number(scaling, "rope_theta", 10000), positions = number(config, "max_position_embeddings", 2048);
    *ret = (struct rope){.theta = number(config, "rope_theta", number(config, "rotary_emb_base", theta)),
                         .factor = 1,
                         .attention_factor = 1,
                         .truncate = true};
    if (is_partial(config, scaling))
        return err_add(err, "model '%s': planexec does not rotate parts of heads (partial_rotary_factor)", file);
    if (!scaling)
        return 0;
    if (read_kind(scaling, file, &ret->kind, err) < 0)
        return -1;
    ret->original_positions = number(scaling, "original_max_position_embeddings",
                                     number(config, "original_max_position_embeddings", positions));
    ret->factor = number(scaling, "factor", ret->kind == ROPE_YARN ? positions / ret->original_positions : 1);
    ret->low_frequency = number(scaling, "low_freq_factor", 1);
    ret->high_frequency = number(scaling, "high_freq_factor", 4);
    ret->beta_fast = number(scaling, "beta_fast", 32);
    ret->beta_slow = number(scaling, "beta_slow", 1);
    const struct json *truncate = json_get(scaling, "truncate");
    ret->truncate = !truncate || json_type(truncate) != JSON_BOOL || json_true(truncate);
    if (ret->kind == ROPE_YARN)
        ret->attention_factor = attention_factor(scaling, ret->factor);
    if (!(ret->factor > 0) || !(ret->original_positions > 0) || !(ret->theta > 1))
        return err_add(err, "model '%s': rope_scaling has no factor above 0", file);
    return 0;
}

static double llama3(const struct rope *r, double frequency)
{
    double turns = r->original_positions * frequency / (2 * pi); /* over the original length */
    if (turns < r->low_frequency)
        return frequency / r->factor;
    if (turns > r->high_frequency || !(r->high_frequency > r->low_frequency))
        return frequency;
    double smooth = (turns - r->low_frequency) / (r->high_frequency - r->low_frequency);
    return (1 - smooth) * frequency / r->factor + smooth * frequency;
}

/* The pair, as a fraction, that turns so many times over the original length. */
static double pair_of(const struct rope *r, int head_dim, double turns)
{
    return head_dim * log(r->original_positions / (turns * 2 * pi)) / (2 * log(r->theta));
}

static double yarn(const struct rope *r, int head_dim, int pair, double frequency)
{
    double low = pair_of(r, head_dim, r->beta_fast), high = pair_of(r, head_dim, r->beta_slow);
    low = fmax(r->truncate ? floor(low) : low, 0);
    high = fmin(r->truncate ? ceil(high) : high, head_dim - 1);
    if (!(high > low) && !(high < low))
        high += 0.001;
    double divided = fmin(fmax((pair - low) / (high - low), 0), 1);
    return divided * frequency / r->factor + (1 - divided) * frequency;
}

void rope_frequencies(const struct rope *rope, int head_dim, double *ret)
{
    for (int i = 0; i < head_dim / 2; i++) {
        double frequency = pow(rope->theta, -2.0 * i / head_dim);
        switch (rope->kind) {
        case ROPE_DEFAULT:
            ret[i] = frequency;
            break;
        case ROPE_LINEAR:
            ret[i] = frequency / rope->factor;
            break;
        case ROPE_LLAMA3:
            ret[i] = llama3(rope, frequency);
            break;
        case ROPE_YARN:
            ret[i] = yarn(rope, head_dim, i, frequency);
            break;
        }
    }
}
