#include "cost/base/opt.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

#include "cost/base/err.h"
#include "cost/base/names.h"
#include "cost/base/unit.h"

enum { OPTIONS_MAX = 64 };

static const struct opt *find_option(const struct opt *table, const char *name, size_t length)
{
    for (; table->name != NULL; table++) {
        if (strncmp(table->name, name, length) == 0 && table->name[length] == '\0')
            return table;
    }
    return NULL;
}

/* Longer words for the same: seq-length for seq; global-batch-size, or its beginning, for gbs. */
static bool spells_out(const char *word, const char *name)
{
    size_t n = strlen(name), initials = 0;
    if (strncmp(word, name, n) == 0 && word[n] == '-')
        return true;
    for (const char *part = word; part && initials < n && *part == name[initials]; part = strchr(part, '-') ? strchr(part, '-') + 1 : NULL)
        if (++initials >= 2 && !strchr(part, '-'))
            return true;
    return false;
}

static int unknown_option(const struct opt *table, const char *name, size_t length, struct err *err)
{
    const char *names[OPTIONS_MAX + 2];
    int n = 0;
    for (; table->name != NULL && n < OPTIONS_MAX; table++)
        names[n++] = table->name;
    names[n++] = "help";
    names[n] = NULL;
    char word[64];
    snprintf(word, sizeof(word), "%.*s", (int)length, name);
    const char *nearest = names_nearest(names, word);
    for (int i = 0; !nearest && i < n; i++)
        nearest = spells_out(word, names[i]) ? names[i] : NULL;
    if (nearest != NULL)
        return err_add(err, "unknown option '--%s'; did you mean '--%s'?", word, nearest);
    return err_add(err, "unknown option '--%s'; see --help", word);
}

static int parse_choice(const struct opt *opt, const char *value, struct err *err)
{
    int index = names_find(opt->choices, value);
    if (index < 0) {
        char list[512];
        return err_add(err, "'%s' is not one of %s", value, names_join(opt->choices, list, sizeof(list)));
    }
    *(int *)opt->target = index;
    return 0;
}

static int add_value(struct opt_list *list, const char *value, struct err *err)
{
    if (list->n == OPT_LIST_MAX)
        return err_add(err, "given more than %d times", OPT_LIST_MAX);
    list->value[list->n++] = value;
    return 0;
}

/* A table that leaves min and max at 0 sets no bounds. */
static bool bounded(const struct opt *opt)
{
    return opt->min < 0 || opt->min > 0 || opt->max < 0 || opt->max > 0;
}

static int64_t whole_bound(double bound)
{
    if (bound >= 9.2e18)
        return INT64_MAX;
    return bound <= -9.2e18 ? INT64_MIN : (int64_t)bound;
}

static int parse_value(const struct opt *opt, const char *value, struct err *err)
{
    switch (opt->type) {
    case OPT_FLAG:
        *(bool *)opt->target = true;
        return 0;
    case OPT_STRING:
        *(const char **)opt->target = value;
        return 0;
    case OPT_INT:
        return unit_parse_int(value, bounded(opt) ? whole_bound(opt->min) : INT64_MIN,
                              bounded(opt) ? whole_bound(opt->max) : INT64_MAX, opt->target, err);
    case OPT_DOUBLE:
        return unit_parse_double(value, bounded(opt) ? opt->min : -DBL_MAX, bounded(opt) ? opt->max : DBL_MAX,
                                 opt->target, err);
    case OPT_CHOICE:
        return parse_choice(opt, value, err);
    case OPT_LIST:
        return add_value(opt->target, value, err);
    }
    return -1;
}

/* argv[*index] is an option; moves *index on when the next word is its value. */
static int parse_option(const struct opt *table, int argc, char **argv, int *index, struct err *err)
{
    const char *name = argv[*index] + 2;
    const char *equals = strchr(name, '=');
    size_t length = equals != NULL ? (size_t)(equals - name) : strlen(name);
    const struct opt *opt = find_option(table, name, length);
    if (opt == NULL)
        return unknown_option(table, name, length, err);
    if (opt->type == OPT_FLAG && equals != NULL)
        return err_add(err, "option '--%s' takes no value", opt->name);
    const char *value = equals != NULL ? equals + 1 : NULL;
    if (opt->type != OPT_FLAG && value == NULL) {
        if (*index + 1 >= argc || strncmp(argv[*index + 1], "--", 2) == 0)
            return err_add(err, "option '--%s' needs a value (%s)", opt->name,
                           opt->metavar != NULL ? opt->metavar : "VALUE");
        value = argv[++*index];
    }
    int from = err != NULL ? err->count : 0;
    if (parse_value(opt, value, err) != 0)
        return err_prefix(err, from, "option '--%s': ", opt->name);
    return 0;
}

int opt_parse(const struct opt *table, int argc, char **argv, const char **ret_positional, int max_positional,
              int *ret_n_positional, bool *ret_help, struct err *err)
{
    bool options_end = false, failed = false;
    *ret_n_positional = 0;
    *ret_help = false;
    for (int i = 0; i < argc; i++) {
        const char *word = argv[i];
        if (options_end || word[0] != '-' || word[1] == '\0') {
            if (*ret_n_positional < max_positional) {
                ret_positional[(*ret_n_positional)++] = word;
            } else if (!failed) { /* after an unknown option it may be that one's value */
                err_add(err, "unexpected argument '%s'", word);
                failed = true;
            }
        } else if (strcmp(word, "--") == 0) {
            options_end = true;
        } else if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
            *ret_help = true;
        } else if (word[1] != '-') {
            err_add(err, "unknown option '%s'; options begin with '--'", word);
            failed = true;
        } else if (parse_option(table, argc, argv, &i, err) != 0) {
            failed = true;
        }
    }
    return failed ? -1 : 0;
}

static const char *option_label(const struct opt *opt, char *buffer, size_t size)
{
    snprintf(buffer, size, "--%s%s%s", opt->name, opt->metavar != NULL ? " " : "",
             opt->metavar != NULL ? opt->metavar : "");
    return buffer;
}

void opt_print_help(FILE *out, const char *usage, const char *about, const struct opt *table, const char *example)
{
    char label[128], list[512];
    int width = (int)strlen("--help");
    for (const struct opt *opt = table; opt->name != NULL; opt++) {
        int length = (int)strlen(option_label(opt, label, sizeof(label)));
        width = length > width && length <= 28 ? length : width;
    }
    fprintf(out, "usage: %s\n\n%s\n\noptions:\n", usage, about);
    for (const struct opt *opt = table; opt->name != NULL; opt++) {
        fprintf(out, "  %-*s  %s", width, option_label(opt, label, sizeof(label)), opt->help);
        if (opt->type == OPT_CHOICE)
            fprintf(out, " [%s]", names_join(opt->choices, list, sizeof(list)));
        fputc('\n', out);
    }
    fprintf(out, "  %-*s  this text\n", width, "--help");
    if (example != NULL)
        fprintf(out, "\nexample:\n  %s\n", example);
}
