/* mkprofile OUT.db IN.csv...: the text files of a profile -> its SQLite file.
 * Deterministic: the same text gives the same rows in the same order. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cost/base/err.h"
#include "cost/profile_store.h"

/* Each file holds a number once; what a later file says stands. */
static int load_all(int n, char **paths, struct profile_rows *rows, struct err *err)
{
    int bad = 0;
    for (int i = 0; i < n; i++) {
        struct profile_rows file = {0};
        bad |= profile_csv_load(paths[i], &file, err);
        for (size_t k = 0; bad == 0 && k < file.n; k++)
            bad |= profile_rows_add(rows, &file.row[k], err);
        profile_rows_release(&file);
    }
    return bad != 0 ? bad : profile_rows_sort(rows, NULL, NULL);
}

static const char *newest_date(const struct profile_rows *rows)
{
    const char *newest = "";
    for (size_t i = 0; i < rows->n; i++)
        newest = strcmp(rows->row[i].date, newest) > 0 ? rows->row[i].date : newest;
    return newest;
}

int main(int argc, char **argv)
{
    struct err err = {0};
    struct profile_rows rows = {0};
    char temporary[4096];
    if (argc < 3) {
        fprintf(stderr, "usage: mkprofile OUT.db IN.csv...\n");
        return EXIT_USAGE;
    }
    snprintf(temporary, sizeof(temporary), "%s.tmp", argv[1]);
    unlink(temporary);
    int bad = load_all(argc - 2, argv + 2, &rows, &err);
    if (bad == 0)
        bad = profile_store_write(temporary, &rows, newest_date(&rows), &err);
    if (bad == 0 && rename(temporary, argv[1]) != 0)
        bad = err_add(&err, "'%s' cannot be renamed to '%s'", temporary, argv[1]);
    if (bad != 0)
        fprintf(stderr, "mkprofile: %s\n", err.text);
    profile_rows_release(&rows);
    return bad != 0 ? EXIT_INPUT : EXIT_ANSWERED;
}
