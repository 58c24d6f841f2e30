#include "config.h"

#include "sim/writers/table.h"

#include <assert.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cost/base/arena.h"

enum { TABLE_COLUMNS_MAX = 32, TABLE_NARROWEST = 12 };

struct cell {
    struct cell *next;
    const char *text; /* NULL = a rule */
    int column;
};

struct column {
    const char *title;
    enum table_align align;
    bool shrinks;
    int width; /* the widest of title and cells */
};

struct table {
    struct arena arena;
    const char *gap;
    int n_columns;
    struct column column[TABLE_COLUMNS_MAX];
    int next_column;
    struct cell *first, **end;
};

struct table *table_new(const char *gap)
{
    struct arena arena = {0};
    struct table *table = arena_alloc(&arena, sizeof(*table));
    table->arena = arena; /* the table lives in its own arena */
    table->gap = arena_strdup(&table->arena, gap);
    table->end = &table->first;
    return table;
}

void table_free(struct table *table)
{
    if (!table)
        return;
    struct arena arena = table->arena;
    arena_release(&arena);
}

void table_column(struct table *table, const char *title, enum table_align align)
{
    assert(!table->first && table->n_columns < TABLE_COLUMNS_MAX);
    struct column *column = &table->column[table->n_columns++];
    column->title = arena_strdup(&table->arena, title);
    column->align = align;
    column->width = table_text_width(title);
}

void table_shrink(struct table *table)
{
    assert(table->n_columns > 0);
    table->column[table->n_columns - 1].shrinks = true;
}

static void add_cell(struct table *table, const char *text, int column)
{
    struct cell *cell = arena_alloc(&table->arena, sizeof(*cell));
    cell->text = text;
    cell->column = column;
    *table->end = cell;
    table->end = &cell->next;
}

void table_cell(struct table *table, const char *format, ...)
{
    assert(table->n_columns > 0);
    va_list args;
    va_start(args, format);
    int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    char *text = arena_alloc(&table->arena, length < 0 ? 1 : (size_t)length + 1);
    va_start(args, format);
    if (length > 0)
        vsnprintf(text, (size_t)length + 1, format, args);
    va_end(args);

    struct column *column = &table->column[table->next_column];
    int width = table_text_width(text);
    if (width > column->width)
        column->width = width;
    add_cell(table, text, table->next_column);
    table->next_column = (table->next_column + 1) % table->n_columns;
}

void table_rule(struct table *table)
{
    add_cell(table, NULL, 0);
    table->next_column = 0;
}

/* Code point at *text, which is moved behind it; a stray byte stands for itself. */
static uint32_t next_character(const unsigned char **text)
{
    const unsigned char *p = *text;
    int more = p[0] >= 0xf0 && p[0] < 0xf8 ? 3 : p[0] >= 0xe0 && p[0] < 0xf0 ? 2 : p[0] >= 0xc2 && p[0] < 0xe0 ? 1 : 0;
    uint32_t c = more == 3 ? p[0] & 7u : more == 2 ? p[0] & 15u : more == 1 ? p[0] & 31u : p[0];
    for (int i = 1; i <= more; i++) {
        if ((p[i] & 0xc0) != 0x80) {
            *text = p + 1;
            return p[0];
        }
        c = c << 6 | (p[i] & 63u);
    }
    *text = p + 1 + more;
    return c;
}

struct range {
    uint32_t first, last;
};

static bool in_ranges(uint32_t c, const struct range *ranges)
{
    for (; ranges->last; ranges++)
        if (c >= ranges->first && c <= ranges->last)
            return true;
    return false;
}

/* After Unicode's East Asian Width and general category Mn, to the grain that a table needs. */
static int character_width(uint32_t c)
{
    static const struct range none[] = {
        {0x300, 0x36f}, {0x200b, 0x200f}, {0x20d0, 0x20ff}, {0xfe00, 0xfe0f}, {0, 0},
    };
    static const struct range wide[] = {
        {0x1100, 0x115f},   {0x2e80, 0x303e},   {0x3041, 0x4dbf}, {0x4e00, 0xa4cf}, {0xac00, 0xd7a3},
        {0xf900, 0xfaff},   {0xfe30, 0xfe6f},   {0xff00, 0xff60}, {0xffe0, 0xffe6}, {0x1f300, 0x1f64f},
        {0x1f900, 0x1f9ff}, {0x20000, 0x3fffd}, {0, 0},
    };
    return in_ranges(c, none) ? 0 : in_ranges(c, wide) ? 2 : 1;
}

