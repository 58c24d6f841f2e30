/* plansim model: parameters and FLOPs of a config.json. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "cost/base/err.h"
#include "cost/base/json.h"
#include "cost/base/opt.h"
#include "cost/base/unit.h"
#include "cost/model.h"
#include "sim/commands.h"
#include "sim/inputs.h"
#include "sim/writers/table.h"

enum { TEXT_MAX = 64, SEQ_DEFAULT = 4096 };

struct arguments {
    const char *path;
    int64_t seq_len; /* 0 = not given */
    int format;
};

static const char *const formats[] = {"table", "json", NULL};
enum { FORMAT_TABLE, FORMAT_JSON };

/* Everything that is printed. */
struct answer {
    const struct model *model;
    struct model_parameters parameters;
    struct model_flops flops;
    int64_t seq_len, dense_layers, moe_layers;
};

static int parse(struct arguments *a, int argc, char **argv, bool *ret_help, struct err *err)
{
    const struct opt table[] = {
        {"model", OPT_STRING, &a->path, 0, 0, NULL, "FILE", "the config.json, as an option; - is standard input"},
        {"seq", OPT_INT, &a->seq_len, 1, 1e9, NULL, "N",
         "sequence length for the FLOPs (default: the model's, 4096 at most)"},
        {"format", OPT_CHOICE, &a->format, 0, 0, formats, "F", "table (default) or json"},
        {NULL, OPT_FLAG, NULL, 0, 0, NULL, NULL, NULL},
    };
    const char *path = NULL;
    int n = 0;
    int result = opt_parse(table, argc, argv, &path, 1, &n, ret_help, err);
    if (*ret_help) {
        opt_print_help(stdout, "plansim model config.json [OPTION]...",
                       "Prints the parameters and the FLOPs per token of a Hugging Face config.json.\n\n"
                       "active: parameters that one token passes, both embeddings included. FLOPs count a\n"
                       "multiply-add as 2, the head always, table lookups never, attention causal-halved with\n"
                       "windows respected, no recompute; training is 3 x forward. Multi-token-prediction (MTP)\n"
                       "modules are counted apart.",
                       table, "plansim model config.json --seq 8192 --format json");
        return result;
    }
    if (n == 1 && a->path != NULL)
        return err_add(err, "two models given, '%s' and '%s'", path, a->path);
    a->path = n == 1 ? path : a->path;
    if (result == 0 && a->path == NULL)
        return err_add(err, "no model given; write for example: plansim model config.json");
    return result;
}

static struct answer count(const struct model *model, int64_t seq_len)
{
    struct answer a = {.model = model, .seq_len = seq_len};
    if (seq_len == 0)
        a.seq_len = model->max_positions > 0 && model->max_positions < SEQ_DEFAULT ? model->max_positions : SEQ_DEFAULT;
    model_count_parameters(model, &a.parameters);
    model_count_flops(model, a.seq_len, &a.flops);
    for (int i = 0; i < model->n_kinds; i++) {
        a.moe_layers += model->kinds[i].moe ? model->kinds[i].layers : 0;
        a.dense_layers += model->kinds[i].moe ? 0 : model->kinds[i].layers;
    }
    return a;
}

/* ---- JSON ---- */

static void put_parameters(struct json *root, const struct model_parameters *p)
{
    struct json *object = json_put_object(root, "parameters");
    json_put_int(object, "total", p->total);
    json_put_int(object, "active", p->active);
    json_put_int(object, "embedding", p->embedding);
    json_put_int(object, "head", p->head);
    json_put_int(object, "attention", p->attention);
    json_put_int(object, "mlp", p->mlp);
    json_put_int(object, "experts", p->experts);
    json_put_int(object, "router", p->router);
    json_put_int(object, "norm", p->norm);
    json_put_int(object, "mtp", p->mtp);
}

static void put_flops(struct json *root, const struct answer *a)
{
    struct json *object = json_put_object(root, "flops_per_token");
    json_put_int(object, "seq_len", a->seq_len);
    json_put_number(object, "forward", a->flops.forward);
    json_put_number(object, "training", a->flops.training);
    json_put_number(object, "head_forward", a->flops.head);
    json_put_number(object, "attention_scores_forward", a->flops.attention_scores);
    json_put_number(object, "mtp_forward", a->flops.mtp);
}

