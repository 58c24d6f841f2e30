/* JSON in and out (the one place that includes cJSON).
 *
 * Reading: json_load/json_parse refuse syntax errors (with line and column),
 * trailing text, duplicate keys, nesting over 64, files over 16 MiB, and text
 * that is not UTF-8; a BOM and CRLF are accepted. Field readers return 1 when
 * the field was read, 0 when it is absent or null (the output is untouched),
 * -1 when it is there but wrong (a sentence `file 'x': field 'a.b' is ...; ` is
 * added to err, reading may go on so that all problems are reported at once).
 * Nodes live as long as their root. Case-sensitive keys. */
#ifndef COST_BASE_JSON_H
#define COST_BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;
struct json; /* a node (cJSON underneath) */

enum json_type { JSON_NULL, JSON_BOOL, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT };

/* Where a reader is, for messages: file name and the dotted path of the object. */
struct json_at {
    const char *file;        /* as the user gave it */
    const char *path;        /* "" at the root, else "text_config" or "inter_node" */
    const struct json *node; /* an object */
};

int json_load(const char *path, struct json **ret_root, struct err *err); /* "-" = standard input */
/* For files written by Python (config.json): NaN, Infinity and -Infinity are numbers too, which json_double returns
 * and every json_read_* refuses. */
int json_load_python(const char *path, struct json **ret_root, struct err *err);
int json_parse_python(const char *text, size_t length, const char *file, struct json **ret_root, struct err *err);
int json_parse(const char *text, size_t length, const char *file, struct json **ret_root, struct err *err);
void json_free(struct json *root); /* NULL is fine */

enum json_type json_type(const struct json *node);
const char *json_type_name(const struct json *node);                   /* "a string", "an object", ... */
const struct json *json_get(const struct json *object, const char *key); /* NULL when absent */
bool json_has(const struct json *object, const char *key);               /* present and not null */
int json_length(const struct json *array);
const struct json *json_item(const struct json *array, int index); /* O(1) amortised is not promised: iterate with json_next */
const struct json *json_first(const struct json *container);       /* first child of an array or object, or NULL */
const struct json *json_next(const struct json *child);
const char *json_key(const struct json *child); /* key of a child of an object */
double json_double(const struct json *number);
/* The digits of a whole number of json_put_int that a double cannot hold, else NULL. */
const char *json_digits(const struct json *number);
bool json_true(const struct json *boolean);
const char *json_text(const struct json *string);

int json_read_int(struct json_at at, const char *key, int64_t min, int64_t max, int64_t *out, struct err *err);
int json_read_int32(struct json_at at, const char *key, int min, int max, int *out, struct err *err);
int json_read_double(struct json_at at, const char *key, double min, double max, double *out, struct err *err);
int json_read_bool(struct json_at at, const char *key, bool *out, struct err *err);
int json_read_string(struct json_at at, const char *key, const char **out, struct err *err);
/* One of a NULL-terminated list; *out is its index. A wrong word is answered with the nearest. */
int json_read_enum(struct json_at at, const char *key, const char *const *names, int *out, struct err *err);
int json_read_object(struct json_at at, const char *key, struct json_at *out, char *path_buffer, size_t path_size, struct err *err);
/* Names every key of the object that is not in the list: a near miss of a known
 * one is an error (with the nearest name), any other goes to warn. Returns 0 or -1. */
int json_check_keys(struct json_at at, const char *const *known, struct err *warn, struct err *err);

/* Writing: a tree, printed with sorted-as-inserted keys, numbers shortest-exact. */
struct json *json_new_object(void);
struct json *json_new_array(void);
void json_put_number(struct json *object, const char *key, double value); /* NaN and infinity become null */
void json_put_int(struct json *object, const char *key, int64_t value);
void json_put_bool(struct json *object, const char *key, bool value);
void json_put_string(struct json *object, const char *key, const char *value); /* NULL becomes null */
void json_put_null(struct json *object, const char *key);
struct json *json_put_object(struct json *object, const char *key); /* returns the new child */
struct json *json_put_array(struct json *object, const char *key);
void json_put(struct json *object, const char *key, struct json *child); /* takes ownership */
void json_push(struct json *array, struct json *child);                  /* takes ownership */
void json_push_number(struct json *array, double value);
void json_push_string(struct json *array, const char *value);
char *json_print(const struct json *root); /* indented, ends with '\n'; malloc'd, caller frees */

#endif
