/* --fix tp=8,recompute=selective,cuda_graph=partial: fields of the plan that the search leaves alone.
 *
 * Fields that the search varies are pinned in struct search_fix; every other field of plan.json is read by plan.json's own
 * reader onto the plan that all candidates start from, so that --fix knows what the file knows. Lists are joined by '+',
 * on, yes and 1 are true. A field given twice and fields that contradict each other are errors. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cost/base/err.h"
#include "cost/base/json.h"
#include "cost/base/names.h"
#include "cost/base/unit.h"
#include "sim/search.h"

enum fix_type { FIX_COUNT, FIX_LAYERS, FIX_ZERO, FIX_SWITCH, FIX_WORD };

/* A field that the search varies. */
struct fix_field {
    const char *name;
    enum fix_type type;
    int *target;
    const char *const *words; /* FIX_WORD */
};

static const char *const switch_words[] = {"off", "on", "no", "yes", "0", "1", "false", "true", NULL};
static const char *const order_words[] = {"tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp", NULL};
static const char *const list_fields[] = {"recompute_modules", "offload_modules", "lora_modules", NULL};

enum { NAMES_MAX = 80, NAME_BYTES = 40, ITEM_BYTES = 320 };

/* What is known while the list is read. */
struct fix_reader {
    struct search_options options;
    int schedule;            /* -1 = free */
    const char *const *taken; /* fields that an option of their own states; NULL = none */
    int n_seen;
    char seen[NAMES_MAX][NAME_BYTES];
    struct err *err;
};

static int fix_word(const char *name, const char *const *words, const char *value, int *target, struct err *err)
{
    char all[256];
    int i = names_find(words, value);
    const char *nearest = i < 0 ? names_nearest(words, value) : NULL;
    if (nearest)
        return err_add(err, "--fix %s '%s' is not one of %s; did you mean '%s'?", name, value, names_join(words, all, sizeof all), nearest);
    if (i < 0)
        return err_add(err, "--fix %s '%s' is not one of %s", name, value, names_join(words, all, sizeof all));
    *target = i;
    return 0;
}

static int fix_number(const char *name, const char *value, int64_t min, int64_t max, int *target, struct err *err)
{
    int64_t number;
    struct err ignored = {0};
    if (unit_parse_int(value, min, max, &number, &ignored) < 0)
        return err_add(err, "--fix %s '%s' is not a whole number from %lld to %lld", name, value, (long long)min, (long long)max);
    *target = (int)number;
    return 0;
}

static int fix_value(const struct fix_field *f, const char *value, struct err *err)
{
    switch (f->type) {
    case FIX_COUNT: return fix_number(f->name, value, 1, 1 << 20, f->target, err);
    case FIX_LAYERS: return fix_number(f->name, value, 0, UINT16_MAX, f->target, err);
    case FIX_ZERO: return fix_number(f->name, value, 0, 3, f->target, err);
    case FIX_WORD: return fix_word(f->name, f->words, value, f->target, err);
    case FIX_SWITCH: break;
    }
    if (fix_word(f->name, switch_words, value, f->target, err) < 0)
        return -1;
    *f->target %= 2;
    return 0;
}

/* --- fields that the search does not vary ------------------------------------- */

/* The value as plan.json writes it. */
static void put_value(struct json *object, const char *key, const char *value, enum json_type type)
{
    struct err ignored = {0};
    double number;
    int word = names_find(switch_words, value);
    if (names_find(list_fields, key) >= 0) {
        struct json *list = json_put_array(object, key);
        for (const char *at = value;; at++) {
            char module[ITEM_BYTES];
            snprintf(module, sizeof module, "%.*s", (int)strcspn(at, "+"), at);
            json_push_string(list, module);
            at += strcspn(at, "+");
            if (!*at)
                break;
        }
    } else if (type == JSON_BOOL && word >= 0) {
        json_put_bool(object, key, word % 2 == 1);
    } else if (unit_parse_double(value, -1e18, 1e18, &number, &ignored) == 0) {
        json_put_number(object, key, number);
    } else {
        json_put_string(object, key, value);
    }
}

