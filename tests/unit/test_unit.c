/* Quantities at the edge: units are asked for, nonsense is refused. */
#include "cost/base/unit.h"

#include "cost/base/err.h"
#include "tests/unit/test.h"

static void test_bytes(void)
{
    static const struct {
        const char *text;
        double bytes;
    } good[] = {
        {"72GiB", 72 * UNIT_GIB},
        {"80GB", 80e9},
        {"512MiB", 536870912.0},
        {"1.5 TiB", 1.5 * 1024 * UNIT_GIB},
        {"0B", 0},
        {"1e3KB", 1e6},
        {"7kB", 7000},
        {"2TB", 2e12},
    };
    static const char *const bad[] = {"72",     "",      "GiB",    "-1GiB",   "72 gib",    "72GiBs",
                                      "nanGiB", "infGB", "0x10GB", "1e400GB", "1e300TiB.", "1.2.3GB"};
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        double bytes = -1;
        CHECK_INT(unit_parse_bytes(good[i].text, &bytes, NULL), 0);
        CHECK_DOUBLE(bytes, good[i].bytes, 0);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct err err = {0};
        double bytes = -1;
        CHECK_INT(unit_parse_bytes(bad[i], &bytes, &err), -1);
        CHECK_INT(err.count, 1);
        CHECK_DOUBLE(bytes, -1, 0);
    }
    struct err err = {0};
    double bytes;
    unit_parse_bytes("72", &bytes, &err);
    CHECK_STR(err.text, "'72' has no unit; write for example 72GiB or 72GB");
}

static void test_numbers(void)
{
    int64_t n = 0;
    double x = 0;
    struct err err = {0};
    CHECK_INT(unit_parse_int("-12", -100, 100, &n, NULL), 0);
    CHECK_INT(n, -12);
    CHECK_INT(unit_parse_int("9223372036854775807", INT64_MIN, INT64_MAX, &n, NULL), 0);
    CHECK_INT(n, INT64_MAX);
    static const char *const bad_ints[] = {"",    "1.5", "1e3", " 1", "1 ", "0x10", "9223372036854775808",
                                           "one", "+",   "--1"};
    for (size_t i = 0; i < sizeof(bad_ints) / sizeof(bad_ints[0]); i++)
        CHECK_INT(unit_parse_int(bad_ints[i], INT64_MIN, INT64_MAX, &n, NULL), -1);
    CHECK_INT(unit_parse_int("8", 1, 7, &n, &err), -1);
    CHECK_STR(err.text, "8 is out of range; allowed: 1 to 7");
    CHECK_INT(unit_parse_double("0.25", 0, 1, &x, NULL), 0);
    CHECK_DOUBLE(x, 0.25, 0);
    CHECK_INT(unit_parse_double("-1e-3", -1, 1, &x, NULL), 0);
    CHECK_DOUBLE(x, -1e-3, 0);
    static const char *const bad[] = {"", "nan", "inf", "1e999", "0x1p3", "1,5", " 1", "1x", "."};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        CHECK_INT(unit_parse_double(bad[i], -1e300, 1e300, &x, NULL), -1);
    CHECK_INT(unit_parse_double("2", 0, 1, &x, NULL), -1);
}

static void test_format(void)
{
    char b[64];
    CHECK_STR(unit_format_count(8030261248, b, sizeof(b)), "8,030,261,248");
    CHECK_STR(unit_format_count(999, b, sizeof(b)), "999");
    CHECK_STR(unit_format_count(-1000, b, sizeof(b)), "-1,000");
    CHECK_STR(unit_format_count(INT64_MIN, b, sizeof(b)), "-9,223,372,036,854,775,808");
    CHECK_STR(unit_format_bytes(71.3 * UNIT_GIB, b, sizeof(b)), "71.3 GiB");
    CHECK_STR(unit_format_bytes(80 * UNIT_GIB, b, sizeof(b)), "80 GiB");
    CHECK_STR(unit_format_bytes(0, b, sizeof(b)), "0 B");
    CHECK_STR(unit_format_bytes(1536, b, sizeof(b)), "1.50 KiB");
    CHECK_STR(unit_format_seconds(14.56, b, sizeof(b)), "14.6 s");
    CHECK_STR(unit_format_seconds(0.0032, b, sizeof(b)), "3.20 ms");
    CHECK_STR(unit_format_seconds(250e-9, b, sizeof(b)), "250 ns");
    CHECK_STR(unit_format_seconds(1e12, b, sizeof(b)), "1e+12 s");
    CHECK_STR(unit_format_count(123456, b, 4), "123"); /* cut, never overrun */
}

int main(void)
{
    test_bytes();
    test_numbers();
    test_format();
    return test_report();
}