int table_text_width(const char *text)
{
    int width = 0;
    for (const unsigned char *p = (const unsigned char *)text; *p;)
        width += character_width(next_character(&p));
    return width;
}

/* Columns that the table may take: the terminal's, or no limit. */
static int room(FILE *out)
{
    struct winsize size;
    if (isatty(fileno(out)) && ioctl(fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col >= 40)
        return size.ws_col;
    return INT32_MAX;
}

/* Takes what is too wide from the widest columns that may shrink, a column at a time. */
static void fit(const struct table *table, int limit, int *ret_widths)
{
    int total = table_text_width(table->gap) * (table->n_columns - 1);
    for (int i = 0; i < table->n_columns; i++)
        total += ret_widths[i] = table->column[i].width;
    while (total > limit) {
        int widest = -1;
        for (int i = 0; i < table->n_columns; i++) {
            int title = table_text_width(table->column[i].title);
            int least = title > TABLE_NARROWEST ? title : TABLE_NARROWEST;
            if (table->column[i].shrinks && ret_widths[i] > least && (widest < 0 || ret_widths[i] > ret_widths[widest]))
                widest = i;
        }
        if (widest < 0)
            return;
        ret_widths[widest]--;
        total--;
    }
}

/* Spaces wait until text follows: no line ends in blanks. */
struct line {
    FILE *out;
    int spaces;
};

static void put_bytes(struct line *line, const char *text, size_t length)
{
    if (length > 0)
        fprintf(line->out, "%*s", line->spaces, "");
    line->spaces = length > 0 ? 0 : line->spaces;
    fwrite(text, 1, length, line->out);
}

static void put_gap(struct line *line, const char *gap)
{
    if (gap[strspn(gap, " ")] == '\0')
        line->spaces += (int)strlen(gap);
    else
        put_bytes(line, gap, strlen(gap));
}

/* Text in `width` columns; what is too long ends in "...". */
static void put_text(struct line *line, const char *text, enum table_align align, int width)
{
    int wanted = table_text_width(text);
    if (wanted > width) {
        const unsigned char *p = (const unsigned char *)text;
        int used = 0;
        for (const unsigned char *ahead = p; *ahead; p = ahead) {
            int next = character_width(next_character(&ahead));
            if (used + next > width - 3)
                break;
            used += next;
        }
        put_bytes(line, text, (size_t)(p - (const unsigned char *)text));
        put_bytes(line, "...", 3);
        line->spaces += width - used - 3;
        return;
    }
    line->spaces += align == TABLE_RIGHT ? width - wanted : 0;
    put_bytes(line, text, strlen(text));
    line->spaces += align == TABLE_LEFT ? width - wanted : 0;
}

static void put_rule(const struct table *table, const int *widths, FILE *out)
{
    for (int i = 0; i < table->n_columns; i++) {
        if (i > 0)
            fputs(table->gap, out);
        for (int k = 0; k < widths[i]; k++)
            putc('-', out);
    }
    putc('\n', out);
}

static void put_titles(const struct table *table, const int *widths, FILE *out)
{
    struct line line = {.out = out};
    bool bold = isatty(fileno(out)) && !getenv("NO_COLOR");
    fputs(bold ? "\033[1m" : "", out);
    for (int i = 0; i < table->n_columns; i++) {
        if (i > 0)
            put_gap(&line, table->gap);
        put_text(&line, table->column[i].title, table->column[i].align, widths[i]);
    }
    fputs(bold ? "\033[0m\n" : "\n", out);
}

void table_print(const struct table *table, FILE *out)
{
    struct line line = {.out = out};
    int widths[TABLE_COLUMNS_MAX] = {0};
    fit(table, room(out), widths);
    put_titles(table, widths, out);
    put_rule(table, widths, out);
    for (const struct cell *cell = table->first; cell; cell = cell->next) {
        if (!cell->text) {
            put_rule(table, widths, out);
            continue;
        }
        if (cell->column > 0)
            put_gap(&line, table->gap);
        put_text(&line, cell->text, table->column[cell->column].align, widths[cell->column]);
        if (!cell->next || cell->next->column == 0) {
            putc('\n', out);
            line.spaces = 0;
        }
    }
}
