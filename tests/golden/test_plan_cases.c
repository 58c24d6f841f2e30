/* Launch rules against users' situations (plan_cases.txt, explained there) and against what the original schedule
 * implementations run and refuse (plan_micro_batches.csv). */
#include "cost/plan.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cost/base/err.h"
#include "cost/base/json.h"
#include "cost/cluster.h"
#include "cost/model.h"
#include "tests/unit/test.h"

enum { LINE_BYTES = 4096, COLUMNS = 6 };

static const char *const rule_words[RULES + 1] = {
    [RULE_WORLD] = "WORLD",
    [RULE_HEADS_TP] = "HEADS_TP",
    [RULE_KV_HEADS_TP] = "KV_HEADS_TP",
    [RULE_FFN_TP] = "FFN_TP",
    [RULE_VOCAB_TP] = "VOCAB_TP",
    [RULE_SP_NEEDS_TP] = "SP_NEEDS_TP",
    [RULE_SEQ_SP_CP] = "SEQ_SP_CP",
    [RULE_CP_HEADS] = "CP_HEADS",
    [RULE_LAYERS_SPLIT] = "LAYERS_SPLIT",
    [RULE_LAYERS_LIST] = "LAYERS_LIST",
    [RULE_PP_LAYERS] = "PP_LAYERS",
    [RULE_VP_NEEDS_PP] = "VP_NEEDS_PP",
    [RULE_VP_SCHEDULE] = "VP_SCHEDULE",
    [RULE_MICRO_BATCHES_PP] = "MICRO_BATCHES_PP",
    [RULE_BATCH] = "BATCH",
    [RULE_DP_BATCH] = "DP_BATCH",
    [RULE_EP_EXPERTS] = "EP_EXPERTS",
    [RULE_EP_WORLD] = "EP_WORLD",
    [RULE_EP_DENSE] = "EP_DENSE",
    [RULE_ETP_FFN] = "ETP_FFN",
    [RULE_EP_SP] = "EP_SP",
    [RULE_ZERO_PP] = "ZERO_PP",
    [RULE_PRECISION_ACCELERATOR] = "PRECISION_ACCELERATOR",
    [RULE_SEQ_MODEL] = "SEQ_MODEL",
    [RULE_RECOMPUTE_LAYERS] = "RECOMPUTE_LAYERS",
    [RULE_SCHEDULE] = "SCHEDULE",
    [RULE_RANK_ORDER] = "RANK_ORDER",
    [RULE_ADAPTERS] = "ADAPTERS",
    [RULE_DP_SHARD] = "DP_SHARD",
    [RULE_OFFLOAD] = "OFFLOAD",
};

struct golden_case {
    const char *file;
    int line;
    char *column[COLUMNS]; /* name, model, plan, cluster, rules, phrases */
};

static void fail(const struct golden_case *c, const char *what, const char *wanted, const char *got)
{
    printf("%s:%d: %s: %s '%s', got:\n%s\n", c->file, c->line, c->column[0], what, wanted, got);
    test_count(false);
}

static char *trim(char *text)
{
    text += strspn(text, " \t");
    size_t n = strlen(text);
    while (n > 0 && strchr(" \t\r\n", text[n - 1]))
        text[--n] = '\0';
    return text;
}

/* --- the three inputs of a case ------------------------------------------ */

static void read_model(struct json_at at, struct model *model, struct err *err)
{
    int64_t ffn = 16384, expert_ffn = 0, shared_ffn = 0;
    memset(model, 0, sizeof *model);
    snprintf(model->name, sizeof model->name, "golden");
    model->layers = model->heads = 32;
    model->vocab = 128256;
    model->max_positions = 131072;
    json_read_int(at, "layers", 1, 1024, &model->layers, err);
    json_read_int(at, "heads", 1, 1024, &model->heads, err);
    model->kv_heads = model->heads;
    json_read_int(at, "kv_heads", 1, 1024, &model->kv_heads, err);
    json_read_int(at, "ffn", 1, 1 << 20, &ffn, err);
    json_read_int(at, "vocab", 1, 1 << 20, &model->vocab, err);
    json_read_int(at, "experts", 0, 1024, &model->experts, err);
    json_read_int(at, "expert_ffn", 0, 1 << 20, &expert_ffn, err);
    json_read_int(at, "shared_ffn", 0, 1 << 20, &shared_ffn, err);
    json_read_int(at, "max_positions", 0, 1 << 24, &model->max_positions, err);
    json_read_bool(at, "learned_positions", &model->learned_positions, err);
    model->n_kinds = model->experts > 0 ? 2 : 1;
    model->kinds[0] = (struct layer_kind){.ffn = ffn, .layers = model->layers};
    model->kinds[1] = (struct layer_kind){.moe = true, .ffn = expert_ffn, .shared_ffn = shared_ffn};
}

