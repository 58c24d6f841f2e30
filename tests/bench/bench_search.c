/* How fast the search is: plans priced per second and the whole time of two
 * questions, one thread. Run by `meson test --benchmark`.
 *
 *   64 H100, Llama-3.1-70B, batch 1,024 x 4,096         required < 0.2 s
 *   5,120 A100, Megatron-Turing NLG 530B, batch 2,560   required < 2 s
 *   (Calculon: 2,221 CPU-seconds for 663,952 plans of that space, its own log) */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "cost/base/err.h"
#include "cost/base/json.h"
#include "cost/profile.h"
#include "sim/inputs.h"
#include "sim/search.h"
#include "tests/unit/test.h"

static struct inputs in;

static void run(const char *name, const char *model, const char *hw, int64_t gbs, int64_t seq, bool exhaustive)
{
    struct err err = {0};
    struct json *root = NULL;
    struct search_options o;
    struct search_result r;
    char path[TEST_PATH_MAX];
    struct profile *profile = in.profile;
    memset(&in, 0, sizeof in);
    in.profile = profile;
    if (model_load(test_source_path(path, model), &in.model, NULL, &err) < 0 || json_parse(hw, strlen(hw), "hw.json", &root, &err) < 0 ||
        cluster_parse(root, "hw.json", profile, &in.cluster, NULL, &err) < 0) {
        fprintf(stderr, "%s\n", err.text);
        exit(1);
    }
    in.question = (struct question){.model = &in.model, .cluster = &in.cluster, .profile = profile, .stacks = in.stacks,
                                    .memory_limit_bytes = in.cluster.accelerator.memory_bytes * in.cluster.usable_memory};
    inputs_add_stack(&in, "megatron", &err);
    search_defaults(&o);
    o.base.global_batch = gbs;
    o.base.seq_len = seq;
    o.exhaustive = exhaustive;
    clock_t cpu = clock();
    if (search_run(&in.question, &o, &r, &err) < 0) {
        fprintf(stderr, "%s\n", err.text);
        exit(1);
    }
    double cpu_s = (double)(clock() - cpu) / CLOCKS_PER_SEC;
    printf("%-44s %9lld plans priced in %6.3f s (%.3f s of CPU) = %9.0f plans/s; best %.3f s per step\n", name, (long long)r.evaluated,
           r.elapsed_s, cpu_s, (double)r.evaluated / cpu_s, r.n > 0 ? r.plans[0].step_time_s : 0.0);
    search_release(&r);
    json_free(root);
}

int main(void)
{
    struct err err = {0};
    struct rusage usage;
    if (profile_open(NULL, &in.profile, &err) < 0) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    const char *h100 = "{\"accelerator\": \"h100-sxm\", \"nodes\": 8}", *selene = "{\"accelerator\": \"a100-sxm-80gb\", \"nodes\": 640}";
    run("llama-3.1-70b on 64 H100", "hwprofiles/models/llama-3.1-70b.json", h100, 1024, 4096, false);
    run("mt-nlg-530b on 5,120 A100", "tests/golden/models/mt-nlg-530b.json", selene, 2560, 2048, false);
    run("the same without bounds", "tests/golden/models/mt-nlg-530b.json", selene, 2560, 2048, true);
    getrusage(RUSAGE_SELF, &usage);
    printf("peak memory %.0f MB\n", (double)usage.ru_maxrss / 1024);
    profile_close(in.profile);
    return 0;
}
