#include "cost/base/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "cost/base/arena.h"
#include "cost/base/err.h"
#include "cost/base/file.h"
#include "cost/base/json_scan.h"

enum { FILE_BYTES_MAX = 16 << 20, PATH_TEXT_MAX = 512 };

static const unsigned char odd_mark = 0xFF;

static const double exact_max = 9007199254740992.0; /* 2^53: whole numbers up to here are exact in a double */

static const cJSON *in(const struct json *node)
{
    return (const cJSON *)(const void *)node;
}

static cJSON *inout(struct json *node)
{
    return (cJSON *)(void *)node;
}

static struct json *out_of(cJSON *node)
{
    return (struct json *)(void *)node;
}

static const struct json *const_out_of(const cJSON *node)
{
    return (const struct json *)(const void *)node;
}

/* ---- loading ---- */

static int compare_keys(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* A key that is there twice, or NULL. */
static const char *duplicate_key(const cJSON *object)
{
    size_t n = 0;
    for (const cJSON *child = object->child; child != NULL; child = child->next)
        n++;
    if (n < 2)
        return NULL;
    const char **keys = malloc(n * sizeof(*keys));
    if (keys == NULL)
        arena_out_of_memory(n * sizeof(*keys));
    n = 0;
    for (const cJSON *child = object->child; child != NULL; child = child->next)
        keys[n++] = child->string;
    qsort(keys, n, sizeof(*keys), compare_keys);
    const char *found = NULL;
    for (size_t i = 1; i < n && found == NULL; i++)
        found = strcmp(keys[i - 1], keys[i]) == 0 ? keys[i] : NULL;
    free(keys);
    return found;
}

/* What the grammar allows and we do not: a key twice, a number beyond double. path: where node is. */
static int check_tree(const cJSON *node, const char *file, const char *path, struct err *err)
{
    char child_path[PATH_TEXT_MAX];
    const char *twice = cJSON_IsObject(node) ? duplicate_key(node) : NULL;
    if (twice != NULL)
        return err_add(err, "file '%s': field '%s%s%s' is there twice", file, path, path[0] != '\0' ? "." : "", twice);
    if (cJSON_IsNumber(node) && !isfinite(node->valuedouble))
        return err_add(err, "file '%s': field '%s' is a number too large to represent", file, path);
    int index = 0;
    for (const cJSON *child = node->child; child != NULL; child = child->next, index++) {
        if (!cJSON_IsArray(child) && !cJSON_IsObject(child) && !cJSON_IsNumber(child))
            continue;
        if (child->string != NULL)
            snprintf(child_path, sizeof(child_path), "%s%s%.64s", path, path[0] != '\0' ? "." : "", child->string);
        else
            snprintf(child_path, sizeof(child_path), "%s[%d]", path, index);
        if (check_tree(child, file, child_path, err) != 0)
            return -1;
    }
    return 0;
}

/* NaN and its like become strings that begin with a byte that no UTF-8 has: "\xFF", "\xFF   ", "\xFF-   ". */
static char *mark_odd_numbers(const char *text, size_t length)
{
    char *copy = malloc(length);
    if (copy == NULL)
        arena_out_of_memory(length);
    memcpy(copy, text, length);
    bool in_string = false;
    for (size_t i = 0; i < length; i++) {
        size_t n = in_string ? 0 : json_odd_number(copy + i, length - i);
        if (n > 0) {
            bool minus = copy[i] == '-';
            memset(copy + i, ' ', n);
            copy[i] = copy[i + n - 1] = '"';
            copy[i + 1] = (char)odd_mark;
            copy[i + 2] = minus ? '-' : copy[i + 2];
            i += n - 1;
        } else if (copy[i] == '"') {
            in_string = !in_string;
        } else if (copy[i] == '\\') {
            i++;
        }
    }
    return copy;
}

static bool is_odd_number(const cJSON *node)
{
    return cJSON_IsString(node) && (unsigned char)node->valuestring[0] == odd_mark;
}

static double odd_number(const cJSON *node)
{
    char sign = node->valuestring[1];
    return sign == '\0' ? (double)NAN : sign == '-' ? -HUGE_VAL : HUGE_VAL;
}

static int parse(const char *text, size_t length, const char *file, bool python, struct json **ret_root,
                 struct err *err)
{
    int odd;
    if (length >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0) {
        text += 3;
        length -= 3;
    }
    if (json_scan(text, length, file, python, &odd, err) != 0)
        return -1;
    char *marked = odd > 0 ? mark_odd_numbers(text, length) : NULL;
    cJSON *root = cJSON_ParseWithLength(marked != NULL ? marked : text, length);
    free(marked);
    if (root == NULL)
        return err_add(err, "file '%s' cannot be read: out of memory", file);
    if (check_tree(root, file, "", err) != 0) {
        cJSON_Delete(root);
        return -1;
    }
    *ret_root = out_of(root);
    return 0;
}

int json_parse(const char *text, size_t length, const char *file, struct json **ret_root, struct err *err)
{
    return parse(text, length, file, false, ret_root, err);
}

int json_parse_python(const char *text, size_t length, const char *file, struct json **ret_root, struct err *err)
{
    return parse(text, length, file, true, ret_root, err);
}

static int load(const char *path, bool python, struct json **ret_root, struct err *err)
{
    char *text;
    size_t length;
    if (file_read(path, FILE_BYTES_MAX, &text, &length, err) != 0)
        return -1;
    int result = parse(text, length, strcmp(path, "-") == 0 ? "standard input" : path, python, ret_root, err);
    free(text);
    return result;
}

int json_load(const char *path, struct json **ret_root, struct err *err)
{
    return load(path, false, ret_root, err);
}

int json_load_python(const char *path, struct json **ret_root, struct err *err)
{
    return load(path, true, ret_root, err);
}

void json_free(struct json *root)
{
    cJSON_Delete(inout(root));
}

/* ---- nodes ---- */

enum json_type json_type(const struct json *node)
{
    const cJSON *item = in(node);
    if (cJSON_IsBool(item))
        return JSON_BOOL;
    if (cJSON_IsNumber(item) || cJSON_IsRaw(item) || is_odd_number(item))
        return JSON_NUMBER;
    if (cJSON_IsString(item))
        return JSON_STRING;
    if (cJSON_IsArray(item))
        return JSON_ARRAY;
    return cJSON_IsObject(item) ? JSON_OBJECT : JSON_NULL;
}

const char *json_type_name(const struct json *node)
{
    static const char *const names[] = {
        [JSON_NULL] = "null",       [JSON_BOOL] = "true or false", [JSON_NUMBER] = "a number",
        [JSON_STRING] = "a string", [JSON_ARRAY] = "a list",       [JSON_OBJECT] = "an object",
    };
    return names[json_type(node)];
}

const struct json *json_get(const struct json *object, const char *key)
{
    return const_out_of(cJSON_GetObjectItemCaseSensitive(in(object), key));
}

bool json_has(const struct json *object, const char *key)
{
    const struct json *child = json_get(object, key);
    return child != NULL && json_type(child) != JSON_NULL;
}

int json_length(const struct json *array)
{
    return cJSON_GetArraySize(in(array));
}

const struct json *json_item(const struct json *array, int index)
{
    return const_out_of(cJSON_GetArrayItem(in(array), index));
}

const struct json *json_first(const struct json *container)
{
    return container != NULL ? const_out_of(in(container)->child) : NULL;
}

const struct json *json_next(const struct json *child)
{
    return const_out_of(in(child)->next);
}

const char *json_key(const struct json *child)
{
    return in(child)->string;
}

double json_double(const struct json *number)
{
    if (cJSON_IsRaw(in(number)))
        return strtod(in(number)->valuestring, NULL);
    if (is_odd_number(in(number)))
        return odd_number(in(number));
    return cJSON_IsNumber(in(number)) ? in(number)->valuedouble : 0;
}

const char *json_digits(const struct json *number)
{
    return cJSON_IsRaw(in(number)) ? in(number)->valuestring : NULL;
}

bool json_true(const struct json *boolean)
{
    return cJSON_IsTrue(in(boolean));
}

const char *json_text(const struct json *string)
{
    return cJSON_IsString(in(string)) && !is_odd_number(in(string)) ? in(string)->valuestring : NULL;
}

/* ---- building ---- */

static cJSON *must(cJSON *node)
{
    if (node == NULL)
        arena_out_of_memory(sizeof(cJSON));
    return node;
}

static void add(struct json *object, const char *key, cJSON *child)
{
    if (!cJSON_AddItemToObject(inout(object), key, must(child)))
        arena_out_of_memory(strlen(key) + 1);
}

static cJSON *new_number(double value)
{
    return must(isfinite(value) ? cJSON_CreateNumber(value) : cJSON_CreateNull());
}

struct json *json_new_object(void)
{
    return out_of(must(cJSON_CreateObject()));
}

struct json *json_new_array(void)
{
    return out_of(must(cJSON_CreateArray()));
}

void json_put_number(struct json *object, const char *key, double value)
{
    add(object, key, new_number(value));
}

void json_put_int(struct json *object, const char *key, int64_t value)
{
    char digits[24];
    snprintf(digits, sizeof(digits), "%" PRId64, value);
    bool exact = fabs((double)value) < exact_max;
    add(object, key, exact ? cJSON_CreateNumber((double)value) : cJSON_CreateRaw(digits));
}

void json_put_bool(struct json *object, const char *key, bool value)
{
    add(object, key, cJSON_CreateBool(value));
}

void json_put_string(struct json *object, const char *key, const char *value)
{
    add(object, key, value != NULL ? cJSON_CreateString(value) : cJSON_CreateNull());
}

void json_put_null(struct json *object, const char *key)
{
    add(object, key, cJSON_CreateNull());
}

struct json *json_put_object(struct json *object, const char *key)
{
    struct json *child = json_new_object();
    json_put(object, key, child);
    return child;
}

struct json *json_put_array(struct json *object, const char *key)
{
    struct json *child = json_new_array();
    json_put(object, key, child);
    return child;
}

void json_put(struct json *object, const char *key, struct json *child)
{
    add(object, key, inout(child));
}

void json_push(struct json *array, struct json *child)
{
    if (!cJSON_AddItemToArray(inout(array), must(inout(child))))
        arena_out_of_memory(sizeof(cJSON));
}

void json_push_number(struct json *array, double value)
{
    json_push(array, out_of(new_number(value)));
}

void json_push_string(struct json *array, const char *value)
{
    json_push(array, out_of(must(value != NULL ? cJSON_CreateString(value) : cJSON_CreateNull())));
}
