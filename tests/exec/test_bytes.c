/* What the executor's buffers take in 16 and in 8 bits against plansim's prediction: of one rank, whose kernels do nothing,
 * so that models may be of some size. (memory.sh does the same in fp32, with real ranks.) */
#include "tests/exec/one_rank.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>

#include "kernels/kernels.h"
#include "sim/predict.h"

static void nothing(void) {}

/* Arguments are the caller's business in all calling conventions that there are here. */
static struct kernels idle_kernels(void)
{
    struct kernels idle = {.name = "idle", .type = ELEMENT_BF16};
    void (*function)(void) = nothing;
    for (size_t at = offsetof(struct kernels, gemm); at < sizeof idle; at += sizeof function)
        memcpy((char *)&idle + at, &function, sizeof function);
    return idle;
}

static const struct stack stack = {.name = "planexec",
                                   .gemm_speed = 1,
                                   .attention_speed = 1,
                                   .collective_speed = 1,
                                   .overlap_slowdown = 1,
                                   .pointwise = 1,
                                   .norm_passes = 1,
                                   .main_grad_bytes = 4,
                                   .fused_cross_entropy = true,
                                   .cross_entropy_copies = 1,
                                   .counted_buffers = true};

/* Its path, until the next of that name. */
static const char *write_file(const char *name, const char *text)
{
    static char path[64];
    snprintf(path, sizeof path, "test_bytes.%s.json", name);
    FILE *file = fopen(path, "w");
    CHECK(file && fputs(text, file) >= 0 && fclose(file) == 0);
    return path;
}

static double predicted_bytes(const struct one_rank *one)
{
    static struct prediction prediction;
    int ranks = (int)plan_world(&one->plan);
    struct profile *profile = NULL;
    struct cluster cluster;
    struct question question = {
        .model = &one->model, .cluster = &cluster, .stacks = &stack, .n_stacks = 1, .memory_limit_bytes = 1e15};
    struct err err = {0}, warn = {0};
    char text[256];
    snprintf(text, sizeof text,
             "{\"name\":\"one\",\"nodes\":1,\"accelerators_per_node\":%d,\"accelerator\":\"h100-sxm\",\"intra_node\":{"
             "\"link\":\"nvlink4\"},\"inter_node\":{\"nics_per_node\":1,\"nic_gbps\":10}}",
             ranks);
    CHECK_INT(profile_open(NULL, &profile, &err), 0);
    CHECK_INT(cluster_load(write_file("cluster", text), profile, &cluster, &warn, &err), 0);
    cluster.accelerator.context_bytes = cluster.accelerator.gemm_workspace_bytes = 0; /* not the executor's */
    CHECK_INT(predict_plan(&question, &one->plan, &prediction, &err), 0);
    if (err.count > 0)
        printf("%s\n", err.text);
    profile_close(profile);
    return prediction.peak_bytes;
}

static const char *const models[] = {
    "{\"model_type\":\"llama\",\"hidden_size\":512,\"intermediate_size\":1408,\"num_hidden_layers\":8,\"num_attention_heads\":"
    "8,\"num_key_value_heads\":4,\"vocab_size\":8192,\"max_position_embeddings\":4096,\"rms_norm_eps\":1e-5}",
    "{\"model_type\":\"mixtral\",\"hidden_size\":512,\"intermediate_size\":1024,\"num_hidden_layers\":4,\"num_attention_heads\":"
    "8,\"num_key_value_heads\":4,\"vocab_size\":4096,\"max_position_embeddings\":4096,\"rms_norm_eps\":1e-5,"
    "\"num_local_experts\":8,\"num_experts_per_tok\":2}",
};

static void load(struct one_rank *one, const char *model, const char *plan)
{
    struct err warn = {0}, err = {0};
    *one = (struct one_rank){0};
    const char *path = write_file("model", model);
    CHECK_INT(model_load(path, &one->model, &warn, &err), 0);
    CHECK_INT(arch_load(path, &one->model, &one->arch, &err), 0);
    CHECK_INT(plan_load(write_file("plan", plan), &one->plan, &warn, &err), 0);
    if (err.count > 0)
        printf("%s\n", err.text);
}

static void check(int model, const char *precision, const char *options)
{
    struct one_rank one;
    struct err err = {0};
    struct step_result result;
    struct kernels idle = idle_kernels();
    char plan[512];
    snprintf(
        plan, sizeof plan,
        "{\"micro_batch\":1,\"global_batch\":2,\"seq_len\":2048,\"stack\":\"planexec\",\"schedule\":\"1f1b\",\"precision\":"
        "\"%s\",%s}",
        precision, options);
    load(&one, models[model], plan);
    data_load("synthetic", 0, one.model.vocab, 1, &one.data, &err);
    device_cpu_init(&one.device, &idle);
    world_alone(&one.world);
    struct trainer_parts parts = {&one.model,  &one.arch, &one.plan, &one.world, &one.data,
                                  &one.device, 1,         true,      false,      precision[0] == 'f'};
    CHECK_INT(trainer_init(&one.trainer, &parts, &err), 0);
    trainer_start(&one.trainer, NULL);
    trainer_gradients(&one.trainer, &result);
    trainer_update(&one.trainer, &result);
    double taken = (double)one.trainer.device.bytes_peak, predicted = predicted_bytes(&one),
           off = predicted / taken - 1;
    printf("%s %s: %.0f bytes, predicted %.0f (%+.2f %%)  %s\n", fabs(off) <= 0.02 ? "ok" : "FAILED", precision, taken,
           predicted, 100 * off, options);
    CHECK(fabs(off) <= 0.02);
    one_rank_close(&one);
}

int main(void)
{
    static const char *const plans[] = {
        "\"zero\":0",          "\"zero\":0,\"recompute\":\"selective\"",         "\"zero\":0,\"recompute\":\"full\"",
        "\"zero\":0,\"tp\":2", "\"zero\":0,\"tp\":2,\"sequence_parallel\":true", "\"zero\":3"};
    static const char *const precisions[] = {"bf16", "fp8"};
    for (int precision = 0; precision < 2; precision++)
        for (int model = 0; model < 2; model++)
            for (size_t i = 0; i < sizeof plans / sizeof plans[0]; i++)
                check(model, precisions[precision], plans[i]);
    remove("test_bytes.model.json");
    remove("test_bytes.plan.json");
    remove("test_bytes.cluster.json");
    return test_report();
}
