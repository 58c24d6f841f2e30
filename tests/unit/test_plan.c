/* Plans: defaults, sizes, names, order, plan.json. Invalid fields one by one. */
#include "cost/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cost/base/err.h"
#include "cost/base/json.h"
#include "cost/model.h"
#include "tests/unit/test.h"

static struct err warn, err;

static int parse(const char *text, struct plan *ret)
{
    struct json *root = NULL;
    err_clear(&warn);
    err_clear(&err);
    if (json_parse(text, strlen(text), "a.json", &root, &err) < 0)
        return -1;
    int result = plan_parse(root, "a.json", ret, &warn, &err);
    json_free(root);
    return result;
}

static const char *name_of(const char *text)
{
    static char name[256];
    struct plan plan;
    if (parse(text, &plan) < 0)
        return err.text;
    return plan_format(&plan, name, sizeof name);
}

/* --- defaults and sizes ------------------------------------------------------ */

static void test_defaults(void)
{
    struct plan plan, empty;
    plan_defaults(&plan);
    CHECK_INT(parse("{}", &empty), 0);
    CHECK_INT(plan_compare(&plan, &empty), 0);
    CHECK_INT(plan_world(&plan), 1);
    CHECK_INT(plan.zero, 1);
    CHECK_INT(plan.global_batch, 128);
    CHECK_INT(plan.seq_len, 4096);
    CHECK_INT(plan.recompute_layers, -1);
    CHECK_INT(plan.sequence_parallel, 0);
    CHECK(plan.grad_bytes <= 0); /* the stack's own */
    CHECK(plan.overlap.dp_grad && plan.overlap.dp_param && plan.overlap.p2p && !plan.overlap.tp && !plan.overlap.ep);
    CHECK_STR(plan.stack, "megatron");
}

static void test_sizes(void)
{
    struct model model = {.layers = 48, .vocab = 151552};
    struct plan plan;
    CHECK_INT(parse("{\"tp\":8,\"cp\":2,\"pp\":4,\"dp\":3,\"micro_batch\":2,\"global_batch\":96}", &plan), 0);
    CHECK_INT(plan_world(&plan), 192);
    CHECK_INT(plan_micro_batches(&plan), 16);
    CHECK_INT(plan_chunk_layers(&plan, &model, 3), 12);
    CHECK_INT(plan_padded_vocab(&plan, &model), 151552); /* 148 x 128 x 8 */
    plan.tp = 6;
    CHECK_INT(plan_padded_vocab(&plan, &model), 152064);
    snprintf(plan.stack, sizeof plan.stack, "fsdp2");
    CHECK_INT(plan_padded_vocab(&plan, &model), 151552);
    CHECK_INT(parse("{\"pp\":4,\"layers_per_stage\":[11,13,13,11]}", &plan), 0);
    CHECK_INT(plan_chunk_layers(&plan, &model, 0), 11);
    CHECK_INT(plan_chunk_layers(&plan, &model, 1), 13);
    CHECK_INT(plan_chunk_layers(&plan, &model, 4), 0);
    CHECK_INT(parse("{\"tp\":16777216,\"pp\":16777216,\"dp\":16777216,\"cp\":16777216}", &plan), 0);
    CHECK(plan_world(&plan) == INT64_MAX); /* saturates */
}

/* --- names -------------------------------------------------------------------- */

static void test_format(void)
{
    char small[8];
    struct plan plan;
    CHECK_STR(name_of("{}"), "TP1 PP1 DP1 EP1 ZeRO-1 mbs1 vp1 1F1B");
    CHECK_STR(name_of("{\"tp\":8,\"pp\":4,\"dp\":2,\"vp\":2,\"schedule\":\"interleaved\"}"),
              "TP8 PP4 DP2 EP1 ZeRO-1 mbs1 vp2 1F1B-I");
    CHECK_STR(name_of("{\"tp\":4,\"sequence_parallel\":true,\"cp\":2,\"ep\":8,\"etp\":2,\"zero\":3,\"micro_batch\":4,"
                      "\"schedule\":\"zb-h1\",\"recompute\":\"selective\"}"),
              "TP4 SP CP2 PP1 DP1 EP8 ETP2 ZeRO-3 mbs4 vp1 ZB-H1 recompute-selective");
    CHECK_STR(name_of("{\"pp\":4,\"recompute\":\"full\",\"recompute_layers\":3,\"layers_per_stage\":[11,12,12,11]}"),
              "TP1 PP4 DP1 EP1 ZeRO-1 mbs1 vp1 1F1B recompute-full-3 layers 11,12x2,11");
    CHECK_STR(
        name_of("{\"cp\":2,\"context_parallel\":\"ulysses\",\"rank_order\":\"tp-cp-ep-pp-dp\",\"schedule\":\"gpipe\"}"),
        "TP1 CP2-Ulysses PP1 DP1 EP1 ZeRO-1 mbs1 vp1 GPipe tp-cp-ep-pp-dp");
    plan_defaults(&plan);
    CHECK_STR(plan_format(&plan, small, sizeof small), "TP1 PP1");
    CHECK_STR(plan_format(&plan, small, 1), "");
    CHECK(plan_format(&plan, small, 0) == small);
}