static void put_architecture(struct json *root, const struct answer *a)
{
    const struct model *m = a->model;
    struct json *object = json_put_object(root, "architecture");
    json_put_int(object, "hidden", m->hidden);
    json_put_int(object, "layers", m->layers);
    json_put_int(object, "dense_layers", a->dense_layers);
    json_put_int(object, "moe_layers", a->moe_layers);
    json_put_int(object, "heads", m->heads);
    json_put_int(object, "kv_heads", m->kv_heads);
    json_put_int(object, "head_dim", m->head_dim);
    json_put_int(object, "v_head_dim", m->v_head_dim);
    json_put_int(object, "vocab", m->vocab);
    json_put_int(object, "max_positions", m->max_positions);
    json_put_int(object, "experts", m->experts);
    json_put_int(object, "experts_per_token", m->experts_per_token);
    json_put_int(object, "mtp_modules", m->mtp_modules);
    json_put_bool(object, "tied", m->tied);
}

/* One string per sentence. */
static void put_sentences(struct json *root, const char *key, const struct err *messages)
{
    struct json *list = json_put_array(root, key);
    const char *text = messages->text;
    while (messages->count > 0 && *text != '\0') {
        char sentence[2048];
        int length = 0;
        while (text[length] != '\0' && text[length] != '\n')
            length++;
        snprintf(sentence, sizeof(sentence), "%.*s", length, text);
        json_push_string(list, sentence);
        text += length + (text[length] == '\n');
    }
}

static void print_json(const struct answer *a, const struct err *warn)
{
    struct json *root = json_new_object();
    json_put_string(root, "name", a->model->name);
    json_put_string(root, "family", a->model->family);
    put_parameters(root, &a->parameters);
    put_flops(root, a);
    put_architecture(root, a);
    put_sentences(root, "warnings", warn);
    char *text = json_print(root);
    fputs(text, stdout);
    free(text);
    json_free(root);
}

/* ---- table ---- */

static void print_attention(const struct model *m)
{
    if (m->mla)
        printf("attention   latent (MLA): %" PRId64 " heads, q rank %" PRId64 ", kv rank %" PRId64 ", qk %" PRId64
               "+%" PRId64 ", v %" PRId64 "\n",
               m->heads, m->q_lora, m->kv_lora, m->qk_nope, m->qk_rope, m->v_head_dim);
    else
        printf("attention   %" PRId64 " heads, %" PRId64 " key/value heads, head_dim %" PRId64 "\n", m->heads,
               m->kv_heads, m->head_dim);
    if (m->ssm_heads > 0)
        printf("state space %" PRId64 " heads of %" PRId64 ", state %" PRId64 ", %" PRId64 " groups\n", m->ssm_heads, m->ssm_head_dim,
               m->ssm_state, m->ssm_groups);
    if (m->moe_latent > 0)
        printf("experts     in a latent space of %" PRId64 "\n", m->moe_latent);
    if (m->index_heads > 0)
        printf("indexer     %" PRId64 " heads of %" PRId64 ", top %" PRId64 " tokens\n", m->index_heads,
               m->index_head_dim, m->index_topk);
}

/* One line per kind of layer: how many, which MLP, how far attention looks. */
static void print_kinds(const struct model *m)
{
    for (int i = 0; i < m->n_kinds; i++) {
        const struct layer_kind *k = &m->kinds[i];
        printf("%-12s", i == 0 ? "layers" : "");
        if (k->moe)
            printf("%" PRId64 " MoE: %" PRId64 " of %" PRId64 " experts, width %" PRId64, k->layers,
                   m->experts_per_token, m->experts, k->ffn);
        else if (k->mixer_only)
            printf("%" PRId64 " %s alone", k->layers, layer_mixer_names[k->mixer]);
        else
            printf("%" PRId64 " dense: %s MLP, width %" PRId64, k->layers, m->gated ? "gated" : "plain", k->ffn);
        if (k->mixer != MIXER_ATTENTION && !k->mixer_only)
            printf(", %s", layer_mixer_names[k->mixer]);
        if (k->shared_ffn > 0)
            printf(", shared %" PRId64, k->shared_ffn);
        if (k->window > 0)
            printf(", %s of %" PRId64 " tokens", k->chunked ? "chunks" : "window", k->window);
        putchar('\n');
    }
    if (m->mtp_modules > 0)
        printf("            + %" PRId64 " MTP module%s\n", m->mtp_modules, m->mtp_modules > 1 ? "s" : "");
}

