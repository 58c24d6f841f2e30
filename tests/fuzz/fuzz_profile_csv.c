/* Profile rows as CSV: any bytes give rows or a sentence; rows that were taken print and read back as the same. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cost/base/err.h"
#include "cost/profile_rows.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void print_and_read(const struct profile_rows *rows)
{
    struct profile_rows back = {0};
    char *text = NULL, first[65], second[65];
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    if (out == NULL)
        return;
    fprintf(out, "%s\n", profile_csv_header);
    for (size_t i = 0; i < rows->n; i++)
        profile_csv_print(&rows->row[i], out);
    fclose(out);
    if (profile_csv_parse(text, length, "again", &back, NULL) != 0)
        abort();
    profile_rows_hash(rows, first);
    profile_rows_hash(&back, second);
    if (strcmp(first, second) != 0)
        abort();
    profile_rows_release(&back);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct profile_rows rows = {0};
    struct err err = {0};
    char *text = malloc(size + 1);
    if (text == NULL)
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    if (profile_csv_parse(text, size, "fuzz", &rows, &err) == 0)
        print_and_read(&rows);
    else if (err.count == 0)
        abort(); /* refused without a word */
    profile_rows_release(&rows);
    free(text);
    return 0;
}
