#include "sim/inputs.h"

#include <stdio.h>
#include <string.h>

#include "cost/base/json.h"
#include "cost/base/unit.h"
#include "cost/profile.h"

/* A share ("0.9") or a size with a unit ("72GiB"). */
static int memory_limit(const struct cluster *cluster, const char *text, double *ret_bytes, struct err *err)
{
    double memory = cluster->accelerator.memory_bytes, value;
    if (!text) {
        *ret_bytes = memory * cluster->usable_memory;
        return 0;
    }
    struct err ignored = {0};
    if (unit_parse_double(text, 1e-3, 1, &value, &ignored) == 0) {
        *ret_bytes = memory * value;
        return 0;
    }
    err_clear(&ignored);
    if (unit_parse_bytes(text, ret_bytes, &ignored) < 0)
        return err_add(err, "--max-memory '%s' is neither a share of the accelerator's memory in 0.001..1 nor a size such as 72GiB", text);
    if (*ret_bytes > memory) {
        char limit[32];
        return err_add(err, "--max-memory '%s' is more than the %s of '%s'", text, unit_format_bytes(memory, limit, sizeof limit),
                       cluster->accelerator.name);
    }
    return 0;
}

int inputs_check_stdin(const struct input_options *options, const char *plan, const char *other, struct err *err)
{
    const char *const paths[] = {options->model, options->cluster, plan, other};
    int n = 0;
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        n += paths[i] && strcmp(paths[i], "-") == 0;
    if (n > 1)
        return err_add(err, "only one file can be '-': standard input holds one");
    if (options->profile && strcmp(options->profile, "-") == 0)
        return err_add(err, "--profile cannot be '-': a database is not read from standard input");
    return 0;
}

int inputs_load_model(const char *path, struct model *ret_model, struct model_words *ret_words, struct err *warn, struct err *err)
{
    struct json *root;
    if (json_load_python(path, &root, err) < 0)
        return -1;
    int result = model_parse(root, strcmp(path, "-") == 0 ? "standard input" : path, ret_model, warn, err);
    if (result == 0)
        model_words_read(root, ret_words);
    json_free(root);
    return result;
}

int inputs_load(struct inputs *ret, const struct input_options *options, int *ret_code, struct err *err)
{
    memset(ret, 0, sizeof *ret);
    *ret_code = EXIT_USAGE;
    if (!options->model)
        err_add(err, "--model FILE is needed (a Hugging Face config.json)");
    if (!options->cluster)
        err_add(err, "--cluster FILE is needed (hw.json)");
    if (!options->model || !options->cluster || inputs_check_stdin(options, NULL, NULL, err) < 0)
        return -1;
    *ret_code = EXIT_INPUT;
    if (profile_open(NULL, &ret->profile, err) < 0)
        return -1;
    if (options->profile && profile_layer(ret->profile, options->profile, err) < 0)
        return -1;
    int model = inputs_load_model(options->model, &ret->model, &ret->words, &ret->warnings, err);
    int cluster = cluster_load(options->cluster, ret->profile, &ret->cluster, &ret->warnings, err);
    if (model < 0 || cluster < 0)
        return -1;
    double limit;
    *ret_code = EXIT_USAGE;
    if (memory_limit(&ret->cluster, options->max_memory, &limit, err) < 0)
        return -1;
    *ret_code = EXIT_INPUT;
    ret->question = (struct question){.model = &ret->model, .cluster = &ret->cluster, .profile = ret->profile, .stacks = ret->stacks,
                                      .memory_limit_bytes = limit};
    return 0;
}

int inputs_add_stack(struct inputs *inputs, const char *name, struct err *err)
{
    struct question *q = &inputs->question;
    for (int i = 0; i < q->n_stacks; i++)
        if (strcmp(inputs->stacks[i].name, name) == 0)
            return 0;
    if (q->n_stacks == INPUT_STACKS_MAX)
        return err_add(err, "more than %d stacks in one question", INPUT_STACKS_MAX);
    if (profile_stack(inputs->profile, name, &inputs->stacks[q->n_stacks], err) < 0)
        return -1;
    q->n_stacks++;
    return 0;
}

void inputs_release(struct inputs *inputs)
{
    profile_close(inputs->profile);
    inputs->profile = NULL;
}

void inputs_print(const char *command, const char *kind, const struct err *messages)
{
    const char *text = messages->text;
    while (*text) {
        size_t length = strcspn(text, "\n");
        fprintf(stderr, "plansim %s: %s%.*s\n", command, kind, (int)length, text);
        text += length + (text[length] == '\n');
    }
}
