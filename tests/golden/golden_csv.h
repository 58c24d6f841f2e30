/* What the golden tests of schedules share: where the tables are, CSV lines in
 * cells, counting of failures. The tables come from executing the original
 * implementations; they are not part of the repository, so a test that needs
 * them is skipped (exit 77) where they are missing. */
#ifndef TESTS_GOLDEN_GOLDEN_CSV_H
#define TESTS_GOLDEN_GOLDEN_CSV_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GOLDEN_SKIPPED = 77, GOLDEN_CELLS = 40, GOLDEN_LINE = 4096, GOLDEN_PATH = 1024 };

/* $PLANSIM_SHARED, or the directory "shared" beside the source tree. */
static inline const char *golden_path(char *buffer, const char *name)
{
    const char *shared = getenv("PLANSIM_SHARED"), *root = getenv("PLANSIM_SOURCE_ROOT");
    if (shared)
        snprintf(buffer, GOLDEN_PATH, "%s/data/schedules/%s", shared, name);
    else
#ifdef SOURCE_ROOT
        snprintf(buffer, GOLDEN_PATH, "%s/../shared/data/schedules/%s", root ? root : SOURCE_ROOT, name);
#else
        snprintf(buffer, GOLDEN_PATH, "%s/../shared/data/schedules/%s", root ? root : ".", name);
#endif
    return buffer;
}

/* Cuts a line at its commas in place; returns the number of cells. Quoted cells are not needed. */
static inline int golden_split(char *line, char **cells)
{
    int n = 0;
    line[strcspn(line, "\r\n")] = 0;
    for (char *at = line; at && n < GOLDEN_CELLS; n++) {
        char *comma = strchr(at, ',');
        cells[n] = at;
        if (comma)
            *comma++ = 0;
        at = comma;
    }
    return n;
}

/* Index of a column name, or exit 1. */
static inline int golden_column(char **cells, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (strcmp(cells[i], name) == 0)
            return i;
    fprintf(stderr, "no column '%s'\n", name);
    exit(1);
}

#endif
