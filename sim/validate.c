#include "sim/validate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cost/base/err.h"
#include "cost/base/json.h"
#include "cost/base/unit.h"
#include "cost/profile.h"
#include "cost/profile_rows.h"
#include "sim/validate_rows.h"

const char *const run_counter_names[] = {"allocated", "reserved", "device", NULL};

/* ---- what runs share ---- */

/* A model whose file states no vocabulary is taken with GPT-2's, as Megatron-LM's examples have it. */
static const int64_t usual_vocab = 50257;

static void say_reason(char reason[RUN_TEXT_MAX], const struct err *err)
{
    snprintf(reason, RUN_TEXT_MAX, "%.*s", (int)strcspn(err->text, "\n"), err->text);
}

static int find_model(struct validation *v, struct json *models, const char *name)
{
    for (int i = 0; i < v->n_models; i++)
        if (strcmp(v->models[i].name, name) == 0)
            return i;
    struct model_of_run *m = &v->models[v->n_models];
    struct err warn = {0}, err = {0};
    struct json *config = (struct json *)json_get(models, name); /* ours: the caller loaded the tree */
    *m = (struct model_of_run){.name = name};
    if (!config)
        err_add(&err, "model '%s' is not among the models", name);
    else if (!json_has(config, "vocab_size") && !json_has(config, "text_config"))
        json_put_int(config, "vocab_size", usual_vocab);
    if (!config || model_parse(config, name, &m->model, &warn, &err) < 0)
        say_reason(m->reason, &err);
    return v->n_models++;
}

static int find_cluster(struct validation *v, const struct outcome *o)
{
    char key[200];
    const struct run_plan *p = &o->mapped;
    snprintf(key, sizeof key, "%s %lld x %d, %d NICs of %g, %s", o->run->accelerator, (long long)p->nodes, p->accelerators_per_node, p->nics_per_node,
             p->nic_gbps, o->run->hardware);
    for (int i = 0; i < v->n_clusters; i++)
        if (strcmp(v->clusters[i].key, key) == 0)
            return i;
    struct cluster_of_run *c = &v->clusters[v->n_clusters];
    struct err warn = {0}, err = {0};
    struct json *root = run_plan_cluster(o->run, p);
    memset(c, 0, sizeof *c);
    memcpy(c->key, key, sizeof key);
    if (cluster_parse(root, "cluster of the run", v->profile, &c->cluster, &warn, &err) < 0)
        say_reason(c->reason, &err);
    json_free(root);
    return v->n_clusters++;
}

static int add_stack(struct validation *v, const char *name, struct err *err)
{
    for (int i = 0; i < v->n_stacks; i++)
        if (strcmp(v->stacks[i].name, name) == 0)
            return 0;
    if (v->n_stacks == VALIDATE_STACKS_MAX)
        return err_add(err, "more than %d stacks in one table", VALIDATE_STACKS_MAX);
    if (profile_stack(v->profile, name, &v->stacks[v->n_stacks], err) < 0)
        return -1;
    v->n_stacks++;
    return 0;
}

/* ---- mapping ---- */

/* The words of tables come first ("megatron" is one of several by its date), then the names of the profile: one's own stack
 * does what the first of its bases does that is such a word. */
static void name_stack(const struct profile *profile, struct run *run)
{
    const char *chain[PROFILE_CHAIN_MAX];
    if (!*run->stack || run_stack_is_word(run->stack))
        return;
    int n = profile_chain(profile, SECTION_STACK, run->stack, chain, NULL);
    *(n > 0 ? &run->own_stack : &run->unknown_stack) = run->stack;
    run->stack = "megatron";
    for (int i = n - 1; i > 0; i--)
        if (run_stack_is_word(chain[i]))
            run->stack = chain[i];
}

