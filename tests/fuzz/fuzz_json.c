/* Any bytes as JSON: refused with one sentence, or read, printed and read again as the same value. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cost/base/err.h"
#include "cost/base/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int holds)
{
    if (!holds)
        abort();
}

/* Touches every node through the public readers. */
static void walk(const struct json *node, int depth)
{
    static const char *const known[] = {"a", "known", NULL};
    require(depth <= 64);
    (void)json_type_name(node);
    (void)json_double(node);
    (void)json_true(node);
    require((json_text(node) != NULL) == (json_type(node) == JSON_STRING));
    struct json_at at = {"fuzz", "", node};
    int64_t whole;
    double number;
    if (json_type(node) == JSON_OBJECT) {
        for (const struct json *child = json_first(node); child != NULL; child = json_next(child)) {
            require(json_get(node, json_key(child)) == child); /* no key is there twice */
            (void)json_read_int(at, json_key(child), INT64_MIN, INT64_MAX, &whole, NULL);
            (void)json_read_double(at, json_key(child), -1, 1, &number, NULL);
        }
        (void)json_check_keys(at, known, NULL, NULL);
    }
    if (json_type(node) == JSON_OBJECT || json_type(node) == JSON_ARRAY) {
        int n = 0;
        for (const struct json *child = json_first(node); child != NULL; child = json_next(child), n++)
            walk(child, depth + 1);
        require(n == json_length(node));
    }
}

static void check(const uint8_t *data, size_t size, int python)
{
    static struct err err;
    struct json *root = NULL, *again = NULL;
    err_clear(&err);
    int result = python ? json_parse_python((const char *)data, size, "fuzz", &root, &err)
                        : json_parse((const char *)data, size, "fuzz", &root, &err);
    require((result == 0) == (root != NULL) && err.count == (result == 0 ? 0 : 1));
    if (root == NULL)
        return;
    walk(root, 0);
    char *text = json_print(root);
    require(json_parse(text, strlen(text), "again", &again, &err) == 0);
    char *second = json_print(again);
    require(strcmp(text, second) == 0);
    free(text);
    free(second);
    json_free(again);
    json_free(root);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check(data, size, 0);
    check(data, size, 1);
    return 0;
}
