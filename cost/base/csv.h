/* Tables as spreadsheets write them: RFC 4180 quoting, CRLF or LF, a BOM, lines
 * that begin with '#' and empty lines skipped, the first record names the columns.
 *
 * Cells live as long as the table. A record with more cells than columns, or a
 * quote that does not close, is an error with its line; one with fewer is padded
 * with empty cells. */
#ifndef COST_BASE_CSV_H
#define COST_BASE_CSV_H

#include <stddef.h>
#include <stdio.h>

#include "cost/base/arena.h"

struct err;

enum { CSV_COLUMNS_MAX = 256, CSV_ROWS_MAX = 4 << 20 };

struct csv {
    struct arena arena;
    int n_columns;
    size_t n_rows;
    const char **column; /* [n_columns] */
    const char **cell;   /* [n_rows * n_columns] */
    int *line;           /* [n_rows]: where the record begins, from 1 */
};

int csv_load(const char *path, struct csv *ret, struct err *err); /* "-" = standard input */
int csv_parse(const char *text, size_t length, const char *file, struct csv *ret, struct err *err);
void csv_release(struct csv *csv);

int csv_column(const struct csv *csv, const char *name);                /* -1 = there is none */
const char *csv_cell(const struct csv *csv, size_t row, int column);    /* "" for column -1 */

/* A cell, in quotes where it needs them. */
void csv_print(const char *text, FILE *out);

#endif
