/* A profile's rows as CSV (RFC 4180 quoting; CRLF and BOM accepted on reading). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cost/base/err.h"
#include "cost/base/file.h"
#include "cost/base/names.h"
#include "cost/base/unit.h"
#include "cost/profile_rows.h"

enum {
    COLUMN_TABLE,
    COLUMN_NAME,
    COLUMN_KEY,
    COLUMN_FIELD,
    COLUMN_VALUE,
    COLUMN_UNIT,
    COLUMN_LOW,
    COLUMN_HIGH,
    COLUMN_PROVENANCE,
    COLUMN_DATE,
    COLUMN_SOURCE,
    COLUMNS
};

const char profile_csv_header[] = "table,name,key,field,value,unit,low,high,provenance,date,source";

/* Splits one record in place; cells point into the text. Returns the number of cells (COLUMNS + 1 = too many),
 * or -1 for a quote that is not closed or is followed by text. *at moves past the record, *line over its lines. */
static int split(char **at, char *end, char *cells[COLUMNS], int *line)
{
    char *p = *at;
    int n = 0;
    bool more = true;
    while (more) {
        char *out = p;
        char *cell = p;
        if (p < end && *p == '"') {
            cell = out = ++p;
            while (p < end && !(*p == '"' && (p + 1 >= end || p[1] != '"'))) {
                *line += *p == '\n';
                p += *p == '"'; /* "" is a quote */
                *out++ = *p++;
            }
            if (p >= end)
                return *at = end, -1;
            p++;
            if (p < end && *p != ',' && *p != '\n' && *p != '\r')
                return *at = end, -1;
        } else {
            while (p < end && *p != ',' && *p != '\n')
                p++;
            out = p > cell && (p == end || *p == '\n') && p[-1] == '\r' ? p - 1 : p;
        }
        if (p + 1 < end && *p == '\r' && p[1] == '\n')
            p++;
        more = p < end && *p == ',';
        p += p < end;
        *out = '\0';
        if (n < COLUMNS)
            cells[n] = cell;
        n += n <= COLUMNS;
    }
    (*line)++;
    *at = p;
    return n;
}

static int parse_number(const char *cell, const char *what, const char *where, double *ret, struct err *err)
{
    struct err reason = {0};
    if (unit_parse_double(cell, -HUGE_VAL, HUGE_VAL, ret, &reason) == 0 && isfinite(*ret))
        return 0;
    return err_add(err, "%s: %s '%s' is not a finite number", where, what, cell);
}

static int parse_record(char *cells[COLUMNS], const char *where, struct profile_row *row, struct err *err)
{
    char list[256];
    int bad = 0;
    int section = names_find(profile_section_names, cells[COLUMN_TABLE]);
    int provenance = names_find(provenance_names, cells[COLUMN_PROVENANCE]);
    if (section < 0)
        bad = err_add(err, "%s: unknown table '%s'; known: %s", where, cells[COLUMN_TABLE],
                      names_join(profile_section_names, list, sizeof(list)));
    if (provenance < 0)
        bad = err_add(err, "%s: unknown provenance '%s'; known: %s", where, cells[COLUMN_PROVENANCE],
                      names_join(provenance_names, list, sizeof(list)));
    *row = (struct profile_row){.name = cells[COLUMN_NAME],
                                .key = cells[COLUMN_KEY],
                                .field = cells[COLUMN_FIELD],
                                .value = (double)NAN,
                                .unit = cells[COLUMN_UNIT],
                                .low = (double)NAN,
                                .high = (double)NAN,
                                .date = cells[COLUMN_DATE],
                                .source = cells[COLUMN_SOURCE]};
    if (strcmp(row->unit, "name") == 0)
        row->text = cells[COLUMN_VALUE];
    else
        bad |= parse_number(cells[COLUMN_VALUE], "value", where, &row->value, err);
    if (cells[COLUMN_LOW][0] != '\0')
        bad |= parse_number(cells[COLUMN_LOW], "low", where, &row->low, err);
    if (cells[COLUMN_HIGH][0] != '\0')
        bad |= parse_number(cells[COLUMN_HIGH], "high", where, &row->high, err);
    if (bad != 0)
        return bad;
    row->section = (enum profile_section)section;
    row->provenance = (enum provenance)provenance;
    return profile_row_check(row, where, err);
}