/* plan.json's sentences speak of a file and a field. */
static int add_sentences(struct err *err, const struct err *from)
{
    static const char theirs[] = "file '--fix': field ";
    for (const char *text = from->text; *text;) {
        size_t length = strcspn(text, "\n"), skip = strncmp(text, theirs, sizeof theirs - 1) == 0 ? sizeof theirs - 1 : 0;
        err_add(err, "%s%.*s", skip ? "--fix " : "", (int)(length - skip), text + skip);
        text += length + (text[length] == '\n');
    }
    return -1;
}

/* The type of a field in plan.json; false = it has no such field. */
static bool field_type(const char *name, enum json_type *ret)
{
    struct plan plan;
    plan_defaults(&plan);
    struct json *root = plan_to_json(&plan);
    const char *dot = strchr(name, '.');
    const struct json *node = dot && strncmp(name, "overlap.", 8) == 0 ? json_get(json_get(root, "overlap"), dot + 1) : json_get(root, name);
    *ret = node ? json_type(node) : JSON_NULL;
    bool found = node && *ret != JSON_OBJECT;
    json_free(root);
    return found;
}

static int fix_plan_field(struct fix_reader *r, const char *name, const char *value, enum json_type type)
{
    struct err problems = {0};
    struct json *root = json_new_object();
    const char *dot = strchr(name, '.');
    put_value(dot ? json_put_object(root, "overlap") : root, dot ? dot + 1 : name, value, type);
    int result = plan_parse_onto(root, "--fix", &r->options.base, NULL, &problems);
    json_free(root);
    return result < 0 ? add_sentences(r->err, &problems) : 0;
}

/* Names of other tools are known to plan.json's reader; the nearest of ours to everybody. */
static int unknown_field(struct fix_reader *r, const char *name, const char *const *names)
{
    struct err problems = {0};
    struct plan plan;
    char all[NAMES_MAX * NAME_BYTES];
    const char *nearest = names_nearest(names, name);
    if (nearest)
        return err_add(r->err, "--fix knows no '%s'; did you mean '%s'?", name, nearest);
    plan_defaults(&plan);
    struct json *root = json_new_object();
    json_put_null(root, name);
    int result = plan_parse_onto(root, "--fix", &plan, NULL, &problems);
    json_free(root);
    if (result < 0)
        return add_sentences(r->err, &problems);
    return err_add(r->err, "--fix knows no '%s'; it can be %s", name, names_join(names, all, sizeof all));
}

/* --- the list --------------------------------------------------------------- */

static bool seen_before(struct fix_reader *r, const char *name)
{
    for (int i = 0; i < r->n_seen; i++)
        if (strcmp(r->seen[i], name) == 0)
            return true;
    if (r->n_seen < NAMES_MAX)
        snprintf(r->seen[r->n_seen++], NAME_BYTES, "%s", name);
    return false;
}

static int fix_field(struct fix_reader *r, const struct fix_field *fields, int n, const char *name, const char *value)
{
    static const char *const aliases[][2] = {{"mbs", "micro_batch"}, {"sp", "sequence_parallel"}};
    enum json_type type = JSON_NULL;
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++)
        name = strcmp(name, aliases[i][0]) == 0 ? aliases[i][1] : name;
    int i = 0;
    while (i < n && strcmp(fields[i].name, name) != 0)
        i++;
    if (strcmp(name, "layers_per_stage") == 0)
        return err_add(r->err, "--fix cannot pin layers_per_stage: the search deals the layers to pp x vp chunks itself; give such a plan to predict");
    if (i == n && !field_type(name, &type))
        return 1;
    if (seen_before(r, name))
        return err_add(r->err, "--fix %s is there twice", name);
    if (r->taken && names_find(r->taken, name) >= 0)
        return err_add(r->err, "--fix %s and an option of its own are both there; leave one of them out", name);
    return i < n ? fix_value(&fields[i], value, r->err) : fix_plan_field(r, name, value, type);
}

/* All that --fix takes, for messages. */
static int gather_names(const struct fix_field *fields, int n, const char **names, struct json *root)
{
    int count = 0;
    for (int i = 0; i < n; i++)
        names[count++] = fields[i].name;
    for (const struct json *node = json_first(root); node && count < NAMES_MAX; node = json_next(node))
        if (names_find(names, json_key(node)) < 0 && json_type(node) != JSON_OBJECT && strcmp(json_key(node), "layers_per_stage") != 0)
            names[count++] = json_key(node);
    static const char *const inner[] = {"overlap.dp_grad", "overlap.dp_param", "overlap.tp", "overlap.p2p"};
    for (size_t i = 0; i < sizeof inner / sizeof *inner; i++)
        names[count++] = inner[i];
    return count;
}

