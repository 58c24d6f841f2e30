#include "sim/writers/export.h"

#include <stdlib.h>
#include <string.h>

#include "cost/base/err.h"
#include "cost/base/json.h"
#include "cost/cluster.h"
#include "cost/model.h"
#include "sim/writers/export_internal.h"

const char *const export_target_names[] = {"megatron", "deepspeed", "torchtitan", NULL};

static const struct {
    const char *framework;
    void (*write)(const struct exporter *e, FILE *out);
} targets[EXPORT_TARGETS] = {
    [EXPORT_MEGATRON] = {"Megatron-LM", export_megatron},
    [EXPORT_DEEPSPEED] = {"DeepSpeed", export_deepspeed},
    [EXPORT_TORCHTITAN] = {"torchtitan", export_torchtitan},
};

/* --- what config.json says beside shapes ------------------------------------- */

static void copy_text(const struct json *object, const char *key, char *target, size_t size)
{
    const struct json *node = json_get(object, key);
    if (node && json_type(node) == JSON_STRING)
        snprintf(target, size, "%s", json_text(node));
}

static void copy_number(const struct json *object, const char *key, double *target)
{
    const struct json *node = json_get(object, key);
    if (node && json_type(node) == JSON_NUMBER && json_double(node) > 0 && json_double(node) < 1e300)
        *target = json_double(node);
}

static void read_rope(const struct json *object, struct model_words *ret)
{
    if (!object || json_type(object) != JSON_OBJECT)
        return;
    copy_text(object, "type", ret->rope_type, sizeof ret->rope_type);
    copy_text(object, "rope_type", ret->rope_type, sizeof ret->rope_type);
    copy_number(object, "rope_theta", &ret->rope_base);
    copy_number(object, "factor", &ret->rope_factor);
    copy_number(object, "mscale", &ret->rope_mscale);
    copy_number(object, "mscale_all_dim", &ret->rope_mscale_all_dim);
    if (strcmp(ret->rope_type, "default") == 0)
        ret->rope_type[0] = '\0';
}

void model_words_read(const struct json *root, struct model_words *ret)
{
    static const char *const epsilons[] = {"layer_norm_epsilon", "layer_norm_eps", "norm_epsilon", "norm_eps", "rms_norm_eps"};
    memset(ret, 0, sizeof *ret);
    const struct json *inner = json_get(root, "text_config");
    const struct json *places[] = {root, inner && json_type(inner) == JSON_OBJECT ? inner : root}; /* the inner object has the last word */
    for (int i = 0; i < 2; i++) {
        copy_text(places[i], "activation_function", ret->activation, sizeof ret->activation);
        copy_text(places[i], "hidden_activation", ret->activation, sizeof ret->activation);
        copy_text(places[i], "hidden_act", ret->activation, sizeof ret->activation);
        for (size_t k = 0; k < sizeof epsilons / sizeof *epsilons; k++)
            copy_number(places[i], epsilons[k], &ret->norm_epsilon);
        copy_number(places[i], "rope_theta", &ret->rope_base);
        copy_number(places[i], "rotary_pct", &ret->rope_share);
        copy_number(places[i], "partial_rotary_factor", &ret->rope_share);
        copy_number(places[i], "routed_scaling_factor", &ret->routed_scale);
        const struct json *norm = json_get(places[i], "norm_topk_prob");
        if (norm && json_type(norm) == JSON_BOOL)
            ret->raw_topk = !json_true(norm);
        read_rope(json_get(places[i], "rope_scaling"), ret);
        read_rope(json_get(places[i], "rope_parameters"), ret);
    }
}

/* --- sentences ------------------------------------------------------------- */

void export_refuse(const struct exporter *e, const char *field, const char *value, const char *takes, const char *nearest)
{
    err_add(e->err, "field '%s' is %s, but %s takes %s; nearest valid: %s", field, value, e->framework, takes, nearest);
}

struct export_value export_number(int64_t number)
{
    struct export_value value;
    snprintf(value.text, sizeof value.text, "%lld", (long long)number);
    return value;
}

struct export_value export_fraction(double number)
{
    struct export_value value;
    snprintf(value.text, sizeof value.text, "%g", number);
    return value;
}

struct export_value export_list(const char *const *names, uint32_t bits, const char *between)
{
    struct export_value value = {""};
    size_t used = 0;
    for (int i = 0; names[i] && used < sizeof value.text; i++)
        if (bits >> i & 1)
            used += (size_t)snprintf(value.text + used, sizeof value.text - used, "%s%s", used > 0 ? between : "", names[i]);
    return value;
}

/* --- what frameworks ask of a plan ----------------------------------------- */

bool export_has_experts(const struct exporter *e)
{
    return e->request->model ? e->request->model->experts > 0 : e->plan->ep * e->plan->etp > 1;
}