/* --- order ------------------------------------------------------------------ */

/* Plans that differ in one field, one per field of plan.json. */
static const char *const different[] = {
    "{}",
    "{\"tp\":2}",
    "{\"cp\":2}",
    "{\"pp\":2}",
    "{\"vp\":2}",
    "{\"dp\":2}",
    "{\"ep\":2}",
    "{\"etp\":2}",
    "{\"sequence_parallel\":true}",
    "{\"context_parallel\":\"ulysses\"}",
    "{\"zero\":0}",
    "{\"micro_batch\":2}",
    "{\"global_batch\":64}",
    "{\"seq_len\":8192}",
    "{\"schedule\":\"gpipe\"}",
    "{\"schedule_group\":4}",
    "{\"recompute\":\"full\"}",
    "{\"recompute_layers\":0}",
    "{\"precision\":\"fp8\"}",
    "{\"optimizer\":\"sgd\"}",
    "{\"grad_dtype\":\"fp32\"}",
    "{\"grad_dtype\":\"bf16\"}",
    "{\"attention\":\"unfused\"}",
    "{\"layers_per_stage\":[3]}",
    "{\"layers_per_stage\":[4]}",
    "{\"layers_per_stage\":[1,2]}",
    "{\"overlap\":{\"dp_grad\":false}}",
    "{\"overlap\":{\"dp_param\":false}}",
    "{\"overlap\":{\"tp\":true}}",
    "{\"overlap\":{\"ep\":true}}",
    "{\"overlap\":{\"p2p\":false}}",
    "{\"rank_order\":\"tp-cp-ep-pp-dp\"}",
    "{\"stack\":\"fsdp2\"}",
};
enum { DIFFERENT = sizeof different / sizeof different[0] };

static int sign(int n)
{
    return (n > 0) - (n < 0);
}

static void test_total_order(void)
{
    static struct plan plans[DIFFERENT];
    for (int i = 0; i < DIFFERENT; i++)
        CHECK_INT(parse(different[i], &plans[i]), 0);
    for (int i = 0; i < DIFFERENT; i++)
        for (int j = 0; j < DIFFERENT; j++) {
            CHECK_INT(sign(plan_compare(&plans[i], &plans[j])), -sign(plan_compare(&plans[j], &plans[i])));
            CHECK_INT(plan_compare(&plans[i], &plans[j]) == 0, i == j);
            for (int k = 0; k < DIFFERENT; k++)
                if (plan_compare(&plans[i], &plans[j]) < 0 && plan_compare(&plans[j], &plans[k]) < 0)
                    CHECK(plan_compare(&plans[i], &plans[k]) < 0);
        }
}

/* --- plan.json -------------------------------------------------------------- */

/* contract.md's example, word for word. */
static const char contract[] =
    "{ \"tp\": 8, \"sequence_parallel\": true, \"cp\": 1, \"context_parallel\": \"ring\", \"pp\": 4, \"vp\": 1, "
    "\"dp\": 2, "
    "\"ep\": 1, \"etp\": 1, \"zero\": 1, \"micro_batch\": 1, \"global_batch\": 128, \"seq_len\": 4096, \"schedule\": "
    "\"1f1b\", "
    "\"recompute\": \"full\", \"recompute_layers\": null, \"precision\": \"bf16\", \"optimizer\": \"adamw\", "
    "\"grad_dtype\": \"fp32\", \"layers_per_stage\": null, "
    "\"overlap\": {\"dp_grad\": true, \"dp_param\": true, \"tp\": false, \"ep\": false, \"p2p\": true}, "
    "\"rank_order\": \"tp-cp-ep-dp-pp\", \"stack\": \"megatron\" }";

static void test_contract(void)
{
    struct plan plan;
    CHECK_INT(parse(contract, &plan), 0);
    CHECK_INT(warn.count, 0);
    CHECK_INT(plan_world(&plan), 64);
    CHECK_INT(plan.sequence_parallel, 1);
    CHECK_INT((int)plan.grad_bytes, 4);
    CHECK_INT(plan.recompute, RECOMPUTE_FULL);
}