static void map_run(struct validation *v, struct json *models, int row)
{
    struct outcome *o = &v->outcome[row];
    struct err err = {0};
    o->run = &v->table.run[row];
    o->cluster = -1;
    o->measured_s = o->run->result == RUN_OK ? run_step_time_s(o->run) : (double)NAN;
    o->error = o->memory_error = (double)NAN;
    for (int i = 0; i < RUN_COUNTERS; i++)
        if (strcmp(run_counter_names[i], run_memory_counter(o->run)) == 0)
            o->counter = (enum run_counter)i;
    o->model = find_model(v, models, o->run->model);
    const struct model_of_run *m = &v->models[o->model];
    if (*m->reason) {
        snprintf(o->mapped.reason, sizeof o->mapped.reason, "%s", m->reason);
        return;
    }
    run_plan_of(o->run, &m->model, &o->mapped);
    if (*o->mapped.reason)
        return;
    if (add_stack(v, o->mapped.plan.stack, &err) < 0)
        say_reason(o->mapped.reason, &err);
    o->cluster = find_cluster(v, o);
    if (*v->clusters[o->cluster].reason)
        snprintf(o->mapped.reason, sizeof o->mapped.reason, "%s", v->clusters[o->cluster].reason);
}

int validation_load(struct validation *ret, const char *table, const char *models, const struct profile *profile, struct err *warn, struct err *err)
{
    struct json *root = NULL;
    memset(ret, 0, sizeof *ret);
    ret->profile = profile;
    int result = run_table_load(table, &ret->table, warn, err);
    if (json_load_python(models, &root, err) < 0)
        result = -1;
    else if (json_type(root) != JSON_OBJECT)
        result = err_add(err, "file '%s': models are an object of config.json objects, but this is %s", models, json_type_name(root));
    if (result == 0) {
        size_t n = (size_t)ret->table.n;
        ret->models = arena_array(&ret->table.csv.arena, n, sizeof *ret->models);
        ret->clusters = arena_array(&ret->table.csv.arena, n, sizeof *ret->clusters);
        ret->outcome = arena_array(&ret->table.csv.arena, n, sizeof *ret->outcome);
        ret->scratch = arena_alloc(&ret->table.csv.arena, sizeof *ret->scratch);
        for (int row = 0; row < ret->table.n; row++) {
            name_stack(profile, &ret->table.run[row]);
            map_run(ret, root, row);
        }
    }
    json_free(root);
    return result;
}

void validation_release(struct validation *v)
{
    run_table_release(&v->table);
    memset(v, 0, sizeof *v);
}

/* ---- pricing ---- */

static double heaviest_gib(const struct prediction *p, enum run_counter counter)
{
    double most = 0;
    for (int i = 0; i < p->n_stages; i++) {
        const double *bytes = p->stage[i].bytes;
        double here = counter == COUNTER_ALLOCATED ? memory_allocated(bytes) : counter == COUNTER_RESERVED ? memory_reserved(bytes) : p->stage[i].total;
        most = fmax(most, here);
    }
    return most / UNIT_GIB;
}

static void take_prediction(struct outcome *o, const struct prediction *p)
{
    o->predicted = true;
    o->step_time_s = p->step_time_s;
    o->low_s = p->step_time_low_s;
    o->high_s = p->step_time_high_s;
    o->error = p->step_time_s / o->measured_s - 1;
    o->memory_gib = heaviest_gib(p, o->counter);
    o->memory_error = run_memory_gib(o->run) > 0 ? o->memory_gib / run_memory_gib(o->run) - 1 : (double)NAN;
    o->device_gib = p->peak_bytes / UNIT_GIB;
    o->fits = p->fits;
    memcpy(o->time_s, p->time_s, sizeof o->time_s);
}

static void price(struct validation *v, int row, struct prediction *scratch)
{
    struct outcome *o = &v->outcome[row];
    struct err err = {0};
    o->predicted = false;
    if (*o->mapped.reason)
        return;
    const struct cluster *cluster = &v->clusters[o->cluster].cluster;
    struct question question = {.model = &v->models[o->model].model, .cluster = cluster, .profile = v->profile, .stacks = v->stacks,
                                .n_stacks = v->n_stacks, .memory_limit_bytes = cluster->accelerator.memory_bytes};
    if (predict_plan(&question, &o->mapped.plan, scratch, &err) < 0)
        say_reason(o->mapped.reason, &err);
    else
        take_prediction(o, scratch);
}

void validation_price(struct validation *v, int row)
{
    price(v, row, v->scratch);
}

static void visit(void *context, struct row_pricer *pricer, int row)
{
    price(context, row, &pricer->prediction);
}

void validation_price_all(struct validation *v)
{
    validation_visit_rows(v, v->table.n, visit, v);
}
