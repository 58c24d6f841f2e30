/* cost/base/csv: quoting, comments, and what is refused. */
#include "tests/unit/test.h"

#include "cost/base/csv.h"
#include "cost/base/err.h"

static int parse(const char *text, struct csv *csv, struct err *err)
{
    err_clear(err);
    return csv_parse(text, strlen(text), "t.csv", csv, err);
}

static void reads_tables(void)
{
    struct csv csv;
    struct err err = {0};
    CHECK_INT(parse("# a comment\r\n\r\nname,value\r\n\"a, \"\"b\"\"\",1\n#x\nshort\n\"two\nlines\",2", &csv, &err), 0);
    CHECK_INT((int)csv.n_rows, 3);
    CHECK_INT(csv.n_columns, 2);
    CHECK_STR(csv_cell(&csv, 0, csv_column(&csv, "name")), "a, \"b\"");
    CHECK_STR(csv_cell(&csv, 1, 0), "short");
    CHECK_STR(csv_cell(&csv, 1, 1), "");
    CHECK_STR(csv_cell(&csv, 2, 0), "two\nlines");
    CHECK_STR(csv_cell(&csv, 2, 1), "2");
    CHECK_INT(csv.line[1], 6);
    CHECK_INT(csv_column(&csv, "other"), -1);
    CHECK_STR(csv_cell(&csv, 0, -1), "");
    csv_release(&csv);
}

static void refuses(const char *text, const char *part)
{
    struct csv csv;
    struct err err = {0};
    CHECK_INT(parse(text, &csv, &err), -1);
    CHECK_CONTAINS(err.text, part);
    csv_release(&csv);
}

int main(void)
{
    reads_tables();
    refuses("", "names of columns");
    refuses("# nothing\n", "names of columns");
    refuses("a,b\n1,2,3\n", "line 2: 3 cells, but 2 columns");
    refuses("a,b\n\"open\n", "line 2: a quote is not closed");
    refuses("a,a\n", "twice");
    return test_report();
}