static void check_round_trip(const struct plan *plan)
{
    struct plan again;
    struct json *root = plan_to_json(plan);
    char *text = json_print(root);
    CHECK_INT(parse(text, &again), 0);
    CHECK_INT(warn.count + err.count, 0);
    CHECK_INT(plan_compare(plan, &again), 0);
    free(text);
    json_free(root);
}

static void test_round_trip(void)
{
    struct plan plan;
    for (int i = 0; i < DIFFERENT; i++) {
        CHECK_INT(parse(different[i], &plan), 0);
        check_round_trip(&plan);
    }
    for (int i = 0; i < SCHEDULES; i++) {
        plan_defaults(&plan);
        plan.schedule = (enum plan_schedule)i;
        plan.precision = (enum precision)(i % PRECISIONS);
        plan.global_batch = ((int64_t)1 << 40) - i;
        plan.n_layers_per_stage = PLAN_CHUNKS_MAX - i;
        for (int k = 0; k < plan.n_layers_per_stage; k++)
            plan.layers_per_stage[k] = (uint16_t)(k * 64 + i);
        check_round_trip(&plan);
    }
}

/* Field by field: what is wrong, and what must be said about it. */
static void test_invalid_fields(void)
{
    static const struct {
        const char *json, *says;
    } cases[] = {
        {"[]", "a plan is an object"},
        {"3", "a plan is an object"},
        {"{\"tp\":0}", "'tp' is 0"},
        {"{\"tp\":-8}", "'tp' is -8"},
        {"{\"tp\":1.5}", "'tp' is 1.5"},
        {"{\"tp\":1e300}", "'tp'"},
        {"{\"tp\":\"8\"}", "'tp' is a string"},
        {"{\"tp\":true}", "'tp'"},
        {"{\"cp\":0}", "'cp'"},
        {"{\"pp\":[]}", "'pp'"},
        {"{\"vp\":0}", "'vp'"},
        {"{\"dp\":100000000}", "'dp'"},
        {"{\"ep\":0}", "'ep'"},
        {"{\"etp\":{}}", "'etp'"},
        {"{\"zero\":4}", "'zero' is 4; allowed: 0 to 3"},
        {"{\"micro_batch\":0}", "'micro_batch'"},
        {"{\"global_batch\":0}", "'global_batch'"},
        {"{\"global_batch\":1e18}", "'global_batch'"},
        {"{\"seq_len\":-1}", "'seq_len'"},
        {"{\"sequence_parallel\":1}", "'sequence_parallel'"},
        {"{\"context_parallel\":2}", "'cp' is the size"},
        {"{\"context_parallel\":\"rings\"}", "did you mean 'ring'"},
        {"{\"schedule\":\"1f1\"}", "did you mean '1f1b'"},
        {"{\"schedule\":7}", "'schedule' is a number"},
        {"{\"schedule_group\":-1}", "'schedule_group'"},
        {"{\"recompute\":true}", "'recompute'"},
        {"{\"recompute_layers\":-1}", "'recompute_layers'"},
        {"{\"precision\":\"int8\"}", "allowed: fp32, bf16, fp16, fp8"},
        {"{\"optimizer\":\"adam\"}", "'optimizer'"},
        {"{\"grad_dtype\":\"fp8\"}", "allowed: fp32, bf16"},
        {"{\"attention\":\"sparse\"}", "allowed: flash, flash1, unfused, eager"},
        {"{\"layers_per_stage\":8}", "'layers_per_stage'"},
        {"{\"layers_per_stage\":[]}", "'layers_per_stage' has 0 entries"},
        {"{\"layers_per_stage\":[1,2,-3]}", "'layers_per_stage[2]'"},
        {"{\"layers_per_stage\":[1,2.5]}", "'layers_per_stage[1]'"},
        {"{\"layers_per_stage\":[1,null]}", "'layers_per_stage[1]'"},
        {"{\"layers_per_stage\":[65536]}", "'layers_per_stage[0]'"},
        {"{\"overlap\":true}", "'overlap'"},
        {"{\"overlap\":{\"tp\":1}}", "'overlap.tp'"},
        {"{\"overlap\":{\"dp_grads\":true}}", "did you mean 'dp_grad'"},
        {"{\"rank_order\":\"tp-cp-ep-dp\"}", "'rank_order'"},
        {"{\"rank_order\":\"tp-cp-ep-dp-dp\"}", "'rank_order'"},
        {"{\"rank_order\":\"tp-cp-ep-dp-xx\"}", "'rank_order'"},
        {"{\"rank_order\":\"tp+cp-ep-dp-pp\"}", "'rank_order'"},
        {"{\"rank_order\":\"tp-cp-ep-dp-pp-\"}", "'rank_order'"},
        {"{\"rank_order\":5}", "'rank_order'"},
        {"{\"stack\":\"\"}", "'stack'"},
        {"{\"stack\":\"a-name-of-more-than-thirty-one-characters\"}", "1 to 31 characters"},
        {"{\"micro_batchs\":2}", "did you mean 'micro_batch'"},
        {"{\"schedul\":\"1f1b\"}", "did you mean 'schedule'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct plan plan = {.tp = 77};
        CHECK_INT(parse(cases[i].json, &plan), -1);
        CHECK_INT(err.count, 1);
        CHECK_CONTAINS(err.text, cases[i].says);
        CHECK_CONTAINS(err.text, "'a.json'");
        CHECK_INT(plan.tp, 77); /* untouched */
    }
}

static void test_foreign_names(void)
{
    static const struct {
        const char *theirs, *ours;
    } names[] = {
        {"tensor_parallel", "'tp'"},
        {"tensor_model_parallel_size", "'tp'"},
        {"tensor-model-parallel-size", "'tp'"},
        {"--tensor-model-parallel-size", "'tp'"},
        {"TENSOR_PARALLEL", "'tp'"},
        {"tensor_parralel", "'tp'"},
        {"pipeline_model_parallel_size", "'pp'"},
        {"virtual_pipeline_parallel", "'vp'"},
        {"data_parallel", "'dp'"},
        {"micro_batch_size", "'micro_batch'"},
        {"global_batch_size", "'global_batch'"},
        {"zero_stage", "'zero'"},
        {"seq_length", "'seq_len'"},
        {"expert_model_parallel_size", "'ep'"},
        {"decoder_last_pipeline_num_layers", "'layers_per_stage'"},
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct plan plan;
        char json[128];
        snprintf(json, sizeof json, "{\"%s\":2}", names[i].theirs);
        CHECK_INT(parse(json, &plan), -1);
        CHECK_INT(err.count, 1);
        CHECK_INT(warn.count, 0);
        CHECK_CONTAINS(err.text, names[i].theirs);
        CHECK_CONTAINS(err.text, names[i].ours);
    }
}

static void test_all_at_once(void)
{
    struct plan plan;
    CHECK_INT(
        parse("{\"tp\":0,\"dp\":1.5,\"schedule\":\"x\",\"tensor_parallel\":8,\"rank_order\":\"tp\",\"stack\":\"\"}",
              &plan),
        -1);
    CHECK_INT(err.count, 6);
    CHECK_INT(parse("{\"comment\":\"mine\",\"author\":\"me\"}", &plan), 0);
    CHECK_INT(warn.count, 2);
    CHECK_CONTAINS(warn.text, "'comment'");
    CHECK_INT(parse("{\"tp\":1,\"tp\":2}", &plan), -1);
    CHECK_CONTAINS(err.text, "tp");
    CHECK_INT(parse("{\"tp\":null,\"overlap\":null,\"stack\":null,\"rank_order\":null,\"precision\":null}", &plan), 0);
    CHECK_INT(plan.tp, 1);
    CHECK(plan_parse(NULL, "a.json", &plan, NULL, NULL) == -1);
}

static void test_files(void)
{
    char directory[] = "/tmp/test_plan.XXXXXX", path[64];
    struct plan plan, again;
    CHECK(mkdtemp(directory) != NULL);
    snprintf(path, sizeof path, "%s/best.plan.json", directory);
    err_clear(&warn);
    err_clear(&err);
    plan_defaults(&plan);
    plan.tp = 4;
    plan.dp = 12;
    CHECK_INT(plan_save(path, &plan, &err), 0);
    plan.dp = 16;
    CHECK_INT(plan_save(path, &plan, &err), 0); /* over the first */
    CHECK_INT(plan_load(path, &again, &warn, &err), 0);
    CHECK_INT(plan_compare(&plan, &again), 0);
    CHECK_INT(warn.count + err.count, 0);
    unlink(path);
    CHECK_INT(plan_load(path, &again, &warn, &err), -1);
    CHECK_CONTAINS(err.text, path);
    err_clear(&err);
    CHECK_INT(plan_load(directory, &again, &warn, &err), -1);
    CHECK_INT(err.count, 1);
    CHECK_INT(rmdir(directory), 0); /* no temporary file was left */
    err_clear(&err);
    CHECK_INT(plan_save(path, &plan, &err), -1);
    CHECK_INT(err.count, 1);
}

int main(void)
{
    test_defaults();
    test_sizes();
    test_format();
    test_total_order();
    test_contract();
    test_round_trip();
    test_invalid_fields();
    test_foreign_names();
    test_all_at_once();
    test_files();
    return test_report();
}
