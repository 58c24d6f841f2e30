#include "config.h"

#include "sim/writers/table.h"

#include "tests/unit/test.h"

static void print(const struct table *table, char *ret, size_t size)
{
    FILE *out = fmemopen(ret, size, "w");
    table_print(table, out);
    fclose(out);
}

static void test_widths(void)
{
    CHECK_INT(table_text_width(""), 0);
    CHECK_INT(table_text_width("1F1B"), 4);
    CHECK_INT(table_text_width("\xce\xb1-\xce\xb2"), 3);        /* alpha-beta */
    CHECK_INT(table_text_width("e\xcc\x81"), 1);                /* e + combining acute */
    CHECK_INT(table_text_width("\xe6\xa8\xa1\xe5\x9e\x8b"), 4); /* two wide characters */
    CHECK_INT(table_text_width("\xf0\x9f\x98\x80"), 2);         /* an emoji */
    CHECK_INT(table_text_width("\xff\xfe"), 2);                 /* not UTF-8 */
    CHECK_INT(table_text_width("\xe6\xa8"), 2);                 /* cut in the middle */
    CHECK_INT(table_text_width("a\xc3"), 2);                    /* cut at the end */
}

static void test_layout(void)
{
    char text[1024] = "";
    struct table *table = table_new("  ");
    table_column(table, "plan", TABLE_LEFT);
    table_column(table, "step", TABLE_RIGHT);
    table_column(table, "bound by", TABLE_LEFT);
    table_cell(table, "TP8 PP4");
    table_cell(table, "%.2f s", 14.5);
    table_cell(table, "compute");
    table_rule(table);
    table_cell(table, "\xce\xb1");
    table_cell(table, "%d", 1234567);
    table_cell(table, "DP");
    table_cell(table, "x");
    table_cell(table, "%s", "");
    table_cell(table, "%s", ""); /* no line ends in blanks */
    print(table, text, sizeof text);
    table_free(table);
    CHECK_STR(text, "plan        step  bound by\n"
                    "-------  -------  --------\n"
                    "TP8 PP4  14.50 s  compute\n"
                    "-------  -------  --------\n"
                    "\xce\xb1        1234567  DP\n"
                    "x\n");
}

static void test_short_row_and_no_rows(void)
{
    char text[1024] = "";
    struct table *table = table_new(" | ");
    table_column(table, "a", TABLE_LEFT);
    table_column(table, "b", TABLE_LEFT);
    print(table, text, sizeof text);
    CHECK_STR(text, "a | b\n- | -\n");
    table_cell(table, "only");
    memset(text, 0, sizeof text);
    print(table, text, sizeof text);
    CHECK_STR(text, "a    | b\n---- | -\nonly\n");
    table_free(table);
    table_free(NULL);
}

/* Text that goes to a file is never cut, however long. */
static void test_never_cut_in_a_file(void)
{
    char text[4096] = "", cell[1500];
    memset(cell, 'x', sizeof cell - 1);
    cell[sizeof cell - 1] = '\0';
    struct table *table = table_new("  ");
    table_column(table, "plan", TABLE_LEFT);
    table_shrink(table);
    table_cell(table, "%s", cell);
    print(table, text, sizeof text);
    table_free(table);
    CHECK_CONTAINS(text, cell);
}

int main(void)
{
    test_widths();
    test_layout();
    test_short_row_and_no_rows();
    test_never_cut_in_a_file();
    return test_report();
}