static struct accelerator accelerator_of(const char *kind)
{
    static const char *const kinds[] = {"v100", "a100", "h100", "b200"};
    static const int last_rate[] = {0, RATE_16BIT, RATE_FP8, RATE_FP4};
    struct accelerator accelerator = {0};
    snprintf(accelerator.name, sizeof accelerator.name, "%s", kind);
    accelerator.lacks_bf16 = strcmp(kind, "v100") == 0;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        for (int rate = 0; rate < RATES && strcmp(kind, kinds[i]) == 0; rate++)
            if (rate <= last_rate[i] || (i == 0 && rate == RATE_16BIT))
                accelerator.peak_flop_per_s[rate] = 1e14;
    return accelerator;
}

/* The slowest member has, of every rate, the least (cluster.h). */
static void read_cluster(struct json_at at, struct cluster *cluster, struct err *err)
{
    int per_node = 8;
    memset(cluster, 0, sizeof *cluster);
    snprintf(cluster->name, sizeof cluster->name, "golden");
    json_read_int(at, "accelerators", 1, 1 << 20, &cluster->accelerators, err);
    json_read_int32(at, "per_node", 1, 1024, &per_node, err);
    const struct json *kinds = json_get(at.node, "kinds"), *kind = kinds ? json_first(kinds) : NULL;
    cluster->accelerator = accelerator_of(kind ? json_text(kind) : "h100");
    do {
        struct node_group *group = &cluster->group[cluster->n_groups++];
        group->accelerators_per_node = per_node;
        group->accelerator = accelerator_of(kind ? json_text(kind) : "h100");
        for (int rate = 0; rate < RATES; rate++)
            if (group->accelerator.peak_flop_per_s[rate] < cluster->accelerator.peak_flop_per_s[rate])
                cluster->accelerator.peak_flop_per_s[rate] = group->accelerator.peak_flop_per_s[rate];
        kind = kind ? json_next(kind) : NULL;
    } while (kind);
}

/* --- what is expected ------------------------------------------------------ */

static void check_rules(const struct golden_case *c, uint32_t broken)
{
    char words[1024] = "";
    for (int rule = 0; rule < RULES; rule++)
        if (broken & (uint32_t)1 << rule)
            snprintf(words + strlen(words), sizeof words - strlen(words), "%s%s", words[0] ? " " : "",
                     rule_words[rule]);
    if (strcmp(words[0] ? words : "none", c->column[4]) != 0)
        fail(c, "expected rules", c->column[4], words);
    else
        test_count(true);
}

static void check_phrases(const struct golden_case *c, const struct err *warn, const struct err *err)
{
    for (char *at = c->column[5]; at && *at;) {
        char *end = strchr(at, ';');
        if (end)
            *end++ = '\0';
        bool refused = *at == '!', warned = *at == '~';
        const char *phrase = at + (refused || warned);
        if (refused && (strstr(err->text, phrase) || strstr(warn->text, phrase)))
            fail(c, "unexpected phrase", phrase, strstr(err->text, phrase) ? err->text : warn->text);
        if (!refused && !strstr(warned ? warn->text : err->text, phrase))
            fail(c, "missing phrase", phrase, warned ? warn->text : err->text);
        at = end;
    }
}

