/* Hardware of hw.json: names of profiles, or inline objects with the same fields. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cost/base/err.h"
#include "cost/base/names.h"
#include "cost/cluster_internal.h"
#include "cost/profile_fields.h"

enum { KEYS_MAX = 64, PATH_MAX_BYTES = 200 };

static const char *place(struct json_at at, const char *key, char buffer[PATH_MAX_BYTES])
{
    snprintf(buffer, PATH_MAX_BYTES, "%s%s%s", at.path, at.path[0] != '\0' ? "." : "", key);
    return buffer;
}

/* "3.35TB/s", "80 GiB": a number and a unit of this dimension. */
static bool parse_quantity(const char *text, enum profile_dimension dimension, double *ret)
{
    char *end;
    double number = strtod(text, &end);
    if (end == text)
        return false;
    while (*end == ' ')
        end++;
    double factor = profile_unit_factor(end, dimension);
    *ret = number * factor;
    return factor > 0;
}

static int set_number(struct json_at at, const struct profile_field *field, const struct json *node, void *object,
                      struct err *err)
{
    char path[PATH_MAX_BYTES], units[128];
    double value = (double)NAN;
    place(at, field->name, path);
    if (json_type(node) == JSON_NUMBER)
        value = json_double(node);
    else if (json_type(node) == JSON_BOOL && field->type == FIELD_BOOL)
        value = json_true(node);
    else if (json_type(node) != JSON_STRING || field->dimension == DIMENSION_ONE)
        return err_add(err, "file '%s': field '%s' is %s; it must be a number in %s", at.file, path,
                       json_type_name(node), profile_unit_si(field->dimension));
    else if (!parse_quantity(json_text(node), field->dimension, &value))
        return err_add(err, "file '%s': field '%s' is '%.40s'; it must be a number with one of the units %s", at.file,
                       path, json_text(node), profile_unit_list(field->dimension, units, sizeof(units)));
    if (!isfinite(value) || value < field->min || value > field->max)
        return err_add(err, "file '%s': field '%s' is %g; allowed: %g to %g %s", at.file, path, value, field->min,
                       field->max, profile_unit_si(field->dimension));
    if (field->type != FIELD_DOUBLE && floor(value) < value)
        return err_add(err, "file '%s': field '%s' is %g; it must be a whole number", at.file, path, value);
    profile_field_set(field, object, value, NULL);
    return 0;
}

static int set_word(struct json_at at, const struct profile_field *field, void *object, struct err *err)
{
    const char *word = NULL;
    int index;
    if (field->type == FIELD_LINK_CLASS)
        return json_read_enum(at, field->name, link_class_names, &index, err) < 0
                   ? -1
                   : (profile_field_set(field, object, 0, link_class_names[index]), 0);
    if (json_read_string(at, field->name, &word, err) < 0)
        return -1;
    if (word != NULL && strlen(word) >= sizeof(((struct accelerator *)0)->default_link))
        return err_add(err, "file '%s': field '%s.%s' is too long for a name", at.file, at.path, field->name);
    if (word != NULL)
        profile_field_set(field, object, 0, word);
    return 0;
}

/* The fields of one section that `at` states, over those already in object; `extra` keys are somebody else's. */
static int read_fields(struct json_at at, enum profile_section section, const char *const *extra, bool based,
                       void *object, struct err *warn, struct err *err)
{
    const char *known[KEYS_MAX];
    char path[PATH_MAX_BYTES];
    int n = 0, bad = 0;
    for (int i = 0; extra[i] != NULL; i++)
        known[n++] = extra[i];
    for (const struct profile_field *field = profile_fields(section); field->name != NULL; field++) {
        known[n++] = field->name;
        if (strcmp(field->name, "base") == 0)
            continue;
        if (!json_has(at.node, field->name)) {
            bool elsewhere = strcmp(field->name, "default_link") == 0; /* intra_node may name the link: asked for there */
            if (!based && field->required && !elsewhere)
                bad = err_add(err, "file '%s': field '%s' is missing; state it, or name a 'base'", at.file,
                              place(at, field->name, path));
            else if (!based && field->dimension != DIMENSION_NAME)
                profile_field_set(field, object, field->fallback, NULL);
            continue;
        }
        bad |= field->dimension == DIMENSION_NAME ? set_word(at, field, object, err)
                                                  : set_number(at, field, json_get(at.node, field->name), object, err);
    }
    known[n] = NULL;
    return json_check_keys(at, known, warn, err) < 0 ? -1 : bad;
}

/* What a hardware field is: 1 a name (in *ret_name), 2 an object (in *ret_at), -1 neither. path: room for *ret_at's. */
static int kind_of(struct json_at at, const char *key, const char **ret_name, struct json_at *ret_at,
                   char path[PATH_MAX_BYTES], struct err *err)
{
    const struct json *node = json_get(at.node, key);
    place(at, key, path);
    if (json_type(node) == JSON_STRING) {
        *ret_name = json_text(node);
        return 1;
    }
    if (json_type(node) != JSON_OBJECT)
        return err_add(err, "file '%s': field '%s' is %s; it must be a name or an object", at.file, path,
                       json_type_name(node));
    *ret_at = (struct json_at){at.file, path, node};
    return 2;
}

