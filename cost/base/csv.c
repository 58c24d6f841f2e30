#include "cost/base/csv.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "cost/base/err.h"
#include "cost/base/file.h"

/* Where the reader is. Cells are cut out of the text in place. */
struct reader {
    char *at, *end;
    int line;
};

/* Reads one cell and moves past its separator. *ret_last: it ended the record. Returns NULL for a quote without end. */
static char *read_cell(struct reader *r, bool *ret_last)
{
    char *cell = r->at, *out = r->at, *p = r->at;
    if (p < r->end && *p == '"') {
        for (p++; p < r->end && !(*p == '"' && (p + 1 >= r->end || p[1] != '"')); p++) {
            r->line += *p == '\n';
            p += *p == '"'; /* "" is a quote */
            *out++ = *p;
        }
        if (p >= r->end)
            return NULL;
        p++;
    }
    while (p < r->end && *p != ',' && *p != '\n')
        *out++ = *p++;
    *ret_last = p >= r->end || *p == '\n';
    if (*ret_last && out > cell && out[-1] == '\r')
        out--;
    r->line += p < r->end && *p == '\n';
    r->at = p < r->end ? p + 1 : p;
    *out = '\0';
    return cell;
}

static bool skip_blank(struct reader *r)
{
    char *p = r->at;
    if (p >= r->end || !(*p == '#' || *p == '\n' || (*p == '\r' && p + 1 < r->end && p[1] == '\n')))
        return false;
    char *newline = memchr(p, '\n', (size_t)(r->end - p));
    r->at = newline ? newline + 1 : r->end;
    r->line++;
    return true;
}

/* One record into cells[0..max); returns how many it has, -1 for an open quote. */
static int read_record(struct reader *r, const char **cells, int max)
{
    bool last = false;
    int n = 0;
    while (!last) {
        char *cell = read_cell(r, &last);
        if (!cell)
            return -1;
        if (n < max)
            cells[n] = cell;
        n++;
    }
    return n;
}

static int read_header(struct reader *r, const char *file, struct csv *csv, struct err *err)
{
    const char *names[CSV_COLUMNS_MAX];
    while (skip_blank(r))
        ;
    int n = r->at < r->end ? read_record(r, names, CSV_COLUMNS_MAX) : 0;
    if (n <= 0 || n > CSV_COLUMNS_MAX)
        return err_add(err, "table '%s': no line with the names of columns (1 to %d)", file, CSV_COLUMNS_MAX);
    csv->n_columns = n;
    csv->column = arena_array(&csv->arena, (size_t)n, sizeof *csv->column);
    memcpy(csv->column, names, (size_t)n * sizeof *names);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < i; k++)
            if (strcmp(names[i], names[k]) == 0 && *names[i])
                return err_add(err, "table '%s': column '%s' is there twice", file, names[i]);
    return 0;
}

static size_t count_lines(const char *text, size_t length)
{
    size_t n = 1;
    for (size_t i = 0; i < length; i++)
        n += text[i] == '\n';
    return n;
}

static int read_rows(struct reader *r, const char *file, struct csv *csv, struct err *err)
{
    size_t most = count_lines(r->at, (size_t)(r->end - r->at)), columns = (size_t)csv->n_columns;
    if (most > CSV_ROWS_MAX)
        return err_add(err, "table '%s': more than %d lines", file, CSV_ROWS_MAX);
    csv->cell = arena_array(&csv->arena, most * columns, sizeof *csv->cell);
    csv->line = arena_array(&csv->arena, most, sizeof *csv->line);
    int result = 0;
    while (r->at < r->end) {
        if (skip_blank(r))
            continue;
        const char **cells = &csv->cell[csv->n_rows * columns];
        int line = r->line, n = read_record(r, cells, csv->n_columns);
        if (n < 0)
            return err_add(err, "table '%s': line %d: a quote is not closed", file, line);
        if (n > csv->n_columns) {
            result = err_add(err, "table '%s': line %d: %d cells, but %d columns", file, line, n, csv->n_columns);
            continue;
        }
        for (int i = n; i < csv->n_columns; i++)
            cells[i] = "";
        csv->line[csv->n_rows++] = line;
    }
    return result;
}

int csv_parse(const char *text, size_t length, const char *file, struct csv *ret, struct err *err)
{
    memset(ret, 0, sizeof *ret);
    char *copy = arena_alloc(&ret->arena, length + 1);
    memcpy(copy, text, length);
    struct reader reader = {copy, copy + length, 1};
    if (memchr(text, '\0', length))
        return err_add(err, "table '%s': not text: it contains a zero byte", file);
    if (read_header(&reader, file, ret, err) < 0)
        return -1;
    return read_rows(&reader, file, ret, err);
}

int csv_load(const char *path, struct csv *ret, struct err *err)
{
    char *text;
    size_t length;
    memset(ret, 0, sizeof *ret);
    if (file_read(path, FILE_MAX_BYTES, &text, &length, err) < 0)
        return -1;
    int result = csv_parse(text, length, path, ret, err);
    free(text);
    return result;
}

void csv_release(struct csv *csv)
{
    arena_release(&csv->arena);
    memset(csv, 0, sizeof *csv);
}

int csv_column(const struct csv *csv, const char *name)
{
    for (int i = 0; i < csv->n_columns; i++)
        if (strcmp(csv->column[i], name) == 0)
            return i;
    return -1;
}

const char *csv_cell(const struct csv *csv, size_t row, int column)
{
    return column < 0 ? "" : csv->cell[row * (size_t)csv->n_columns + (size_t)column];
}

void csv_print(const char *text, FILE *out)
{
    bool quote = strpbrk(text, ",\"\n\r") != NULL;
    if (quote)
        putc('"', out);
    for (; *text; text++) {
        if (*text == '"')
            putc('"', out);
        putc(*text, out);
    }
    if (quote)
        putc('"', out);
}