static void run_case(const struct golden_case *c)
{
    static struct err warn, err;
    struct json *roots[3] = {NULL};
    struct model model;
    struct plan plan;
    struct cluster cluster;
    err_clear(&warn);
    err_clear(&err);
    for (int i = 0; i < 3; i++)
        if (c->column[1 + i][0] && json_parse(c->column[1 + i], strlen(c->column[1 + i]), "case", &roots[i], &err) < 0)
            fail(c, "unreadable JSON in", c->column[1 + i], err.text);
    if (err.count == 0) {
        read_model((struct json_at){"case", "", roots[0]}, &model, &err);
        if (roots[2])
            read_cluster((struct json_at){"case", "", roots[2]}, &cluster, &err);
        bool readable = err.count == 0 && plan_parse(roots[1], "case", &plan, &warn, &err) == 0;
        if (readable) {
            int result = plan_check(&plan, &model, roots[2] ? &cluster : NULL, &warn, &err);
            check_rules(c, plan_broken_rules(&plan, &model, roots[2] ? &cluster : NULL));
            if ((result < 0) != (err.count > 0))
                fail(c, "result and sentences disagree", "", err.text);
        }
        if (!readable && strcmp(c->column[4], "unreadable") != 0)
            fail(c, "expected", c->column[4], err.text);
        check_phrases(c, &warn, &err);
    }
    for (int i = 0; i < 3; i++)
        json_free(roots[i]);
}

/* name | model | plan | cluster | rules | phrases */
static void run_line(const char *file, int line, char *text)
{
    struct golden_case c = {file, line, {NULL}};
    for (int i = 0; i < COLUMNS; i++) {
        char *bar = i < COLUMNS - 1 ? strchr(text, '|') : NULL;
        if (!bar && i < COLUMNS - 1) {
            printf("%s:%d: a case has %d columns\n", file, line, COLUMNS);
            test_count(false);
            return;
        }
        if (bar)
            *bar = '\0';
        c.column[i] = trim(text);
        text = bar ? bar + 1 : text;
    }
    run_case(&c);
}

/* schedule,stack,group,pp,vp,micro_batches,accepted */
static void run_schedule_line(const char *file, int line, char *text)
{
    char schedule[32], stack[32], accepted[8];
    struct plan plan;
    struct model model = {.layers = 64, .heads = 8, .kv_heads = 8, .vocab = 1024, .n_kinds = 1, .kinds = {{.ffn = 64}}};
    int micro_batches, word = 0;
    plan_defaults(&plan);
    if (strncmp(text, "schedule,", 9) == 0)
        return;
    if (sscanf(text, "%31[^,],%31[^,],%d,%d,%d,%d,%7s", schedule, stack, &plan.schedule_group, &plan.pp, &plan.vp,
               &micro_batches, accepted) != 7) {
        printf("%s:%d: unreadable\n", file, line);
        test_count(false);
        return;
    }
    while (word < SCHEDULES && strcmp(schedule_names[word], schedule) != 0)
        word++;
    plan.schedule = (enum plan_schedule)word;
    plan.global_batch = micro_batches;
    snprintf(plan.stack, sizeof plan.stack, "%s", stack);
    model.layers = (int64_t)plan.pp * plan.vp;
    uint32_t broken = plan_broken_rules(&plan, &model, NULL);
    bool wanted = strcmp(accepted, "yes") == 0;
    if (!test_count((broken == 0) == wanted))
        printf("%s:%d: expected accepted = %s, got rules %#x\n", file, line, accepted, (unsigned)broken);
}

static void run_table(const char *name, void (*run)(const char *, int, char *))
{
    char path[TEST_PATH_MAX], line[LINE_BYTES];
    FILE *file = fopen(test_source_path(path, name), "r");
    if (!file) {
        printf("%s: cannot be opened\n", path);
        test_count(false);
        return;
    }
    for (int n = 1; fgets(line, sizeof line, file); n++)
        if (line[0] != '#' && trim(line)[0])
            run(path, n, line);
    fclose(file);
}

int main(void)
{
    run_table("tests/golden/plan_cases.txt", run_line);
    run_table("tests/golden/plan_micro_batches.csv", run_schedule_line);
    return test_report();
}
