/* plansim validate: predictions against a table of measured runs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cost/base/arena.h"
#include "cost/base/err.h"
#include "cost/base/json.h"
#include "cost/base/opt.h"
#include "cost/profile.h"
#include "sim/commands.h"
#include "sim/inputs.h"
#include "sim/validate.h"
#include "sim/validate_stats.h"
#include "sim/writers/chart.h"
#include "sim/writers/validate_out.h"

struct arguments {
    const char *runs, *models, *profile, *chart, *trust;
    int format, by;
    int64_t threads;
};
enum { FORMAT_TABLE, FORMAT_JSON, FORMAT_CSV };
static const char *const formats[] = {"table", "json", "csv", NULL};

static int parse(struct arguments *a, int argc, char **argv, bool *ret_help, struct err *err)
{
    const struct opt table[] = {
        {"models", OPT_STRING, &a->models, 0, 0, NULL, "FILE", "config.json objects by the table's model column"},
        {"profile", OPT_STRING, &a->profile, 0, 0, NULL, "FILE", "your own profile, layered over the shipped one"},
        {"format", OPT_CHOICE, &a->format, 0, 0, formats, "F", "table (default), json or csv: one line per run"},
        {"group-by", OPT_CHOICE, &a->by, 0, 0, validate_by_names, "WHAT", "group (default), accelerator, model or stack"},
        {"trust", OPT_STRING, &a->trust, 0, 0, NULL, "A", "count only the runs whose trust column says so (default: all)"},
        {"threads", OPT_INT, &a->threads, 1, 256, NULL, "N", "threads; the answer is the same for any number (default: one for each core)"},
        {"chart", OPT_STRING, &a->chart, 0, 0, NULL, "FILE", "predicted against measured as PNG, SVG or PDF"},
        {NULL, 0, NULL, 0, 0, NULL, NULL, NULL}};
    const char *positional[1];
    int n = 0, result = opt_parse(table, argc, argv, positional, 1, &n, ret_help, err);
    a->runs = n > 0 ? positional[0] : NULL;
    if (*ret_help)
        opt_print_help(stdout, "plansim validate runs.csv --models models.json [OPTION]...",
                       "Predicts every run of a table and compares with what was measured.\n\n"
                       "Columns (any order, others are ignored): id, accelerator, gpus, model, tp, pp, gbs, seq_len must be there;\n"
                       "group stack date hardware vp cp ep etp dp zero sequence_parallel mbs precision recompute schedule overlap\n"
                       "kernels moe_routing offload pp_layout cuda_graph container result step_time_s tokens_per_s_per_gpu mem_gib\n"
                       "mem_kind trust may be. An empty cell means not stated: the default of the stack is taken and named. stack: a word of\n"
                       "the published table (megatron, by its date) or a name of the profile. A run fits into all of the\n"
                       "accelerator's memory, of which predict keeps 6 % back.",
                       table, "plansim validate runs.csv --models models.json --group-by accelerator --chart scatter.png");
    return result;
}

static int check(const struct arguments *a, struct err *err)
{
    int result = 0;
    if (!a->runs)
        result = err_add(err, "a table of runs is needed: plansim validate runs.csv --models models.json");
    if (!a->models)
        result = err_add(err, "--models FILE is needed (config.json objects by name)");
    if (a->chart && chart_check_path(a->chart, err) < 0)
        result = -1;
    return result;
}

static void answer(const struct arguments *a, const struct validation *v)
{
    struct arena arena = {0};
    struct validate_stats *stats = arena_alloc(&arena, sizeof *stats);
    enum validate_by by = (enum validate_by)a->by;
    validate_stats(v, by, a->trust ? a->trust : "", &arena, stats);
    if (a->format == FORMAT_JSON) {
        struct json *root = validate_to_json(v, stats, by);
        char *text = json_print(root);
        fputs(text, stdout);
        free(text);
        json_free(root);
    } else if (a->format == FORMAT_CSV) {
        validate_print_csv(stdout, v);
    } else {
        validate_print(stdout, v, stats, by);
    }
    arena_release(&arena);
}

static bool has_trust(const struct validation *v, const char *trust)
{
    for (int i = 0; i < v->table.n; i++)
        if (strcmp(v->table.run[i].trust, trust) == 0)
            return true;
    return false;
}

static int run(const struct arguments *a, struct err *err)
{
    struct profile *profile = NULL;
    struct validation validation = {0};
    struct err warning = {0};
    int code = EXIT_INPUT;
    if (profile_open(NULL, &profile, err) < 0 || (a->profile && profile_layer(profile, a->profile, err) < 0) ||
        validation_load(&validation, a->runs, a->models, profile, &warning, err) < 0)
        goto end;
    if (a->trust && !has_trust(&validation, a->trust)) {
        err_add(err, "table '%s': no run has trust '%s'", a->runs, a->trust);
        goto end;
    }
    validation.threads = (int)a->threads;
    validation_price_all(&validation);
    answer(a, &validation);
    if (a->chart)
        validate_chart(a->chart, &validation, a->trust ? a->trust : "", &warning);
    code = EXIT_ANSWERED;
end:
    inputs_print("validate", "warning: ", &warning);
    validation_release(&validation);
    profile_close(profile);
    return code;
}

int cmd_validate(int argc, char **argv)
{
    struct arguments a = {0};
    struct err err = {0};
    bool help = false;
    int code = EXIT_USAGE;
    if (parse(&a, argc, argv, &help, &err) == 0 && !help && check(&a, &err) == 0)
        code = run(&a, &err);
    else if (help)
        code = EXIT_ANSWERED;
    inputs_print("validate", "", &err);
    return code;
}
