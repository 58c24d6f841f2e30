/* JSON: strict in, deterministic out. */
#include "cost/base/json.h"

#include <math.h>
#include <time.h>

#include "cost/base/err.h"
#include "tests/unit/test.h"

static struct err err;

static struct json *read_text(const char *text, size_t length, bool python)
{
    struct json *root = NULL;
    err_clear(&err);
    int result =
        python ? json_parse_python(text, length, "x", &root, &err) : json_parse(text, length, "x", &root, &err);
    CHECK_INT(result, root != NULL ? 0 : -1);
    CHECK_INT(err.count, root != NULL ? 0 : 1);
    return root;
}

static void expect_text(const char *text, const char *printed)
{
    struct json *root = read_text(text, strlen(text), false);
    char *got = root != NULL ? json_print(root) : NULL;
    CHECK_STR(got, printed);
    free(got);
    json_free(root);
}

static void test_good(void)
{
    expect_text("1", "1\n");
    expect_text(" \t\r\n\"a\" ", "\"a\"\n");
    expect_text("\xEF\xBB\xBF[]", "[]\n");
    expect_text("{\r\n\"a\": 1,\r\n\"b\": [1, 2]\r\n}", "{\n  \"a\": 1,\n  \"b\": [1, 2]\n}\n");
    expect_text("[0, -0, 1.5, 1e3, 1E+2, 0.1, 1e-7, 123456789012, 1e22]",
                "[0, 0, 1.5, 1000, 100, 0.1, 1e-07, 123456789012, 1e+22]\n");
    expect_text("[true, false, null]", "[true, false, null]\n");
    expect_text("\"\\u00e9\\n\\\"\\\\\\/ \\ud83d\\ude00\"", "\"é\\n\\\"\\\\/ \xF0\x9F\x98\x80\"\n");
    expect_text("{\"a\":{\"b\":{\"a\":1}}}", "{\n  \"a\": {\n    \"b\": {\n      \"a\": 1\n    }\n  }\n}\n");
    expect_text("[{\"op\":\"F\",\"mb\":0},{\"op\":\"B\",\"mb\":1}]",
                "[\n  {\"op\": \"F\", \"mb\": 0},\n  {\"op\": \"B\", \"mb\": 1}\n]\n");
}