const char *cluster_base_name(struct json_at at, const char *key)
{
    const struct json *node = json_get(at.node, key);
    if (node != NULL && json_type(node) == JSON_OBJECT)
        node = json_get(node, "base");
    return node != NULL && json_type(node) == JSON_STRING ? json_text(node) : NULL;
}

static int not_in_profile(struct json_at at, const char *path, int before, struct err *err)
{
    return err_prefix(err, before, "file '%s': field '%s': ", at.file, path);
}

/* Own name of an inline object, else "<base>*". */
static int read_name(struct json_at at, const char *base, char *name, size_t size, struct err *err)
{
    const char *own = NULL;
    if (json_read_string(at, "name", &own, err) < 0)
        return -1;
    if (own != NULL && (own[0] == '\0' || strlen(own) >= size))
        return err_add(err, "file '%s': field '%s.name' must have 1 to %d characters", at.file, at.path, (int)size - 1);
    if (own != NULL)
        snprintf(name, size, "%s", own);
    else
        snprintf(name, size, "%.*s*", (int)size - 2, base != NULL ? base : "inline");
    return 0;
}

static int read_forms(struct json_at at, const char *key, enum profile_section section, struct accelerator *a,
                      struct err *warn, struct err *err)
{
    static const char *const nothing[] = {NULL};
    struct json_at forms, form;
    char forms_path[PATH_MAX_BYTES], form_path[PATH_MAX_BYTES];
    int bad = 0, found = json_read_object(at, key, &forms, forms_path, sizeof(forms_path), err);
    if (found <= 0)
        return found;
    if (json_check_keys(forms, profile_rate_names, warn, err) < 0)
        bad = -1;
    for (int rate = 0; rate < RATES; rate++) {
        found = json_read_object(forms, profile_rate_names[rate], &form, form_path, sizeof(form_path), err);
        bad |= found < 0 ? -1 : 0;
        if (found <= 0)
            continue;
        bool based = section == SECTION_GEMM ? a->gemm[rate].eff > 0 : a->expert[rate].eff > 0;
        void *object = section == SECTION_GEMM ? (void *)&a->gemm[rate] : (void *)&a->expert[rate];
        bad |= read_fields(form, section, nothing, based, object, warn, err);
        a->gemm[rate].provenance = section == SECTION_GEMM ? PROVENANCE_ASSUMED : a->gemm[rate].provenance;
        a->expert[rate].provenance = section == SECTION_EXPERT ? PROVENANCE_ASSUMED : a->expert[rate].provenance;
    }
    return bad;
}

static int read_attention(struct json_at at, struct accelerator *a, struct err *warn, struct err *err)
{
    enum { FORMS = sizeof(a->attention) / sizeof(a->attention[0]) };
    static const char *const nothing[] = {NULL};
    struct json_at forms, form;
    char forms_path[PATH_MAX_BYTES], form_path[PATH_MAX_BYTES];
    int bad = 0, found = json_read_object(at, "attention", &forms, forms_path, sizeof(forms_path), err);
    if (found <= 0)
        return found;
    for (const struct json *child = json_first(forms.node); child != NULL; child = json_next(child)) {
        char *end;
        const char *key = json_key(child);
        long head_dim = strtol(key, &end, 10);
        if (*end != '\0' || head_dim < 8 || head_dim > 1024) {
            bad = err_add(err, "file '%s': field '%s.%s' is no head dimension of 8 to 1024", at.file, forms_path, key);
            continue;
        }
        if (json_read_object(forms, key, &form, form_path, sizeof(form_path), err) != 1) {
            bad = -1;
            continue;
        }
        int i = 0;
        while (i < a->n_attention && a->attention[i].head_dim != head_dim)
            i++;
        if (i == FORMS)
            return err_add(err, "file '%s': field '%s' has more than %d head dimensions", at.file, forms_path,
                           (int)FORMS);
        bad |= read_fields(form, SECTION_ATTENTION, nothing, i < a->n_attention, &a->attention[i], warn, err);
        a->attention[i].head_dim = (int)head_dim;
        a->attention[i].provenance = PROVENANCE_ASSUMED;
        a->n_attention += i == a->n_attention;
    }
    return bad;
}

/* One of the profile may have come with its data sheet alone. */
static int check_forms(struct json_at at, const char *path, const struct accelerator *a, struct err *err)
{
    const char *lacks = !(a->gemm[RATE_16BIT].eff > 0) ? "GEMM form (table gemm, key 16bit)" : a->n_attention == 0 ? "attention form (table attention, key 128)" : NULL;
    if (!lacks)
        return 0;
    return err_add(err, "file '%s': field '%s': accelerator '%s' has no %s in the profile; name a 'base' that is like it (its row in table accelerator), or measure it (plansim calibrate)",
                   at.file, path, a->name, lacks);
}

