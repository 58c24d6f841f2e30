/* Sentences: collected, prefixed, appended, never longer than the buffer, never drawing on the terminal. */
#include "cost/base/err.h"

#include "tests/unit/test.h"

static void test_add(void)
{
    struct err err = {0};
    CHECK_INT(err_add(&err, "tp %d does not divide heads %d", 6, 32), -1);
    CHECK_INT(err.count, 1);
    CHECK_STR(err.text, "tp 6 does not divide heads 32");
    err_add(&err, "second");
    CHECK_STR(err.text, "tp 6 does not divide heads 32\nsecond");
    CHECK_INT(err.length, strlen(err.text));
    err_clear(&err);
    CHECK_INT(err.count, 0);
    CHECK_STR(err.text, "");
    CHECK_INT(err_add(NULL, "nobody listens"), -1);
    CHECK_INT(err_prefix(NULL, 0, "x"), -1);
    err_clear(NULL);
}

static void test_control_characters(void)
{
    struct err err = {0};
    err_add(&err, "name '%s'", "a\nb\033[31m\x7f");
    CHECK_STR(err.text, "name 'a?b?[31m?'");
    CHECK_INT(err.count, 1);
}

static void test_prefix(void)
{
    struct err err = {0};
    err_add(&err, "zero");
    err_add(&err, "one");
    err_add(&err, "two");
    CHECK_INT(err_prefix(&err, 1, "plan '%s': ", "a.json"), -1);
    CHECK_STR(err.text, "zero\nplan 'a.json': one\nplan 'a.json': two");
    CHECK_INT(err.count, 3);
    CHECK_INT(err_prefix(&err, 3, "never: "), -1);
    CHECK_STR(err.text, "zero\nplan 'a.json': one\nplan 'a.json': two");
}

static void test_append(void)
{
    struct err a = {0}, b = {0};
    CHECK_INT(err_append(&a, &b), 0);
    err_add(&a, "one");
    err_add(&b, "two");
    err_add(&b, "three");
    CHECK_INT(err_append(&a, &b), -1);
    CHECK_STR(a.text, "one\ntwo\nthree");
    CHECK_INT(a.count, 3);
    CHECK_INT(err_append(NULL, &b), -1);
}

static void test_overflow(void)
{
    static struct err err;
    for (int i = 0; i < 3000; i++)
        err_add(&err, "sentence number %d of very many", i);
    CHECK_INT(err.count, 3000);
    CHECK(strlen(err.text) < ERR_TEXT_MAX);
    CHECK_INT(err.length, strlen(err.text));
    const char *more = strstr(err.text, "\n... and ");
    CHECK(more != NULL);
    int lines = 1;
    for (const char *c = err.text; c < more; c++)
        lines += *c == '\n';
    CHECK_INT(more != NULL ? atoi(more + 9) : 0, 3000 - lines);
    err_prefix(&err, 0, "prefix: ");
    CHECK(strlen(err.text) < ERR_TEXT_MAX);
    CHECK(strncmp(err.text, "prefix: sentence number 0 ", 26) == 0);
}

static void test_long_sentence(void)
{
    static struct err err;
    char text[20000];
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    err_add(&err, "%s", text);
    CHECK(err.length < 4096);
    CHECK_STR(err.text + err.length - 3, "...");
    for (int i = 0; i < 10; i++)
        err_add(&err, "%s", text);
    CHECK(strlen(err.text) < ERR_TEXT_MAX);
    CHECK_INT(err.count, 11);
}

int main(void)
{
    test_add();
    test_control_characters();
    test_prefix();
    test_append();
    test_overflow();
    test_long_sentence();
    return test_report();
}
