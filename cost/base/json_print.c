/* Printing, by hand: cJSON's numbers are neither shortest nor the same in every version. */
#include "cost/base/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cost/base/arena.h"
#include "cost/base/json_scan.h"

struct text {
    char *bytes;
    size_t length, capacity;
};

static void text_add(struct text *text, const char *bytes, size_t length)
{
    if (text->capacity - text->length <= length) {
        size_t capacity = 2 * text->capacity + length + 256;
        char *grown = realloc(text->bytes, capacity);
        if (grown == NULL)
            arena_out_of_memory(capacity);
        text->bytes = grown;
        text->capacity = capacity;
    }
    memcpy(text->bytes + text->length, bytes, length);
    text->length += length;
    text->bytes[text->length] = '\0';
}

static void text_puts(struct text *text, const char *string)
{
    text_add(text, string, strlen(string));
}

/* Whole numbers without exponent, others with the fewest digits that give the same double; NaN and its like as null. */
static void print_number(struct text *text, const struct json *node)
{
    char digits[40];
    double value = json_double(node);
    if (json_digits(node) != NULL) {
        snprintf(digits, sizeof(digits), "%s", json_digits(node));
    } else if (!isfinite(value)) {
        snprintf(digits, sizeof(digits), "null");
    } else if (value == floor(value) && fabs(value) < 1e15) {
        snprintf(digits, sizeof(digits), "%.0f", value == 0 ? 0.0 : value);
    } else {
        for (int precision = 15; precision <= 17; precision++) {
            snprintf(digits, sizeof(digits), "%.*g", precision, value);
            if (strtod(digits, NULL) == value)
                break;
        }
    }
    text_puts(text, digits);
}

static void print_string(struct text *text, const char *string)
{
    static const char plain[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
    text_puts(text, "\"");
    for (size_t left = strlen(string); left > 0;) {
        const char *special = strchr(plain, string[0]);
        size_t n = json_utf8_length(string, left);
        char escape[8];
        if (special != NULL) {
            snprintf(escape, sizeof(escape), "\\%c", letters[special - plain]);
            text_puts(text, escape);
        } else if ((unsigned char)string[0] < 0x20) {
            snprintf(escape, sizeof(escape), "\\u%04x", (unsigned)string[0]);
            text_puts(text, escape);
        } else if (n == 0) {
            text_puts(text, "\xEF\xBF\xBD"); /* a byte that is not UTF-8 (from a file name) */
        } else {
            text_add(text, string, n);
        }
        string += n > 0 ? n : 1;
        left -= n > 0 ? n : 1;
    }
    text_puts(text, "\"");
}

static bool is_container(const struct json *node)
{
    return json_type(node) == JSON_OBJECT || json_type(node) == JSON_ARRAY;
}

static bool has_containers(const struct json *node)
{
    for (const struct json *child = json_first(node); child != NULL; child = json_next(child)) {
        if (is_container(child))
            return true;
    }
    return false;
}

static void print_node(struct text *text, const struct json *node, int indent, bool in_list);

/* Lists of plain values stay on one line, and so do plain objects in a list. */
static void print_container(struct text *text, const struct json *node, int indent, bool in_list)
{
    bool object = json_type(node) == JSON_OBJECT, lines = (object && !in_list) || has_containers(node);
    char margin[2 * JSON_DEPTH_MAX + 4];
    text_puts(text, object ? "{" : "[");
    for (const struct json *child = json_first(node); child != NULL; child = json_next(child)) {
        if (lines) {
            snprintf(margin, sizeof(margin), "\n%*s", 2 * (indent + 1), "");
            text_puts(text, margin);
        }
        if (object) {
            print_string(text, json_key(child));
            text_puts(text, ": ");
        }
        print_node(text, child, indent + 1, !object);
        if (json_next(child) != NULL)
            text_puts(text, lines ? "," : ", ");
    }
    if (lines && json_first(node) != NULL) {
        snprintf(margin, sizeof(margin), "\n%*s", 2 * indent, "");
        text_puts(text, margin);
    }
    text_puts(text, object ? "}" : "]");
}

static void print_node(struct text *text, const struct json *node, int indent, bool in_list)
{
    switch (json_type(node)) {
    case JSON_OBJECT:
    case JSON_ARRAY:
        print_container(text, node, indent, in_list);
        break;
    case JSON_STRING:
        print_string(text, json_text(node));
        break;
    case JSON_NUMBER:
        print_number(text, node);
        break;
    case JSON_BOOL:
        text_puts(text, json_true(node) ? "true" : "false");
        break;
    case JSON_NULL:
        text_puts(text, "null");
        break;
    }
}

char *json_print(const struct json *root)
{
    struct text text = {NULL, 0, 0};
    print_node(&text, root, 0, false);
    text_puts(&text, "\n");
    return text.bytes;
}
