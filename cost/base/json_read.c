/* Fields of an object: typed, ranged, with sentences that say where and what was allowed. */
#include "cost/base/json.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cost/base/err.h"
#include "cost/base/names.h"

enum { PATH_TEXT_MAX = 512, KEYS_EXAMINED = 2000 /* unknown keys whose nearest name is looked for */ };

static const double exact_max = 9007199254740992.0; /* 2^53: whole numbers up to here are exact in a double */

static const char *field_name(struct json_at at, const char *key, char *buffer)
{
    snprintf(buffer, PATH_TEXT_MAX, "%s%s%s", at.path, at.path[0] != '\0' ? "." : "", key);
    return buffer;
}

/* The field when it has this type; *ret = 1 found, 0 absent or null, -1 of another type. */
static const struct json *typed_field(struct json_at at, const char *key, enum json_type type, const char *expected,
                                      int *ret, struct err *err)
{
    char name[PATH_TEXT_MAX];
    const struct json *node = json_get(at.node, key);
    *ret = node != NULL && json_type(node) != JSON_NULL;
    if (*ret == 0 || json_type(node) == type)
        return node;
    *ret = err_add(err, "file '%s': field '%s' is %s; it must be %s", at.file, field_name(at, key, name),
                   json_type_name(node), expected);
    return NULL;
}

static int out_of_range(struct json_at at, const char *key, double value, double min, double max, struct err *err)
{
    char name[PATH_TEXT_MAX];
    field_name(at, key, name);
    if (max >= exact_max)
        return err_add(err, "file '%s': field '%s' is %.15g; allowed: %.15g or more", at.file, name, value, min);
    if (min <= -exact_max)
        return err_add(err, "file '%s': field '%s' is %.15g; allowed: %.15g or less", at.file, name, value, max);
    return err_add(err, "file '%s': field '%s' is %.15g; allowed: %.15g to %.15g", at.file, name, value, min, max);
}

int json_read_int(struct json_at at, const char *key, int64_t min, int64_t max, int64_t *out, struct err *err)
{
    int found;
    char name[PATH_TEXT_MAX];
    const struct json *node = typed_field(at, key, JSON_NUMBER, "a whole number", &found, err);
    if (found != 1)
        return found;
    double value = json_double(node);
    if (value != floor(value))
        return err_add(err, "file '%s': field '%s' is %.15g; it must be a whole number", at.file,
                       field_name(at, key, name), value);
    if (fabs(value) > exact_max)
        return err_add(err, "file '%s': field '%s' is %.15g; that is too large", at.file, field_name(at, key, name),
                       value);
    if ((int64_t)value < min || (int64_t)value > max)
        return out_of_range(at, key, value, (double)min, (double)max, err);
    *out = (int64_t)value;
    return 1;
}

int json_read_int32(struct json_at at, const char *key, int min, int max, int *out, struct err *err)
{
    int64_t value;
    int found = json_read_int(at, key, min, max, &value, err);
    if (found == 1)
        *out = (int)value;
    return found;
}

int json_read_double(struct json_at at, const char *key, double min, double max, double *out, struct err *err)
{
    int found;
    const struct json *node = typed_field(at, key, JSON_NUMBER, "a number", &found, err);
    if (found != 1)
        return found;
    double value = json_double(node);
    if (!isfinite(value) || value < min || value > max)
        return out_of_range(at, key, value, min, max, err);
    *out = value;
    return 1;
}

int json_read_bool(struct json_at at, const char *key, bool *out, struct err *err)
{
    int found;
    const struct json *node = typed_field(at, key, JSON_BOOL, "true or false", &found, err);
    if (found == 1)
        *out = json_true(node);
    return found;
}

int json_read_string(struct json_at at, const char *key, const char **out, struct err *err)
{
    int found;
    const struct json *node = typed_field(at, key, JSON_STRING, "a string", &found, err);
    if (found == 1)
        *out = json_text(node);
    return found;
}

int json_read_enum(struct json_at at, const char *key, const char *const *names, int *out, struct err *err)
{
    const char *word;
    int found = json_read_string(at, key, &word, err);
    if (found != 1)
        return found;
    int index = names_find(names, word);
    if (index < 0) {
        char name[PATH_TEXT_MAX], list[1024];
        const char *nearest = names_nearest(names, word);
        names_join(names, list, sizeof(list));
        field_name(at, key, name);
        if (nearest != NULL)
            return err_add(err, "file '%s': field '%s' is '%.64s'; did you mean '%s'? (allowed: %s)", at.file, name,
                           word, nearest, list);
        return err_add(err, "file '%s': field '%s' is '%.64s'; allowed: %s", at.file, name, word, list);
    }
    *out = index;
    return 1;
}

int json_read_object(struct json_at at, const char *key, struct json_at *out, char *path_buffer, size_t path_size,
                     struct err *err)
{
    int found;
    const struct json *node = typed_field(at, key, JSON_OBJECT, "an object", &found, err);
    if (found != 1)
        return found;
    char name[PATH_TEXT_MAX];
    snprintf(path_buffer, path_size, "%s", field_name(at, key, name));
    out->file = at.file;
    out->path = path_buffer;
    out->node = node;
    return 1;
}

int json_check_keys(struct json_at at, const char *const *known, struct err *warn, struct err *err)
{
    int result = 0, left = KEYS_EXAMINED;
    char name[PATH_TEXT_MAX];
    for (const struct json *child = json_first(at.node); child != NULL; child = json_next(child)) {
        const char *key = json_key(child);
        if (names_find(known, key) >= 0)
            continue;
        const char *nearest = left-- > 0 ? names_nearest(known, key) : NULL;
        field_name(at, key, name);
        if (nearest != NULL)
            result = err_add(err, "file '%s': field '%s' is unknown; did you mean '%s'?", at.file, name, nearest);
        else
            err_add(warn, "file '%s': field '%s' is unknown and ignored", at.file, name);
    }
    return result;
}
