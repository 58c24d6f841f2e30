/* Pictures without a display, without gnuplot, with a gnuplot that fails: the data is always left, an old picture is
 * never lost. */
#include "config.h"

#include "sim/writers/chart.h"

#include <sys/stat.h>
#include <unistd.h>

#include "cost/base/err.h"
#include "cost/base/file.h"
#include "tests/unit/test.h"

static char directory[] = "/tmp/test_chart_XXXXXX";
static char path[256];
static const struct chart chart = {
    .width_px = 300, .height_px = 200, .data = "0\t1\n1\t2\n", .script = "plot data using 1:2 with lines notitle"};

static const char *name(const char *file)
{
    snprintf(path, sizeof path, "%s/%s", directory, file);
    return path;
}

static void write_text(const char *file, const char *text, mode_t mode)
{
    struct err err = {0};
    CHECK_INT(file_write_atomic(name(file), text, strlen(text), &err), 0);
    CHECK_INT(chmod(name(file), mode), 0);
}

/* First bytes of a file, "" when it is not there; static. */
static const char *head(const char *file)
{
    static char text[4096];
    memset(text, 0, sizeof text);
    FILE *in = fopen(name(file), "rb");
    if (in) {
        size_t n = fread(text, 1, sizeof text - 1, in);
        fclose(in);
        text[n] = '\0';
    }
    return text;
}

static bool have_gnuplot(void)
{
    struct err err = {0};
    bool have = chart_draw(name("probe.svg"), &chart, &err) == 0;
    return have || !strstr(err.text, "not installed");
}

static void test_path(void)
{
    struct err err = {0};
    CHECK_INT(chart_check_path("a.png", &err), 0);
    CHECK_INT(chart_check_path("/a b.svg", &err), 0);
    CHECK_INT(chart_check_path("a.pdf", &err), 0);
    CHECK_INT(err.count, 0);
    CHECK_INT(chart_check_path("no such folder/a.svg", &err), -1);
    CHECK_CONTAINS(err.text, "there is no folder 'no such folder'");
    static const char *const bad[] = {"", "a", ".png", "dir/.png", "a.PNG", "a.jpg", "a.png/", "png", "a.png.gz", NULL};
    for (int i = 0; bad[i]; i++) {
        err_clear(&err);
        CHECK_INT(chart_check_path(bad[i], &err), -1);
        CHECK_CONTAINS(err.text, ".png, .svg or .pdf");
        CHECK_INT(err.count, 1);
    }
}

static void test_quote(void)
{
    char text[64] = "";
    FILE *out = fmemopen(text, sizeof text, "w");
    chart_quote(out, "it's \"a\\b\"\nc");
    fclose(out);
    CHECK_STR(text, "'it''s \"a\\b\" c'");
}

static void test_formats(void)
{
    static const struct {
        const char *file, *magic;
    } formats[] = {{"a.png", "\x89PNG"}, {"a.svg", "<?xml"}, {"it's a.pdf", "%PDF"}};
    setenv("DISPLAY", "localhost:15.0", 1);
    setenv("GNUTERM", "x11", 1);
    for (int i = 0; i < 3; i++) {
        struct err err = {0};
        int result = chart_draw(name(formats[i].file), &chart, &err);
        if (result < 0 && strstr(err.text, "cannot write")) { /* a gnuplot without that terminal */
            test_skip(err.text);
            continue;
        }
        CHECK_INT(result, 0);
        CHECK_STR(err.text, "");
        CHECK(strncmp(head(formats[i].file), formats[i].magic, 4) == 0);
    }
    CHECK_STR(head("a.png.dat"), chart.data);
    CHECK(strncmp(head("a.png.gp"), "set terminal png", 16) == 0);
    CHECK_CONTAINS(head("a.png.gp"), "picture = 'a.png'");
}

static void test_broken_script_keeps_the_old_picture(void)
{
    struct err err = {0};
    struct chart broken = chart;
    broken.script = "plot data using 1:2 with no_such_style";
    write_text("old.png", "an old picture", 0644);
    CHECK_INT(chart_draw(name("old.png"), &broken, &err), -1);
    CHECK_INT(err.count, 1);
    CHECK_CONTAINS(err.text, "no picture: gnuplot failed");
    CHECK_STR(head("old.png"), "an old picture");
    CHECK_STR(head("old.png.dat"), chart.data);
}

/* PATH leads to another gnuplot, or to none. */
static void test_other_gnuplot(const char *script, const char *expected)
{
    char old_path[4096];
    struct err err = {0};
    snprintf(old_path, sizeof old_path, "%s", getenv("PATH") ? getenv("PATH") : "");
    if (script)
        write_text("gnuplot", script, 0755);
    write_text("old.png", "an old picture", 0644);
    setenv("PATH", directory, 1);
    CHECK_INT(chart_draw(name("old.png"), &chart, &err), -1);
    setenv("PATH", old_path, 1);
    CHECK_INT(err.count, 1);
    CHECK_CONTAINS(err.text, expected);
    CHECK_STR(head("old.png"), "an old picture");
    CHECK_STR(head("old.png.dat"), chart.data);
    CHECK_CONTAINS(head("old.png.gp"), "set terminal pngcairo");
    unlink(name("gnuplot"));
}

static void test_unwritable(void)
{
    struct err err = {0};
    CHECK_INT(chart_draw(name("no/such/place.png"), &chart, &err), -1);
    CHECK_INT(err.count, 1);
    CHECK_INT(mkdir(name("directory.png"), 0755), 0);
    err_clear(&err);
    CHECK_INT(chart_draw(name("directory.png"), &chart, &err), -1);
    CHECK_INT(err.count, 1);
}

static void clean_up(void)
{
    char command[300];
    snprintf(command, sizeof command, "rm -r %s", directory);
    CHECK_INT(system(command), 0);
}

int main(void)
{
    if (!mkdtemp(directory))
        return 1;
    test_path();
    test_quote();
    test_other_gnuplot(NULL, "gnuplot is not installed");
    test_other_gnuplot("#!/bin/sh\necho 'line 3: boom' >&2\nexit 3\n", "gnuplot failed: line 3: boom");
    test_other_gnuplot("#!/bin/sh\nexit 3\n", "gnuplot failed: it said nothing");
    test_other_gnuplot("#!/bin/sh\nexit 0\n", "this gnuplot cannot write .png files");
    test_other_gnuplot("#!/bin/sh\necho 'dumb svg'\n", "it can write: .svg");
    test_other_gnuplot("#!/bin/sh\necho 'dumb pngcairo svg'\n", "gnuplot wrote nothing");
    if (have_gnuplot()) {
        test_formats();
        test_broken_script_keeps_the_old_picture();
        test_unwritable();
    } else {
        test_skip("gnuplot is not installed");
    }
    clean_up();
    return test_report();
}