int cluster_read_accelerator(struct json_at at, const char *key, const struct profile *profile, struct accelerator *ret,
                             struct err *warn, struct err *err)
{
    static const char *const extra[] = {"name", "gemm", "attention", "expert", NULL};
    char path[PATH_MAX_BYTES];
    const char *name, *base = NULL;
    struct json_at own;
    struct accelerator a = {0};
    int before = err != NULL ? err->count : 0, bad;
    int kind = kind_of(at, key, &name, &own, path, err);
    if (kind < 0)
        return -1;
    if (kind == 1)
        return profile_accelerator(profile, name, ret, err) == 0 ? check_forms(at, path, ret, err) : not_in_profile(at, path, before, err);
    if (json_read_string(own, "base", &base, err) < 0)
        return -1;
    if (base != NULL && profile_accelerator(profile, base, &a, err) != 0)
        return not_in_profile(own, path, before, err);
    a.calibrated_runs = 0; /* those are its base's */
    bad = read_name(own, base, a.name, sizeof(a.name), err);
    bad |= read_fields(own, SECTION_ACCELERATOR, extra, base != NULL, &a, warn, err);
    bad |= read_forms(own, "gemm", SECTION_GEMM, &a, warn, err);
    bad |= read_forms(own, "expert", SECTION_EXPERT, &a, warn, err);
    bad |= read_attention(own, &a, warn, err);
    if (bad == 0 && !(a.gemm[RATE_16BIT].eff > 0))
        bad = err_add(err, "file '%s': field '%s' has no gemm.16bit.eff; state it, or name a 'base'", at.file, path);
    if (bad == 0 && a.n_attention == 0)
        bad = err_add(
            err,
            "file '%s': field '%s' has no attention; state it (\"attention\": {\"128\": {\"eff\": 0.6}}), or name a 'base'",
            at.file, path);
    a.provenance = PROVENANCE_ASSUMED;
    if (bad == 0)
        *ret = a;
    return bad;
}

int cluster_read_link(struct json_at at, const char *key, const struct profile *profile, const char *accelerator,
                      struct link_profile *ret, struct err *warn, struct err *err)
{
    static const char *const extra[] = {"name", NULL};
    char path[PATH_MAX_BYTES];
    const char *name, *base = NULL;
    struct json_at own;
    struct link_profile link = {0};
    int before = err != NULL ? err->count : 0, bad;
    int kind = kind_of(at, key, &name, &own, path, err);
    if (kind < 0)
        return -1;
    if (kind == 1)
        return profile_link(profile, name, accelerator, ret, err) == 0 ? 0 : not_in_profile(at, path, before, err);
    if (json_read_string(own, "base", &base, err) < 0)
        return -1;
    if (base != NULL && profile_link(profile, base, accelerator, &link, err) != 0)
        return not_in_profile(own, path, before, err);
    bad = read_name(own, base, link.name, sizeof(link.name), err);
    bad |= read_fields(own, SECTION_LINK, extra, base != NULL, &link, warn, err);
    if (json_has(own.node, "bytes_per_s") || json_has(own.node, "efficiency"))
        memset(link.n_curves, 0, sizeof(link.n_curves)); /* measured at another rate */
    link.provenance = PROVENANCE_ASSUMED;
    if (bad == 0)
        *ret = link;
    return bad;
}

/* Does the object state a number of its own, beside name and base? */
static bool states_fields(const struct json *object, enum profile_section section)
{
    for (const struct profile_field *field = profile_fields(section); field->name != NULL; field++)
        if (strcmp(field->name, "base") != 0 && json_has(object, field->name))
            return true;
    return false;
}

int cluster_read_fabric(struct json_at at, const char *key, const struct profile *profile, const char *accelerator,
                        struct fabric_profile *ret, struct err *warn, struct err *err)
{
    static const char *const extra[] = {"name", NULL};
    char path[PATH_MAX_BYTES];
    const char *name, *base = NULL;
    struct json_at own;
    struct fabric_profile fabric = {0};
    int before = err != NULL ? err->count : 0, bad;
    int kind = kind_of(at, key, &name, &own, path, err);
    if (kind < 0)
        return -1;
    if (kind == 1)
        return profile_fabric(profile, name, accelerator, ret, err) == 0 ? 0 : not_in_profile(at, path, before, err);
    if (json_read_string(own, "base", &base, err) < 0)
        return -1;
    if (base != NULL && profile_fabric(profile, base, accelerator, &fabric, err) != 0)
        return not_in_profile(own, path, before, err);
    bad = read_name(own, base, fabric.name, sizeof(fabric.name), err);
    bad |= read_fields(own, SECTION_FABRIC, extra, base != NULL, &fabric, warn, err);
    if (states_fields(own.node, SECTION_FABRIC))
        memset(fabric.n_curves, 0, sizeof(fabric.n_curves)); /* measured on another network */
    fabric.provenance = PROVENANCE_ASSUMED;
    if (bad == 0)
        *ret = fabric;
    return bad;
}
