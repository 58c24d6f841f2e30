#include "cost/base/json_scan.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "cost/base/err.h"

struct scan {
    const unsigned char *text;
    size_t length, at;
    const char *wrong; /* what is wrong at `at`, NULL while all is well */
    int depth, values, odd;
    bool python;
    uint64_t objects; /* bit d: the container at depth d is an object */
};

static bool fail(struct scan *scan, const char *wrong)
{
    if (scan->wrong == NULL)
        scan->wrong = wrong;
    return false;
}

static int peek(const struct scan *scan)
{
    return scan->at < scan->length ? scan->text[scan->at] : -1;
}

static void skip_blanks(struct scan *scan)
{
    int c;
    while ((c = peek(scan)) == ' ' || c == '\t' || c == '\r' || c == '\n')
        scan->at++;
}

static size_t skip_digits(struct scan *scan)
{
    size_t start = scan->at;
    while (peek(scan) >= '0' && peek(scan) <= '9')
        scan->at++;
    return scan->at - start;
}

static bool scan_number(struct scan *scan)
{
    size_t start = scan->at;
    scan->at += peek(scan) == '-';
    bool zero = peek(scan) == '0';
    size_t digits = skip_digits(scan);
    if (digits == 0)
        return fail(scan, "a digit is missing");
    if (zero && digits > 1) {
        scan->at = start;
        return fail(scan, "a number must not begin with 0");
    }
    if (peek(scan) == '.') {
        scan->at++;
        if (skip_digits(scan) == 0)
            return fail(scan, "a digit is missing after the decimal point");
    }
    if (peek(scan) == 'e' || peek(scan) == 'E') {
        scan->at++;
        scan->at += peek(scan) == '+' || peek(scan) == '-';
        if (skip_digits(scan) == 0)
            return fail(scan, "a digit is missing in the exponent");
    }
    if (scan->at - start > JSON_NUMBER_MAX) {
        scan->at = start;
        return fail(scan, "a number has too many digits");
    }
    return true;
}

/* No overlong forms, no surrogates, nothing above U+10FFFF. */
size_t json_utf8_length(const char *text, size_t length)
{
    const unsigned char *c = (const unsigned char *)text;
    size_t n = c[0] >= 0xF0 ? 4 : c[0] >= 0xE0 ? 3 : 2;
    if (c[0] < 0x80)
        return 1;
    if (c[0] < 0xC2 || c[0] > 0xF4 || length < n)
        return 0;
    for (size_t i = 1; i < n; i++) {
        if ((c[i] & 0xC0) != 0x80)
            return 0;
    }
    if ((c[0] == 0xE0 && c[1] < 0xA0) || (c[0] == 0xED && c[1] > 0x9F) || (c[0] == 0xF0 && c[1] < 0x90) ||
        (c[0] == 0xF4 && c[1] > 0x8F))
        return 0;
    return n;
}

static bool scan_character(struct scan *scan)
{
    size_t n = json_utf8_length((const char *)scan->text + scan->at, scan->length - scan->at);
    if (n == 0)
        return fail(scan, "the text is not UTF-8");
    scan->at += n;
    return true;
}

/* The four digits of \uXXXX, or -1. */
static long hex4(const struct scan *scan, size_t at)
{
    long value = 0;
    if (scan->length - at < 4)
        return -1;
    for (size_t i = at; i < at + 4; i++) {
        int c = scan->text[i];
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0)
            return -1;
        value = value * 16 + digit;
    }
    return value;
}

static bool scan_escape(struct scan *scan)
{
    if (scan->length - scan->at < 2)
        return fail(scan, "a string is not closed");
    int c = scan->text[scan->at + 1];
    if (c != 'u') {
        if (c == 0 || strchr("\"\\/bfnrt", c) == NULL)
            return fail(scan, "an unknown escape in a string");
        scan->at += 2;
        return true;
    }
    long code = hex4(scan, scan->at + 2);
    if (code < 0)
        return fail(scan, "an escape \\u needs four hexadecimal digits");
    if (code == 0)
        return fail(scan, "a string must not hold the character NUL");
    if (code >= 0xD800 && code <= 0xDFFF) {
        size_t next = scan->at + 6;
        bool pair =
            code <= 0xDBFF && scan->length - next >= 6 && scan->text[next] == '\\' && scan->text[next + 1] == 'u';
        long low = pair ? hex4(scan, next + 2) : -1;
        if (low < 0xDC00 || low > 0xDFFF)
            return fail(scan, "half of a surrogate pair in a string");
        scan->at += 6;
    }
    scan->at += 6;
    return true;
}

static bool scan_string(struct scan *scan)
{
    size_t start = scan->at++;
    for (;;) {
        int c = peek(scan);
        if (c < 0) {
            scan->at = start;
            return fail(scan, "a string is not closed");
        }
        if (c == '"') {
            scan->at++;
            return true;
        }
        if (c < 0x20)
            return fail(scan, "a control character in a string");
        if (c == '\\' ? !scan_escape(scan) : !scan_character(scan))
            return false;
    }
}