int64_t export_data_ranks(const struct plan *plan)
{
    return (int64_t)plan->dp * plan->cp;
}

int64_t export_shard_ranks(const struct plan *plan)
{
    return plan->dp_shard > 0 ? plan->dp_shard : export_data_ranks(plan);
}

bool export_order_is(const struct exporter *e, const enum axis order[AXES])
{
    const struct plan *plan = e->plan;
    const int size[AXES] = {[AXIS_TP] = plan->tp, [AXIS_CP] = plan->cp, [AXIS_EP] = plan->ep, [AXIS_DP] = plan->dp, [AXIS_PP] = plan->pp};
    bool experts = export_has_experts(e); /* their data parallelism stands where dp does, whatever dp is */
    int i = 0, j = 0;
    for (;;) {
        while (i < AXES && size[plan->rank_order[i]] == 1 && !(experts && plan->rank_order[i] == AXIS_DP))
            i++;
        while (j < AXES && size[order[j]] == 1 && !(experts && order[j] == AXIS_DP))
            j++;
        if (i == AXES || j == AXES)
            return i == AXES && j == AXES;
        if (plan->rank_order[i++] != order[j++])
            return false;
    }
}

bool export_nodes(const struct cluster *cluster, int64_t *ret_nodes, int *ret_per_node)
{
    *ret_nodes = 0;
    *ret_per_node = cluster->group[0].accelerators_per_node;
    for (int i = 0; i < cluster->n_groups; i++) {
        *ret_nodes += cluster->group[i].nodes;
        if (cluster->group[i].accelerators_per_node != *ret_per_node)
            return false;
    }
    return true;
}

static void check_nodes(const struct exporter *e)
{
    int64_t nodes;
    int per_node;
    if (e->request->cluster && !export_nodes(e->request->cluster, &nodes, &per_node))
        err_add(e->err, "cluster '%s' has groups with different accelerators_per_node, but torchrun starts as many ranks on every node: start these by another launcher, without --cluster here",
                e->request->cluster->name);
}

/* --- flags ----------------------------------------------------------------- */

void flag_add(struct flag_list *list, const char *flag)
{
    if (list->n < FLAG_WORDS_MAX)
        list->word[list->n++] = arena_strdup(&list->arena, flag);
}

void flag_add_text(struct flag_list *list, const char *flag, const char *value)
{
    flag_add(list, flag);
    flag_add(list, value);
}

void flag_add_words(struct flag_list *list, const char *flag, const char *const *names, uint32_t bits)
{
    flag_add(list, flag);
    for (int i = 0; names[i]; i++)
        if (bits >> i & 1)
            flag_add(list, names[i]);
}

void flag_add_int(struct flag_list *list, const char *flag, int64_t value)
{
    flag_add_text(list, flag, export_number(value).text);
}

void flag_add_double(struct flag_list *list, const char *flag, double value)
{
    flag_add_text(list, flag, export_fraction(value).text);
}

/* --- one target ------------------------------------------------------------ */

/* Who does not give a cluster is told how many ranks the plan is made for. */
static void warn_ranks(const struct exporter *e)
{
    const struct plan *p = e->plan;
    if (!e->request->cluster && plan_world(p) > 1)
        err_add(e->warn, "start %lld ranks: tp %d x cp %d x pp %d x dp %d", (long long)plan_world(p), p->tp, p->cp, p->pp, p->dp);
}

/* Variants of a stack are named after it: "megatron-2024", "torchtitan-eager"; torchtitan is FSDP2. */
static void warn_stack(const struct exporter *e, enum export_target target)
{
    const char *stack = e->plan->stack, *name = export_target_names[target];
    bool same = strncmp(stack, name, strlen(name)) == 0 || (target == EXPORT_TORCHTITAN && strncmp(stack, "fsdp2", 5) == 0);
    if (!same)
        err_add(e->warn, "the plan's stack is '%s', not %s: times predicted for it are not those of this launch", stack, e->framework);
}

int export_plan(enum export_target target, const struct export_request *request, char **ret_text, struct err *warn, struct err *err)
{
    char *text = NULL;
    size_t length = 0;
    struct err problems = {0}, notes = {0};
    struct exporter e = {request, request->plan, targets[target].framework, &notes, &problems};
    FILE *out = open_memstream(&text, &length);
    if (!out)
        return err_add(err, "out of memory");
    warn_stack(&e, target);
    warn_ranks(&e);
    check_nodes(&e);
    targets[target].write(&e, out);
    bool failed = fclose(out) != 0;
    if (problems.count > 0 || failed) {
        free(text);
        return problems.count > 0 ? err_append(err, &problems) : err_add(err, "out of memory");
    }
    err_append(warn, &notes);
    *ret_text = text;
    return 0;
}
