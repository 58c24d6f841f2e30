/* Strict check of a JSON text (RFC 8259) before a lenient parser sees it:
 * grammar, UTF-8, escapes, nesting, number of values. No allocation, no
 * recursion; the first fault is reported with line and column. */
#ifndef COST_BASE_JSON_SCAN_H
#define COST_BASE_JSON_SCAN_H

#include <stdbool.h>
#include <stddef.h>

struct err;

enum { JSON_DEPTH_MAX = 64, JSON_VALUES_MAX = 1000000, JSON_NUMBER_MAX = 60 };

/* python: NaN, Infinity and -Infinity pass; *ret_odd counts them. */
int json_scan(const char *text, size_t length, const char *file, bool python, int *ret_odd, struct err *err);
/* The length of NaN, Infinity or -Infinity at text, or 0. */
size_t json_odd_number(const char *text, size_t length);
/* Bytes of the UTF-8 character at text (length > 0), or 0 when it is not one. */
size_t json_utf8_length(const char *text, size_t length);

#endif
