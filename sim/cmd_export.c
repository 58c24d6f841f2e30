/* plansim export: a plan as the launch of a training framework. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cost/base/file.h"
#include "cost/base/opt.h"
#include "sim/commands.h"
#include "sim/inputs.h"
#include "sim/writers/export.h"

enum { FORMAT_OWN = -1, FORMAT_TEXT, FORMAT_JSON };

struct arguments {
    struct input_options in;
    const char *plan, *out;
    int target, format;
};
static const char *const formats[] = {"text", "json", NULL};

struct files {
    struct plan plan;
    struct model model;
    struct model_words words;
    struct cluster cluster;
    struct profile *profile;
};

static int parse(struct arguments *a, int argc, char **argv, bool *ret_help, struct err *err)
{
    const struct opt table[] = {
        {"plan", OPT_STRING, &a->plan, 0, 0, NULL, "FILE", "plan.json"},
        {"to", OPT_CHOICE, &a->target, 0, 0, export_target_names, "NAME", "what to write"},
        {"model", OPT_STRING, &a->in.model, 0, 0, NULL, "FILE", "Hugging Face config.json: adds the architecture, and checks the plan against it"},
        {"cluster", OPT_STRING, &a->in.cluster, 0, 0, NULL, "FILE", "hw.json: adds launcher and environment, and checks the plan against it"},
        {"profile", OPT_STRING, &a->in.profile, 0, 0, NULL, "FILE", "your own profile, for names in hw.json"},
        {"format", OPT_CHOICE, &a->format, 0, 0, formats, "F", "of --to megatron; the others have one of their own (default text)"},
        {"out", OPT_STRING, &a->out, 0, 0, NULL, "FILE", "write there instead of standard output"},
        {NULL, 0, NULL, 0, 0, NULL, NULL, NULL}};
    const char *positional[1];
    int n = 0;
    int result = opt_parse(table, argc, argv, positional, 0, &n, ret_help, err);
    if (*ret_help)
        opt_print_help(stdout, "plansim export --plan plan.json --to NAME [OPTION]...",
                       "Writes a plan as the launch of a training framework:\n\n"
                       "  megatron    flags of Megatron-LM's pretrain_gpt.py, one per line; with --cluster the whole\n"
                       "              command, to which data and learning rates come as \"$@\"\n"
                       "  deepspeed   ds_config.json\n"
                       "  torchtitan  a job configuration in TOML\n\n"
                       "What the framework cannot run is refused, all of it at once (exit 1); what it does otherwise,\n"
                       "or leaves to your code, is a warning. Without --cluster, flags for a shell are:\n"
                       "  eval \"flags=($(plansim export --plan plan.json --to megatron))\"",
                       table, "plansim export --plan plan.json --model config.json --to megatron");
    return result;
}

static int check(const struct arguments *a, struct err *err)
{
    int result = inputs_check_stdin(&a->in, a->plan, NULL, err);
    if (!a->plan)
        result = err_add(err, "--plan FILE is needed");
    if (a->target < 0)
        result = err_add(err, "--to NAME is needed: megatron, deepspeed or torchtitan");
    if ((a->target == EXPORT_DEEPSPEED && a->format == FORMAT_TEXT) || (a->target == EXPORT_TORCHTITAN && a->format == FORMAT_JSON))
        result = err_add(err, "--format %s is not one of --to %s, which writes %s", formats[a->format], export_target_names[a->target],
                         a->target == EXPORT_DEEPSPEED ? "JSON" : "TOML");
    if (a->out && strcmp(a->out, "-") != 0 && file_check_folder(a->out, err) < 0)
        result = -1;
    return result;
}

static int load_cluster(const struct arguments *a, struct files *f, struct err *warn, struct err *err)
{
    if (profile_open(NULL, &f->profile, err) < 0 || (a->in.profile && profile_layer(f->profile, a->in.profile, err) < 0))
        return -1;
    return cluster_load(a->in.cluster, f->profile, &f->cluster, warn, err);
}

/* All problems of all files at once. */
static int load(const struct arguments *a, struct files *f, struct err *warn, struct err *err)
{
    int result = plan_load(a->plan, &f->plan, warn, err);
    if (a->in.model && inputs_load_model(a->in.model, &f->model, &f->words, warn, err) < 0)
        result = -1;
    if (a->in.cluster && load_cluster(a, f, warn, err) < 0)
        result = -1;
    if (result == 0)
        result = plan_check(&f->plan, a->in.model ? &f->model : NULL, a->in.cluster ? &f->cluster : NULL, warn, err);
    return result;
}

static int run(const struct arguments *a, struct files *f, struct err *err)
{
    struct err warnings = {0};
    char *text = NULL;
    if (load(a, f, &warnings, err) < 0)
        return EXIT_INPUT;
    const struct export_request request = {.plan = &f->plan, .model = a->in.model ? &f->model : NULL, .words = &f->words,
                                           .cluster = a->in.cluster ? &f->cluster : NULL, .json = a->format == FORMAT_JSON};
    if (export_plan((enum export_target)a->target, &request, &text, &warnings, err) < 0)
        return EXIT_NO;
    inputs_print("export", "warning: ", &warnings);
    int code = file_write_atomic(a->out ? a->out : "-", text, strlen(text), err) < 0 ? EXIT_MACHINE : EXIT_ANSWERED;
    free(text);
    return code;
}

int cmd_export(int argc, char **argv)
{
    struct arguments a = {.target = -1, .format = FORMAT_OWN};
    static struct files files;
    struct err err = {0};
    bool help = false;
    int code = EXIT_USAGE;
    if (parse(&a, argc, argv, &help, &err) == 0 && help)
        return EXIT_ANSWERED;
    if (err.count == 0 && check(&a, &err) == 0)
        code = run(&a, &files, &err);
    profile_close(files.profile);
    inputs_print("export", "", &err);
    return code;
}
