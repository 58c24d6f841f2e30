#include "cost/base/unit.h"

#include <errno.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cost/base/err.h"

static const struct {
    const char *suffix;
    double bytes;
} byte_units[] = {
    {"B", 1},     {"kB", 1e3},     {"KB", 1e3},        {"MB", 1e6},       {"GB", 1e9},
    {"TB", 1e12}, {"KiB", 1024.0}, {"MiB", 1048576.0}, {"GiB", UNIT_GIB}, {"TiB", 1024.0 * UNIT_GIB},
};

/* The plain decimal number at the start of text (no hexadecimal, inf, nan or blanks). */
static int number_prefix(const char *text, double *ret, const char **ret_rest)
{
    size_t length = strspn(text, "+-.0123456789");
    if (length == 0)
        return -1;
    if (text[length] == 'e' || text[length] == 'E') {
        size_t sign = text[length + 1] == '+' || text[length + 1] == '-';
        size_t digits = strspn(text + length + 1 + sign, "0123456789");
        if (digits > 0)
            length += 1 + sign + digits;
    }
    char *end;
    double value = strtod(text, &end);
    if (end != text + length || !isfinite(value))
        return -1;
    *ret = value;
    *ret_rest = end;
    return 0;
}

int unit_parse_bytes(const char *text, double *ret_bytes, struct err *err)
{
    double value;
    const char *rest;
    if (number_prefix(text, &value, &rest) != 0 || value < 0)
        return err_add(err, "'%s' is not an amount of memory such as 72GiB or 80GB", text);
    rest += strspn(rest, " ");
    for (size_t i = 0; i < sizeof(byte_units) / sizeof(byte_units[0]); i++) {
        if (strcmp(rest, byte_units[i].suffix) != 0)
            continue;
        if (value > DBL_MAX / byte_units[i].bytes)
            break;
        *ret_bytes = value * byte_units[i].bytes;
        return 0;
    }
    if (*rest == '\0')
        return err_add(err, "'%s' has no unit; write for example %sGiB or %sGB", text, text, text);
    return err_add(err, "'%s' has an unknown unit '%s'; allowed: B, KB, MB, GB, TB, KiB, MiB, GiB, TiB", text, rest);
}

int unit_parse_int(const char *text, int64_t min, int64_t max, int64_t *ret, struct err *err)
{
    size_t sign = text[0] == '-' || text[0] == '+';
    size_t digits = strspn(text + sign, "0123456789");
    if (digits == 0 || text[sign + digits] != '\0')
        return err_add(err, "'%s' is not a whole number", text);
    errno = 0;
    long long value = strtoll(text, NULL, 10);
    if (errno != 0 || value < min || value > max)
        return err_add(err, "%s is out of range; allowed: %" PRId64 " to %" PRId64, text, min, max);
    *ret = value;
    return 0;
}

int unit_parse_double(const char *text, double min, double max, double *ret, struct err *err)
{
    double value;
    const char *rest;
    if (number_prefix(text, &value, &rest) != 0 || *rest != '\0')
        return err_add(err, "'%s' is not a number", text);
    if (value < min || value > max)
        return err_add(err, "%s is out of range; allowed: %g to %g", text, min, max);
    *ret = value;
    return 0;
}

struct scale {
    double from; /* the smallest value that is written in this unit */
    double unit;
    const char *name;
};

/* Three digits, and whole numbers above a hundred. */
static const char *format_scaled(double value, const struct scale *scales, char *buffer, size_t size)
{
    while (scales->from > 0 && fabs(value) < scales->from)
        scales++;
    double scaled = value / scales->unit, magnitude = fabs(scaled);
    int decimals = magnitude >= 99.95 ? 0 : magnitude >= 9.995 ? 1 : 2;
    if (scaled == floor(scaled) && magnitude < 1000)
        decimals = 0;
    if (magnitude >= 1e6)
        snprintf(buffer, size, "%.3g %s", scaled, scales->name);
    else
        snprintf(buffer, size, "%.*f %s", decimals, scaled, scales->name);
    return buffer;
}

const char *unit_format_bytes(double bytes, char *buffer, size_t size)
{
    static const struct scale scales[] = {
        {UNIT_GIB * 1024.0, UNIT_GIB * 1024.0, "TiB"},
        {UNIT_GIB * 0.9995, UNIT_GIB, "GiB"},
        {1048576.0, 1048576.0, "MiB"},
        {1024.0, 1024.0, "KiB"},
        {0, 1, "B"},
    };
    return format_scaled(bytes, scales, buffer, size);
}

const char *unit_format_seconds(double seconds, char *buffer, size_t size)
{
    static const struct scale scales[] = {
        {0.9995, 1, "s"}, {0.9995e-3, 1e-3, "ms"}, {0.9995e-6, 1e-6, "us"}, {1e-300, 1e-9, "ns"}, {0, 1, "s"},
    };
    return format_scaled(seconds, scales, buffer, size);
}

const char *unit_format_count(int64_t n, char *buffer, size_t size)
{
    char digits[24], grouped[40];
    snprintf(digits, sizeof(digits), "%" PRIu64, n < 0 ? 0 - (uint64_t)n : (uint64_t)n);
    size_t length = strlen(digits), used = 0;
    if (n < 0)
        grouped[used++] = '-';
    for (size_t i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0)
            grouped[used++] = ',';
        grouped[used++] = digits[i];
    }
    grouped[used] = '\0';
    snprintf(buffer, size, "%s", grouped);
    return buffer;
}
