/* The smallest test harness: checks print both values with file and line, go
 * on after a failure, and do not vanish under NDEBUG. A test program ends with
 *     return test_report();
 * whose last line is "N passed, N failed" alone; exit 1 when any failed.
 * What is not there (the shared data beside the source tree) is skipped aloud:
 * test_skip, exit 77 when nothing else was checked. */
#ifndef TESTS_UNIT_TEST_H
#define TESTS_UNIT_TEST_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { TEST_SKIPPED = 77, TEST_PATH_MAX = 4096 };

static int test_passed, test_failed, test_skipped;

static inline bool test_count(bool holds)
{
    test_passed += holds;
    test_failed += !holds;
    fflush(stdout);
    return holds;
}

static inline bool test_true(bool holds, const char *text, const char *file, int line)
{
    if (!holds)
        printf("%s:%d: not true: %s\n", file, line, text);
    return test_count(holds);
}

static inline bool test_int(long long got, long long expected, const char *text, const char *file, int line)
{
    if (got != expected)
        printf("%s:%d: %s is %lld, expected %lld\n", file, line, text, got, expected);
    return test_count(got == expected);
}

/* Within a relative tolerance; 0 = exactly. Never true for NaN. */
static inline bool test_double(double got, double expected, double relative, const char *text, const char *file,
                               int line)
{
    double off = got > expected ? got - expected : expected - got,
           allowed = relative * (expected < 0 ? -expected : expected);
    bool holds = off <= allowed;
    if (!holds)
        printf("%s:%d: %s is %.17g, expected %.17g within %g\n", file, line, text, got, expected, relative);
    return test_count(holds);
}

static inline bool test_str(const char *got, const char *expected, const char *text, const char *file, int line)
{
    bool holds = got != NULL && expected != NULL ? strcmp(got, expected) == 0 : got == expected;
    if (!holds)
        printf("%s:%d: %s is \"%s\", expected \"%s\"\n", file, line, text, got != NULL ? got : "(null)",
               expected != NULL ? expected : "(null)");
    return test_count(holds);
}

static inline bool test_contains(const char *got, const char *part, const char *text, const char *file, int line)
{
    bool holds = got != NULL && strstr(got, part) != NULL;
    if (!holds)
        printf("%s:%d: %s is \"%s\", expected to contain \"%s\"\n", file, line, text, got != NULL ? got : "(null)",
               part);
    return test_count(holds);
}

#define CHECK(holds) test_true((holds), #holds, __FILE__, __LINE__)
#define CHECK_INT(got, expected) test_int((long long)(got), (long long)(expected), #got, __FILE__, __LINE__)
#define CHECK_DOUBLE(got, expected, relative) test_double((got), (expected), (relative), #got, __FILE__, __LINE__)
#define CHECK_STR(got, expected) test_str((got), (expected), #got, __FILE__, __LINE__)
#define CHECK_CONTAINS(got, part) test_contains((got), (part), #got, __FILE__, __LINE__)

static inline void test_skip(const char *why)
{
    printf("skipped: %s\n", why);
    test_skipped++;
}

static inline int test_report(void)
{
    printf("%d passed, %d failed\n", test_passed, test_failed);
    if (test_failed > 0)
        return 1;
    return test_passed == 0 && test_skipped > 0 ? TEST_SKIPPED : 0;
}

/* A file of the source tree: $PLANSIM_SOURCE_ROOT, else -DSOURCE_ROOT, else the current directory. */
static inline const char *test_source_path(char *buffer, const char *name)
{
    const char *root = getenv("PLANSIM_SOURCE_ROOT");
#ifdef SOURCE_ROOT
    if (root == NULL)
        root = SOURCE_ROOT;
#endif
    snprintf(buffer, TEST_PATH_MAX, "%s/%s", root != NULL ? root : ".", name);
    return buffer;
}

/* A file of the shared data: $PLANSIM_SHARED, else "shared" beside the source tree. NULL when it is not there. */
static inline const char *test_shared_path(char *buffer, const char *name)
{
    struct stat st;
    const char *shared = getenv("PLANSIM_SHARED");
    if (shared != NULL) {
        snprintf(buffer, TEST_PATH_MAX, "%s/%s", shared, name);
    } else {
        char relative[TEST_PATH_MAX / 2];
        snprintf(relative, sizeof(relative), "../shared/%s", name);
        test_source_path(buffer, relative);
    }
    return stat(buffer, &st) == 0 ? buffer : NULL;
}

#endif