/* Without the blanks around it. */
static char *trim(char *text)
{
    text += strspn(text, " \t");
    size_t n = strlen(text);
    while (n > 0 && (text[n - 1] == ' ' || text[n - 1] == '\t'))
        text[--n] = 0;
    return text;
}

static int fix_item(struct fix_reader *r, const struct fix_field *fields, int n, const char *text, size_t length)
{
    char item[ITEM_BYTES];
    snprintf(item, sizeof item, "%.*s", (int)(length < sizeof item ? length : sizeof item - 1), text);
    char *equals = strchr(item, '=');
    if (!equals || length >= sizeof item || strlen(item) < length)
        return err_add(r->err, "--fix '%s' is not of the form name=value", item);
    *equals = 0;
    const char *name = trim(item), *value = trim(equals + 1);
    int result = fix_field(r, fields, n, name, value);
    if (result <= 0)
        return result;
    const char *names[NAMES_MAX + 8] = {NULL};
    struct plan plan;
    plan_defaults(&plan);
    struct json *root = plan_to_json(&plan);
    gather_names(fields, n, names, root);
    result = unknown_field(r, name, names);
    json_free(root);
    return result;
}

/* Layers and modules mean something with one kind of recompute only, and imply it. */
static int fix_recompute(struct fix_reader *r)
{
    struct search_fix *x = &r->options.fix;
    bool layers = x->recompute_layers >= 0, modules = r->options.base.recompute_modules != 0;
    enum recompute kind = layers ? RECOMPUTE_FULL : RECOMPUTE_SELECTIVE;
    const char *field = layers ? "recompute_layers" : "recompute_modules";
    if (!layers && !modules)
        return 0;
    if (layers && modules)
        return err_add(r->err, "--fix recompute_layers and recompute_modules contradict each other: layers are of recompute=full, modules of recompute=selective");
    if (x->recompute >= 0 && x->recompute != (int)kind)
        return err_add(r->err, "--fix %s goes only with recompute=%s, not recompute=%s", field, recompute_names[kind], recompute_names[x->recompute]);
    x->recompute = kind;
    return 0;
}

int search_parse_fix(const char *text, const char *const *taken, struct search_options *options, struct err *err)
{
    struct fix_reader r = {.options = *options, .schedule = -1, .taken = taken, .err = err};
    struct search_fix *x = &r.options.fix;
    const struct fix_field fields[] = {
        {"tp", FIX_COUNT, &x->tp, NULL}, {"cp", FIX_COUNT, &x->cp, NULL}, {"pp", FIX_COUNT, &x->pp, NULL}, {"vp", FIX_COUNT, &x->vp, NULL},
        {"dp", FIX_COUNT, &x->dp, NULL}, {"ep", FIX_COUNT, &x->ep, NULL}, {"etp", FIX_COUNT, &x->etp, NULL}, {"micro_batch", FIX_COUNT, &x->micro_batch, NULL},
        {"zero", FIX_ZERO, &x->zero, NULL}, {"sequence_parallel", FIX_SWITCH, &x->sequence_parallel, NULL}, {"recompute", FIX_WORD, &x->recompute, recompute_names},
        {"recompute_layers", FIX_LAYERS, &x->recompute_layers, NULL}, {"rank_order", FIX_WORD, &x->order, order_words},
        {"context_parallel", FIX_WORD, &x->context_parallel, context_parallel_names}, {"overlap.ep", FIX_SWITCH, &x->overlap_ep, NULL},
        {"schedule", FIX_WORD, &r.schedule, schedule_names}};
    int result = 0;
    while (*text) {
        size_t length = strcspn(text, ",");
        if (fix_item(&r, fields, sizeof fields / sizeof *fields, text, length) < 0)
            result = -1;
        text += length + (text[length] == ',');
    }
    if (result == 0 && fix_recompute(&r) < 0)
        result = -1;
    if (r.schedule >= 0)
        r.options.schedules = 1u << r.schedule;
    if (result == 0)
        *options = r.options;
    return result;
}
