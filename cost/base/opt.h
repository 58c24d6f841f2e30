/* Command lines: every option is declared once in a table; the parser and
 * --help come from it.
 *
 * `--name value` and `--name=value`; flags take no value. Unknown options and
 * bad values give one sentence naming the nearest option or the allowed range
 * (exit 2). "--" ends options. */
#ifndef COST_BASE_OPT_H
#define COST_BASE_OPT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct err;

enum opt_type { OPT_FLAG, OPT_STRING, OPT_INT, OPT_DOUBLE, OPT_CHOICE, OPT_LIST };

/* OPT_LIST: the values of an option that may be repeated. */
enum { OPT_LIST_MAX = 64 };
struct opt_list {
    int n;
    const char *value[OPT_LIST_MAX];
};

struct opt {
    const char *name;      /* without the dashes */
    enum opt_type type;
    void *target;          /* bool*, const char **, int64_t*, double*, int* (index of choice), struct opt_list * */
    double min, max;       /* OPT_INT, OPT_DOUBLE: inclusive */
    const char *const *choices; /* OPT_CHOICE, NULL-terminated */
    const char *metavar;   /* "FILE", "N"; NULL for flags */
    const char *help;      /* one line; says the default */
};

/* Parses argv[0..argc); positional arguments are gathered in ret_positional
 * (up to max_positional). Tables end with name == NULL. *ret_help is set when
 * --help or -h was met. */
int opt_parse(const struct opt *table, int argc, char **argv, const char **ret_positional, int max_positional,
              int *ret_n_positional, bool *ret_help, struct err *err);
void opt_print_help(FILE *out, const char *usage, const char *about, const struct opt *table, const char *example);

#endif