static void test_bad(void)
{
    static const struct {
        const char *text, *part;
    } cases[] = {
        {"", "holds only blanks"},
        {"  \n ", "holds only blanks"},
        {"{", "line 1, column 2: the text ends too early"},
        {"{\"a\"", "the text ends too early"},
        {"{\"a\":", "the text ends too early"},
        {"{\"a\":1", "the text ends too early"},
        {"[1,", "the text ends too early"},
        {"{\n\"a\": 1\n\"b\": 2}", "line 3, column 1: a comma or } is expected"},
        {"[1 2]", "a comma or ] is expected"},
        {"[1,]", "a value is expected"},
        {"{\"a\":1,}", "a key in double quotes is expected"},
        {"{a:1}", "a key in double quotes is expected"},
        {"{'a':1}", "a key in double quotes is expected"},
        {"{\"a\" 1}", "a colon is expected"},
        {"{} {}", "text goes on after the end"},
        {"{}x", "text goes on after the end"},
        {"[01]", "must not begin with 0"},
        {"[-]", "a digit is missing"},
        {"[1.]", "a digit is missing after the decimal point"},
        {"[.5]", "a value is expected"},
        {"[+1]", "a value is expected"},
        {"[1e]", "a digit is missing in the exponent"},
        {"[0x10]", "a comma or ] is expected"},
        {"[NaN]", "NaN and Infinity are not JSON numbers"},
        {"[Infinity]", "NaN and Infinity"},
        {"[-Infinity]", "a digit is missing"},
        {"[1e999]", "field '[0]' is a number too large"},
        {"{\"a\":[-1e999]}", "field 'a[0]' is a number too large"},
        {"[True]", "the words of JSON are true, false and null"},
        {"[nul]", "a value is expected"},
        {"[truely]", "a comma or ] is expected"},
        {"\"abc", "a string is not closed"},
        {"\"a\nb\"", "a control character in a string"},
        {"\"\\x\"", "an unknown escape"},
        {"\"\\u12g4\"", "four hexadecimal digits"},
        {"\"\\u0000\"", "NUL"},
        {"\"\\ud800\"", "half of a surrogate pair"},
        {"\"\\ud800\\u0041\"", "half of a surrogate pair"},
        {"\"\\udc00\"", "half of a surrogate pair"},
        {"\"\xff\"", "not UTF-8"},
        {"\"\xc0\xaf\"", "not UTF-8"},
        {"\"\xed\xa0\x80\"", "not UTF-8"},
        {"\"\xf4\x90\x80\x80\"", "not UTF-8"},
        {"\"\xe2\x82", "not UTF-8"},
        {"{\"a\":1,\"b\":2,\"a\":3}", "field 'a' is there twice"},
        {"{\"x\":{\"a\":1,\"\\u0061\":3}}", "field 'x.a' is there twice"},
        {"[1234567890123456789012345678901234567890123456789012345678901]", "too many digits"},
        {"// comment\n{}", "a value is expected"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct json *root = read_text(cases[i].text, strlen(cases[i].text), false);
        CHECK(root == NULL);
        CHECK_CONTAINS(err.text, cases[i].part);
        json_free(root);
    }
    CHECK(read_text("{}\0", 3, false) == NULL); /* a NUL byte is text, too */
    CHECK(read_text("\"a\0b\"", 5, false) == NULL);
}

/* Depth, width and repeated keys: refused or read, in time that grows with the text. */
static void test_size(void)
{
    enum { N = 200000 };
    char *text = malloc(N * 24);
    struct timespec from, to;
    if (!CHECK(text != NULL))
        return;
    clock_gettime(CLOCK_MONOTONIC, &from);
    for (int depth = 63; depth <= 66; depth++) {
        memset(text, '[', (size_t)depth);
        memset(text + depth, ']', (size_t)depth);
        struct json *root = read_text(text, 2 * (size_t)depth, false);
        CHECK_INT(root != NULL, depth <= 64);
        json_free(root);
    }
    memset(text, '[', N * 24);
    CHECK(read_text(text, N * 24, false) == NULL);
    CHECK_CONTAINS(err.text, "too deep");
    size_t used = 0;
    for (int i = 0; i < N; i++)
        used += (size_t)sprintf(text + used, "%c\"key%d\":%d", i == 0 ? '{' : ',', i == N - 1 ? 0 : i, i % 10);
    text[used++] = '}';
    CHECK(read_text(text, used, false) == NULL);
    CHECK_CONTAINS(err.text, "field 'key0' is there twice");
    text[0] = '[';
    used = 1;
    for (int i = 0; i < 1000001; i++) {
        text[used++] = '0';
        text[used++] = ',';
    }
    text[used - 1] = ']';
    CHECK(read_text(text, used, false) == NULL);
    CHECK_CONTAINS(err.text, "too many values");
    clock_gettime(CLOCK_MONOTONIC, &to);
    CHECK(to.tv_sec - from.tv_sec < 20);
    free(text);
}

static void test_python(void)
{
    static const char text[] =
        "{\"a\": NaN, \"b\": [-Infinity, Infinity], \"c\": \"NaN, \\\" Infinity\", \"d\": 1, \"NaN\": 2}";
    struct json *root = read_text(text, strlen(text), true);
    if (!CHECK(root != NULL))
        return;
    struct json_at at = {"x", "", root};
    int64_t n = 7;
    double d = 7;
    CHECK(isnan(json_double(json_get(root, "a"))));
    CHECK(json_type(json_get(root, "a")) == JSON_NUMBER);
    CHECK(json_text(json_get(root, "a")) == NULL);
    CHECK(json_double(json_item(json_get(root, "b"), 0)) < -1e308);
    CHECK(json_double(json_item(json_get(root, "b"), 1)) > 1e308);
    CHECK_STR(json_text(json_get(root, "c")), "NaN, \" Infinity");
    CHECK_INT(json_read_int(at, "a", INT64_MIN, INT64_MAX, &n, &err), -1);
    CHECK_INT(json_read_double(at, "a", -HUGE_VAL, HUGE_VAL, &d, &err), -1);
    CHECK_INT(n, 7);
    CHECK_DOUBLE(d, 7, 0);
    CHECK_INT(json_read_int(at, "NaN", 0, 9, &n, NULL), 1);
    char *printed = json_print(root);
    CHECK_CONTAINS(printed, "\"a\": null");
    free(printed);
    json_free(root);
    CHECK((root = read_text("Nan", 3, true)) == NULL);
    CHECK((root = read_text("[--Infinity]", 12, true)) == NULL);
}

static void test_readers(void)
{
    static const char text[] =
        "{\"i\":8,\"big\":1e15,\"huge\":1e17,\"f\":1.5,\"neg\":-3,\"b\":true,\"s\":\"1f1c\",\"n\":null,\"o\":{\"p\":{\"q\":\"x\"}},\"l\":[1,2]}";
    static const char *const schedules[] = {"gpipe", "1f1b", NULL};
    struct json *root = read_text(text, strlen(text), false);
    struct json_at at = {"a.json", "", root}, inner, innermost;
    int64_t i = -7;
    int small = -7;
    double d = -7;
    bool b = false;
    const char *s = NULL;
    char path[64], path2[64];
    CHECK_INT(json_read_int(at, "i", 1, 8, &i, &err), 1);
    CHECK_INT(i, 8);
    CHECK_INT(json_read_int(at, "big", 1, INT64_MAX, &i, &err), 1);
    CHECK_INT(i, 1000000000000000);
    CHECK_INT(json_read_int32(at, "i", 1, 100, &small, &err), 1);
    CHECK_INT(small, 8);
    CHECK_INT(json_read_double(at, "f", 0, 2, &d, &err), 1);
    CHECK_DOUBLE(d, 1.5, 0);
    CHECK_INT(json_read_bool(at, "b", &b, &err), 1);
    CHECK(b);
    CHECK_INT(json_read_string(at, "s", &s, &err), 1);
    CHECK_STR(s, "1f1c");
    CHECK_INT(json_read_int(at, "absent", 1, 8, &i, &err), 0);
    CHECK_INT(json_read_int(at, "n", 1, 8, &i, &err), 0);
    CHECK_INT(json_read_string(at, "n", &s, &err), 0);
    CHECK_INT(json_read_object(at, "o", &inner, path, sizeof(path), &err), 1);
    CHECK_INT(json_read_object(inner, "p", &innermost, path2, sizeof(path2), &err), 1);
    CHECK_STR(innermost.path, "o.p");
    CHECK_INT(err.count, 0);

    i = small = -7;
    CHECK_INT(json_read_int(at, "f", 1, 8, &i, &err), -1);
    CHECK_INT(json_read_int(at, "neg", 1, 8, &i, &err), -1);
    CHECK_INT(json_read_int(at, "huge", 1, INT64_MAX, &i, &err), -1);
    CHECK_INT(json_read_int(at, "s", 1, 8, &i, &err), -1);
    CHECK_INT(json_read_int32(at, "big", 0, 100, &small, &err), -1);
    CHECK_INT(json_read_bool(at, "i", &b, &err), -1);
    CHECK_INT(json_read_string(at, "l", &s, &err), -1);
    CHECK_INT(json_read_object(at, "l", &inner, path, sizeof(path), &err), -1);
    CHECK_INT(json_read_enum(at, "s", schedules, &small, &err), -1);
    CHECK_INT(json_read_int(innermost, "q", 1, 8, &i, &err), -1);
    CHECK_INT(i, -7);
    CHECK_INT(small, -7);
    CHECK_STR(err.text, "file 'a.json': field 'f' is 1.5; it must be a whole number\n"
                        "file 'a.json': field 'neg' is -3; allowed: 1 to 8\n"
                        "file 'a.json': field 'huge' is 1e+17; that is too large\n"
                        "file 'a.json': field 's' is a string; it must be a whole number\n"
                        "file 'a.json': field 'big' is 1e+15; allowed: 0 to 100\n"
                        "file 'a.json': field 'i' is a number; it must be true or false\n"
                        "file 'a.json': field 'l' is a list; it must be a string\n"
                        "file 'a.json': field 'l' is a list; it must be an object\n"
                        "file 'a.json': field 's' is '1f1c'; did you mean '1f1b'? (allowed: gpipe, 1f1b)\n"
                        "file 'a.json': field 'o.p.q' is a string; it must be a whole number");
    json_free(root);
}

static void test_check_keys(void)
{
    static const char text[] = "{\"micro_batch\":1,\"schedul\":2,\"colour\":3}";
    static const char *const known[] = {"micro_batch", "schedule", NULL};
    struct json *root = read_text(text, strlen(text), false);
    struct json_at at = {"a.json", "plan", root};
    static struct err warn;
    CHECK_INT(json_check_keys(at, known, &warn, &err), -1);
    CHECK_STR(err.text, "file 'a.json': field 'plan.schedul' is unknown; did you mean 'schedule'?");
    CHECK_STR(warn.text, "file 'a.json': field 'plan.colour' is unknown and ignored");
    json_free(root);
}

static void test_write(void)
{
    struct json *root = json_new_object();
    json_put_number(root, "third", 1.0 / 3);
    json_put_number(root, "nan", (double)NAN);
    json_put_number(root, "inf", HUGE_VAL);
    json_put_int(root, "int", 405853388800);
    json_put_int(root, "large", INT64_MAX);
    json_put_bool(root, "yes", true);
    json_put_string(root, "text", "a\"b\x01\xff");
    json_put_string(root, "none", NULL);
    json_put_null(root, "null");
    struct json *list = json_put_array(root, "list");
    json_push_number(list, 0.1);
    json_push_string(list, "x");
    json_put_number(json_put_object(root, "object"), "a", -2.5e-300);
    json_put(root, "empty", json_new_array());
    char *text = json_print(root);
    CHECK_STR(
        text,
        "{\n  \"third\": 0.3333333333333333,\n  \"nan\": null,\n  \"inf\": null,\n  \"int\": 405853388800,\n"
        "  \"large\": 9223372036854775807,\n  \"yes\": true,\n  \"text\": \"a\\\"b\\u0001\xEF\xBF\xBD\",\n  \"none\": null,\n"
        "  \"null\": null,\n  \"list\": [0.1, \"x\"],\n  \"object\": {\n    \"a\": -2.5e-300\n  },\n  \"empty\": []\n}\n");
    CHECK_DOUBLE(json_double(json_get(root, "large")), 9223372036854775807.0, 0);
    struct json *again = read_text(text, strlen(text), false);
    char *second = again != NULL ? json_print(again) : NULL;
    CHECK_CONTAINS(second, "\"third\": 0.3333333333333333,");
    CHECK_CONTAINS(second, "\"large\": 9.223372036854776e+18,");
    free(text);
    free(second);
    json_free(again);
    json_free(root);
    json_free(NULL);
}

/* Every double comes back as it went. */
static void test_numbers(void)
{
    uint64_t state = 1;
    for (int i = 0; i < 20000; i++) {
        double value, back;
        state = state * 6364136223846793005u + 1442695040888963407u;
        memcpy(&value, &state, sizeof(value));
        if (!isfinite(value))
            continue;
        struct json *list = json_new_array();
        json_push_number(list, value);
        char *text = json_print(list);
        back = strtod(text + 1, NULL);
        test_count(back == value || (value == 0 && back == 0));
        free(text);
        json_free(list);
    }
}

int main(void)
{
    test_good();
    test_bad();
    test_size();
    test_python();
    test_readers();
    test_check_keys();
    test_write();
    test_numbers();
    return test_report();
}