static bool scan_word(struct scan *scan)
{
    static const char *const words[] = {"true", "false", "null"};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        size_t n = strlen(words[i]);
        if (scan->length - scan->at >= n && memcmp(scan->text + scan->at, words[i], n) == 0) {
            scan->at += n;
            return true;
        }
    }
    static const char *const wrong_words[] = {"NaN", "nan", "Infinity", "inf", "None", "True", "False", "undefined"};
    for (size_t i = 0; i < sizeof(wrong_words) / sizeof(wrong_words[0]); i++) {
        size_t n = strlen(wrong_words[i]);
        if (scan->length - scan->at >= n && memcmp(scan->text + scan->at, wrong_words[i], n) == 0)
            return fail(scan,
                        i < 4 ? "NaN and Infinity are not JSON numbers" : "the words of JSON are true, false and null");
    }
    return fail(scan, peek(scan) < 0 ? "the text ends too early" : "a value is expected");
}

static bool scan_key(struct scan *scan)
{
    skip_blanks(scan);
    if (peek(scan) != '"')
        return fail(scan, peek(scan) < 0 ? "the text ends too early" : "a key in double quotes is expected");
    if (!scan_string(scan))
        return false;
    skip_blanks(scan);
    if (peek(scan) != ':')
        return fail(scan, peek(scan) < 0 ? "the text ends too early" : "a colon is expected after a key");
    scan->at++;
    return true;
}

size_t json_odd_number(const char *text, size_t length)
{
    static const char *const words[] = {"NaN", "Infinity", "-Infinity"};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        size_t n = strlen(words[i]);
        if (length >= n && memcmp(text, words[i], n) == 0)
            return n;
    }
    return 0;
}

static bool scan_odd_number(struct scan *scan)
{
    size_t n = json_odd_number((const char *)scan->text + scan->at, scan->length - scan->at);
    scan->at += n;
    scan->odd += n > 0;
    return n > 0;
}

/* A scalar, or the opening of a container; *ret_opened when a first child is to follow. */
static bool scan_value(struct scan *scan, bool *ret_opened)
{
    *ret_opened = false;
    skip_blanks(scan);
    int c = peek(scan);
    if (++scan->values > JSON_VALUES_MAX)
        return fail(scan, "there are too many values (limit 1,000,000)");
    if (c == '"')
        return scan_string(scan);
    if (scan->python && scan_odd_number(scan))
        return true;
    if (c == '-' || (c >= '0' && c <= '9'))
        return scan_number(scan);
    if (c != '{' && c != '[')
        return scan_word(scan);
    if (scan->depth == JSON_DEPTH_MAX)
        return fail(scan, "the nesting is too deep (limit 64)");
    scan->at++;
    skip_blanks(scan);
    if (peek(scan) == (c == '{' ? '}' : ']')) {
        scan->at++;
        return true;
    }
    uint64_t bit = UINT64_C(1) << scan->depth++;
    scan->objects = c == '{' ? scan->objects | bit : scan->objects & ~bit;
    *ret_opened = true;
    return true;
}

/* After a value: closes containers until one goes on with a comma; *ret_more when it does. */
static bool scan_close(struct scan *scan, bool *ret_more)
{
    while (scan->depth > 0) {
        bool object = (scan->objects >> (scan->depth - 1) & 1) != 0;
        skip_blanks(scan);
        int c = peek(scan);
        if (c == ',') {
            scan->at++;
            *ret_more = true;
            return true;
        }
        if (c != (object ? '}' : ']'))
            return fail(scan, c < 0    ? "the text ends too early"
                              : object ? "a comma or } is expected"
                                       : "a comma or ] is expected");
        scan->at++;
        scan->depth--;
    }
    *ret_more = false;
    return true;
}

static bool scan_document(struct scan *scan)
{
    bool more = true, opened;
    while (more) {
        if (scan->depth > 0 && (scan->objects >> (scan->depth - 1) & 1) != 0 && !scan_key(scan))
            return false;
        if (!scan_value(scan, &opened))
            return false;
        if (!opened && !scan_close(scan, &more))
            return false;
    }
    skip_blanks(scan);
    return peek(scan) < 0 || fail(scan, "text goes on after the end of the JSON value");
}

static void line_and_column(const struct scan *scan, int *ret_line, int *ret_column)
{
    int line = 1, column = 1;
    for (size_t i = 0; i < scan->at && i < scan->length; i++) {
        if (scan->text[i] == '\n') {
            line++;
            column = 1;
        } else if ((scan->text[i] & 0xC0) != 0x80) {
            column++;
        }
    }
    *ret_line = line;
    *ret_column = column;
}

int json_scan(const char *text, size_t length, const char *file, bool python, int *ret_odd, struct err *err)
{
    struct scan scan = {.text = (const unsigned char *)text, .length = length, .python = python};
    skip_blanks(&scan);
    if (peek(&scan) < 0)
        return err_add(err, "file '%s' holds only blanks, no JSON", file);
    if (scan_document(&scan)) {
        *ret_odd = scan.odd;
        return 0;
    }
    int line, column;
    line_and_column(&scan, &line, &column);
    return err_add(err, "file '%s' is not valid JSON: line %d, column %d: %s", file, line, column, scan.wrong);
}
