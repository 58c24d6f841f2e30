/* Quantities with units, at the edge of the program only; SI inside.
 *
 * unit_parse_bytes: "72GiB", "80GB", "512MiB" (a bare number is refused);
 * unit_format_*: short human text such as "71.3 GiB", "14.56 s", "3.2 ms",
 * "1.23e15"; the returned pointer is `buffer`. */
#ifndef COST_BASE_UNIT_H
#define COST_BASE_UNIT_H

#include <stddef.h>
#include <stdint.h>

struct err;

#define UNIT_GIB (1024.0 * 1024.0 * 1024.0)

int unit_parse_bytes(const char *text, double *ret_bytes, struct err *err);
int unit_parse_int(const char *text, int64_t min, int64_t max, int64_t *ret, struct err *err); /* strict: whole text */
int unit_parse_double(const char *text, double min, double max, double *ret, struct err *err); /* strict, finite */
const char *unit_format_bytes(double bytes, char *buffer, size_t size);
const char *unit_format_seconds(double seconds, char *buffer, size_t size);
const char *unit_format_count(int64_t n, char *buffer, size_t size); /* 8,030,261,248 */

#endif