static void parameter_row(struct table *table, const char *name, int64_t parameters, int64_t total)
{
    char count_text[TEXT_MAX];
    if (parameters == 0)
        return;
    table_cell(table, "%s", name);
    table_cell(table, "%s", unit_format_count(parameters, count_text, sizeof(count_text)));
    table_cell(table, "%.2f %%", 100.0 * (double)parameters / (double)total);
}

static void print_parameters(const struct model_parameters *p)
{
    struct table *table = table_new("  ");
    table_column(table, "parameters", TABLE_LEFT);
    table_column(table, "count", TABLE_RIGHT);
    table_column(table, "of total", TABLE_RIGHT);
    parameter_row(table, "embedding", p->embedding, p->total);
    parameter_row(table, "attention", p->attention, p->total);
    parameter_row(table, "mlp", p->mlp, p->total);
    parameter_row(table, "experts", p->experts, p->total);
    parameter_row(table, "router", p->router, p->total);
    parameter_row(table, "norm", p->norm, p->total);
    parameter_row(table, "head", p->head, p->total);
    table_rule(table);
    parameter_row(table, "total", p->total, p->total);
    parameter_row(table, "active per token", p->active, p->total);
    parameter_row(table, "MTP (apart)", p->mtp, p->total);
    table_print(table, stdout);
    table_free(table);
}

static void flops_row(struct table *table, const char *name, double flops)
{
    if (flops <= 0)
        return;
    table_cell(table, "%s", name);
    table_cell(table, "%.4g GFLOP", flops / 1e9);
}

static void print_flops(const struct answer *a)
{
    char title[TEXT_MAX];
    struct table *table = table_new("  ");
    snprintf(title, sizeof(title), "per token at %" PRId64 " tokens", a->seq_len);
    table_column(table, title, TABLE_LEFT);
    table_column(table, "FLOPs", TABLE_RIGHT);
    flops_row(table, "forward", a->flops.forward);
    flops_row(table, "  of it attention scores", a->flops.attention_scores);
    flops_row(table, "  of it head", a->flops.head);
    flops_row(table, "training (3 x forward)", a->flops.training);
    flops_row(table, "MTP forward (apart)", a->flops.mtp);
    table_print(table, stdout);
    table_free(table);
}

static void print_table(const struct answer *a)
{
    const struct model *m = a->model;
    char vocab[TEXT_MAX], positions[TEXT_MAX];
    printf("model       %s (%s)\n", m->name, m->family);
    printf("shape       hidden %" PRId64 ", %" PRId64 " layers (%" PRId64 " dense, %" PRId64 " MoE), vocabulary %s%s",
           m->hidden, m->layers, a->dense_layers, a->moe_layers, unit_format_count(m->vocab, vocab, sizeof(vocab)),
           m->tied ? ", tied head" : "");
    if (m->max_positions > 0)
        printf(", up to %s tokens", unit_format_count(m->max_positions, positions, sizeof(positions)));
    putchar('\n');
    print_attention(m);
    print_kinds(m);
    putchar('\n');
    print_parameters(&a->parameters);
    putchar('\n');
    print_flops(a);
}

int cmd_model(int argc, char **argv)
{
    struct arguments arguments = {NULL, 0, FORMAT_TABLE};
    struct err err = {0}, warn = {0};
    struct model model;
    bool help = false;
    int parsed = parse(&arguments, argc, argv, &help, &err);
    if (help)
        return EXIT_ANSWERED;
    if (parsed != 0) {
        inputs_print("model", "", &err);
        return EXIT_USAGE;
    }
    int loaded = model_load(arguments.path, &model, &warn, &err);
    inputs_print("model", "warning: ", &warn);
    if (loaded != 0) {
        inputs_print("model", "", &err);
        return EXIT_INPUT;
    }
    struct answer answer = count(&model, arguments.seq_len);
    if (arguments.format == FORMAT_JSON)
        print_json(&answer, &warn);
    else
        print_table(&answer);
    return EXIT_ANSWERED;
}
