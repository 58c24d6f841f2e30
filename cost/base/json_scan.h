/* Strict check of a JSON text (RFC 8259) before a lenient parser sees it:
 * grammar, UTF-8, escapes, nesting, number of values. No allocation, no
 * recursion; the first fault is reported with line and column. */
#ifndef COST_BASE_JSON_SCAN_H
#define COST_BASE_JSON_SCAN_H

#include <stddef.h>

struct err;

enum { JSON_DEPTH_MAX = 64, JSON_VALUES_MAX = 1000000, JSON_NUMBER_MAX = 60 };

int json_scan(const char *text, size_t length, const char *file, struct err *err);
/* Bytes of the UTF-8 character at text (length > 0), or 0 when it is not one. */
size_t json_utf8_length(const char *text, size_t length);

#endif