static bool is_header(char *cells[COLUMNS], int n)
{
    char joined[128] = "";
    size_t used = 0;
    for (int i = 0; i < n && i < COLUMNS && used < sizeof(joined); i++)
        used += (size_t)snprintf(joined + used, sizeof(joined) - used, "%s%s", i > 0 ? "," : "", cells[i]);
    return n == COLUMNS && strcmp(joined, profile_csv_header) == 0;
}

static int parse_records(char *text, size_t length, const char *file, struct profile_rows *rows, struct err *err)
{
    char *at = text, *end = text + length;
    char *cells[COLUMNS];
    char where[300];
    bool header = false;
    int line = 1, bad = 0;
    while (at < end) {
        int start = line;
        if (*at == '#' || *at == '\n' || (*at == '\r' && at + 1 < end && at[1] == '\n')) {
            char *newline = memchr(at, '\n', (size_t)(end - at));
            at = newline != NULL ? newline + 1 : end;
            line++;
            continue;
        }
        int n = split(&at, end, cells, &line);
        snprintf(where, sizeof(where), "'%s' line %d", file, start);
        if (!header) {
            if (n < 0 || !is_header(cells, n))
                return err_add(err, "%s: the header must be %s", where, profile_csv_header);
            header = true;
            continue;
        }
        struct profile_row row;
        if (n < 0)
            return err_add(err, "%s: a quote is not closed or has text behind it", where);
        if (n != COLUMNS)
            bad = err_add(err, "%s: %s%d cells; expected %d", where, n > COLUMNS ? "more than " : "",
                          n > COLUMNS ? COLUMNS : n, COLUMNS);
        else if (parse_record(cells, where, &row, err) != 0)
            bad = -1;
        else {
            row.line = start;
            if (profile_rows_add(rows, &row, err) != 0)
                return -1;
        }
    }
    return header ? bad : err_add(err, "'%s' has no header; expected %s", file, profile_csv_header);
}

int profile_csv_parse(const char *text, size_t length, const char *file, struct profile_rows *rows, struct err *err)
{
    if (memchr(text, '\0', length) != NULL)
        return err_add(err, "'%s' is not text (it holds zero bytes)", file);
    char *copy = malloc(length + 2);
    if (copy == NULL)
        return err_add(err, "out of memory for '%s' (%zu bytes)", file, length);
    memcpy(copy, text, length);
    copy[length] = '\0';
    copy[length + 1] = '\0';
    int bad = parse_records(copy, length, file, rows, err);
    if (bad == 0)
        bad = profile_rows_sort(rows, file, err);
    free(copy);
    return bad;
}

int profile_csv_load(const char *path, struct profile_rows *rows, struct err *err)
{
    char *text;
    size_t length;
    if (file_read(path, FILE_MAX_BYTES, &text, &length, err) != 0)
        return -1;
    int bad = profile_csv_parse(text, length, path, rows, err);
    free(text);
    return bad;
}

static void print_cell(const char *text, FILE *out)
{
    if (strpbrk(text, ",\"\n\r#") == NULL) {
        fputs(text, out);
        return;
    }
    putc('"', out);
    for (; *text != '\0'; text++) {
        if (*text == '"')
            putc('"', out);
        putc(*text, out);
    }
    putc('"', out);
}

/* The shortest text that reads back as the same number; no exponent for 450. */
static void print_number(double value, FILE *out)
{
    char text[40];
    if (isnan(value))
        return;
    double magnitude = floor(log10(fabs(value))) + 1; /* digits before the point; -inf for 0 */
    int least = magnitude > 1 && magnitude <= 15 ? (int)magnitude : 1;
    for (int digits = least; digits <= 17; digits++) {
        snprintf(text, sizeof(text), "%.*g", digits, value);
        double back = strtod(text, NULL);
        if (!(back < value) && !(back > value))
            break;
    }
    fputs(text, out);
}

void profile_csv_print(const struct profile_row *row, FILE *out)
{
    const char *const before[] = {profile_section_names[row->section], row->name, row->key, row->field, NULL};
    for (int i = 0; before[i] != NULL; i++) {
        print_cell(before[i], out);
        putc(',', out);
    }
    if (row->text != NULL)
        print_cell(row->text, out);
    else
        print_number(row->value, out);
    putc(',', out);
    print_cell(row->unit, out);
    putc(',', out);
    print_number(row->low, out);
    putc(',', out);
    print_number(row->high, out);
    fprintf(out, ",%s,", provenance_names[row->provenance]);
    print_cell(row->date, out);
    putc(',', out);
    print_cell(row->source, out);
    putc('\n', out);
}
