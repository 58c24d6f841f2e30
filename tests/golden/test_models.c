/* Published parameter totals (models.txt) against model_count_parameters. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cost/base/err.h"
#include "cost/base/json.h"
#include "cost/model.h"
#include "tests/unit/test.h"

enum { CELLS = 7, LINE_MAX_BYTES = 8192 };
enum { NAME, TOTAL, ACTIVE, MTP, TOLERANCE, SOURCE, CONFIG };

/* Cuts "a | b | ... | config"; the last cell may hold anything. */
static int split(char *line, char **cells)
{
    int n = 0;
    line[strcspn(line, "\r\n")] = '\0';
    while (n < CELLS) {
        cells[n++] = line;
        char *bar = n < CELLS ? strstr(line, " | ") : NULL;
        if (bar == NULL)
            break;
        *bar = '\0';
        line = bar + 3;
    }
    return n;
}

static void check(char *const *cells, int line, const char *what, int cell, int64_t got)
{
    if (strcmp(cells[cell], "-") == 0)
        return;
    int64_t expected = strtoll(cells[cell], NULL, 10);
    double tolerance = strtod(cells[TOLERANCE], NULL);
    bool holds = fabs((double)(got - expected)) <= tolerance * (double)expected;
    if (!holds)
        printf("models.txt:%d: %s: %s is %" PRId64 ", expected %" PRId64 " within %s (%s)\n", line, cells[NAME], what,
               got, expected, cells[TOLERANCE], cells[SOURCE]);
    test_count(holds);
}

static void check_line(char *const *cells, int line)
{
    static struct err err, warn;
    static struct model model;
    struct model_parameters p;
    struct json *root = NULL;
    err_clear(&err);
    err_clear(&warn);
    bool read = json_parse(cells[CONFIG], strlen(cells[CONFIG]), cells[NAME], &root, &err) == 0 &&
                model_parse(root, cells[NAME], &model, &warn, &err) == 0;
    json_free(root);
    if (!read)
        printf("models.txt:%d: %s\n", line, err.text);
    if (!test_count(read))
        return;
    model_count_parameters(&model, &p);
    check(cells, line, "total", TOTAL, p.total);
    check(cells, line, "active", ACTIVE, p.active);
    check(cells, line, "mtp", MTP, p.mtp);
    CHECK_INT(p.total, p.embedding + p.head + p.attention + p.mlp + p.experts + p.router + p.norm);
}

int main(void)
{
    char path[TEST_PATH_MAX], text[LINE_MAX_BYTES], *cells[CELLS];
    FILE *file = fopen(test_source_path(path, "tests/golden/models.txt"), "r");
    if (!CHECK(file != NULL))
        return test_report();
    for (int line = 1; fgets(text, sizeof(text), file) != NULL; line++) {
        if (text[0] == '#' || text[0] == '\n')
            continue;
        CHECK(strlen(text) < sizeof(text) - 1);
        if (CHECK_INT(split(text, cells), CELLS))
            check_line(cells, line);
    }
    fclose(file);
    return test_report();
}
