/* Aligned tables for the terminal.
 *
 *     struct table *table = table_new("  ");
 *     table_column(table, "plan", TABLE_LEFT);
 *     table_column(table, "step time", TABLE_RIGHT);
 *     table_cell(table, "TP8 PP4");
 *     table_cell(table, "%.2f s", step_s);
 *     table_print(table, stdout);
 *     table_free(table);
 *
 * Cells are filled row by row; widths are computed in columns of the terminal
 * (UTF-8: combining marks count 0, wide characters 2). Columns that may shrink
 * give way when the stream is a terminal narrower than the table: their longest
 * cells end in "..."; text that goes to a file or a pipe is never cut. Titles are
 * bold on a terminal unless NO_COLOR is set; nothing else is coloured. Text is
 * copied; running out of memory ends the process as in arena.h. */
#ifndef SIM_WRITERS_TABLE_H
#define SIM_WRITERS_TABLE_H

#include <stdio.h>

struct table;

enum table_align { TABLE_LEFT, TABLE_RIGHT };

struct table *table_new(const char *gap); /* text between columns, "  " */
void table_free(struct table *table);     /* NULL is fine */
/* Declares the next column; all columns come before the first cell. */
void table_column(struct table *table, const char *title, enum table_align align);
void table_shrink(struct table *table); /* the column just declared gives way when the table is too wide */
void table_cell(struct table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));
void table_rule(struct table *table); /* a line between rows; the row under way is ended */
/* Titles, a rule, rows. The last row may be short. */
void table_print(const struct table *table, FILE *out);

/* Columns that a UTF-8 text takes on a terminal; bytes that are not UTF-8 count 1. */
int table_text_width(const char *text);

#endif
