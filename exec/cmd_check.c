/* planexec check: a plan's losses, gradients and weights against the one-rank run. */
#include <stdio.h>
#include <stdlib.h>

#include "cost/base/err.h"
#include "cost/base/json.h"
#include "cost/base/opt.h"
#include "exec/check.h"
#include "exec/commands_exec.h"
#include "exec/trainer.h"

static const char *const devices[] = {"cpu", "cuda", NULL}; /* as enum job_device */
static const char *const formats[] = {"table", "json", NULL};

struct arguments {
    struct job_options job;
    int64_t steps;
    bool balanced, help;
    int format;
};

static int parse(struct arguments *a, int argc, char **argv, const struct world *world, struct err *err)
{
    const struct opt table[] = {
        {"model", OPT_STRING, &a->job.model, 0, 0, NULL, "FILE", "config.json"},
        {"plan", OPT_STRING, &a->job.plan, 0, 0, NULL, "FILE", "plan.json"},
        {"steps", OPT_INT, &a->steps, 1, 1000, NULL, "N", "steps compared (default 3)"},
        {"data", OPT_STRING, &a->job.data, 0, 0, NULL, "FILE", "words (.txt: bytes), or synthetic (default)"},
        {"data-bits", OPT_INT, &a->job.data_bits, 8, 32, NULL, "N",
         "8, 16 or 32: width of the file's words (default: by its name, 16)"},
        {"seed", OPT_INT, &a->job.seed, 0, 1e15, NULL, "N", "of first weights and synthetic data (default 1)"},
        {"bf16", OPT_FLAG, &a->job.bf16, 0, 0, NULL, NULL,
         "round stored weights and activations to bfloat16, with precision fp8 operands of linears to 8 bits; on one rank "
         "too"},
        {"device", OPT_CHOICE, &a->job.device, 0, 0, devices, "D", "cpu (default), cuda"},
        {"share-gpu", OPT_FLAG, &a->job.share_gpu, 0, 0, NULL, NULL,
         "cuda: ranks may share a GPU, and talk by way of the host"},
        {"balanced", OPT_FLAG, &a->balanced, 0, 0, NULL, NULL,
         "experts in turn instead of the router's choice, which the rounding of 16 bits may turn over"},
        {"kernels", OPT_CHOICE, &a->job.kernels, 0, 0, job_kernels, "NAME", "cpu (default) or reference"},
        {"threads", OPT_INT, &a->job.threads, 1, 1024, NULL, "N", "per rank (default 1)"},
        {"format", OPT_CHOICE, &a->format, 0, 0, formats, "F", "table (default), json"},
        {NULL, OPT_FLAG, NULL, 0, 0, NULL, NULL, NULL},
    };
    int n = 0, result = opt_parse(table, argc, argv, NULL, 0, &n, &a->help, err);
    if (a->help && world->rank == 0)
        opt_print_help(stdout, "mpirun -np N planexec check --model FILE --plan FILE [OPTION]...",
                       "Trains by the plan and on one rank from the same weights and data, and compares losses,\n"
                       "gradient norms, every gradient and every updated weight. Tolerances follow from fp32, bf16 or\n"
                       "fp8 and the lengths of sums (exec/check.h). Exit 1 when something differs by more.",
                       table, "mpirun -np 4 planexec check --model tiny.json --plan tp2-pp2.json");
    if (result == 0 && !a->help && (!a->job.model || !a->job.plan))
        return err_add(err, "--model and --plan are needed");
    return result;
}

static struct plan one_rank(const struct plan *plan)
{
    struct plan one = *plan;
    one.tp = one.cp = one.pp = one.vp = one.dp = one.ep = one.etp = 1;
    one.sequence_parallel = false;
    one.zero = one.schedule_group = one.n_layers_per_stage = 0;
    one.schedule = SCHEDULE_1F1B;
    one.recompute = RECOMPUTE_NONE;
    one.recompute_layers = -1;
    return one;
}

static void print(const struct check_result *r, int step)
{
    printf("step %d  loss %.6f (one rank %.6f)  gradient norm %.6f (%.6f)  %d parameters, %lld elements%s\n", step,
           r->loss, r->reference_loss, r->norm, r->reference_norm, r->parameters, (long long)r->elements,
           r->missing > 0 ? ", SOME MISSING" : "");
    if (r->factor_spread > 0)
        printf("        FACTORS of 8-bit linears are apart by %.3g between ranks of a stage\n", r->factor_spread);
    printf("        worst gradient %s at %.3f of its tolerance, worst weight %s at %.3f\n", r->gradient.name,
           r->gradient.ratio, r->weight.name, r->weight.ratio);
}

static void push(struct json *steps, const struct check_result *r)
{
    struct json *step = json_new_object();
    json_put_number(step, "loss", r->loss);
    json_put_number(step, "reference_loss", r->reference_loss);
    json_put_number(step, "tolerance", r->loss_tolerance);
    json_put_number(step, "gradient_norm", r->norm);
    json_put_number(step, "reference_gradient_norm", r->reference_norm);
    json_put_string(step, "worst_gradient", r->gradient.name);
    json_put_number(step, "worst_gradient_ratio", r->gradient.ratio);
    json_put_string(step, "worst_weight", r->weight.name);
    json_put_number(step, "worst_weight_ratio", r->weight.ratio);
    json_put_int(step, "parameters", r->parameters);
    json_put_int(step, "missing_elements", r->missing);
    json_put_number(step, "factor_spread", r->factor_spread);
    json_put_bool(step, "passed", check_passed(r));
    json_push(steps, step);
}

static bool compare(struct trainer *trainer, struct trainer *reference, const struct arguments *a, struct json *steps,
                    int rank)
{
    bool passed = true;
    struct check_bounds *bounds = check_begin(trainer, reference);
    for (int64_t i = 0; i < a->steps && passed; i++) {
        struct check_result result;
        check_step(bounds, &result);
        passed = check_passed(&result);
        if (rank == 0 && a->format == 0)
            print(&result, (int)i + 1);
        push(steps, &result);
    }
    check_end(bounds);
    return passed;
}

static void answer(const struct arguments *a, const struct job *job, struct json *steps, bool passed, int rank)
{
    char name[256];
    struct json *root = json_new_object();
    json_put_string(root, "plan", plan_format(&job->plan, name, sizeof name));
    json_put_bool(root, "passed", passed);
    json_put(root, "steps", steps);
    char *text = json_print(root);
    if (rank == 0 && a->format == 1)
        fputs(text, stdout);
    else if (rank == 0)
        printf("%s  %s\n", passed ? "passed" : "FAILED", name);
    free(text);
    json_free(root);
}

int cmd_check(struct world *world, int argc, char **argv)
{
    struct arguments a = {.job = {.data = "synthetic", .seed = 1, .threads = 1}, .steps = 3};
    struct job job;
    struct err err = {0};
    if (parse(&a, argc, argv, world, &err) < 0) {
        exec_print(world, "check", "", &err);
        return EXIT_USAGE;
    }
    if (a.help)
        return EXIT_ANSWERED;
    int code = job_load(&job, &a.job, "check", world);
    if (code == EXIT_ANSWERED && !exec_same(world, "check", "options", 1, (const double[]){(double)a.steps}))
        code = EXIT_USAGE;
    if (code != EXIT_ANSWERED)
        return code;
    struct plan one = one_rank(&job.plan);
    struct world alone;
    struct trainer trainer, reference;
    bool first = world->rank == 0;
    world_alone(&alone);
    if (job.gpu_world)
        world_attach(&alone, &job.device);
    struct trainer_parts parts = {&job.model,           &job.arch,  &job.plan,  world,  &job.data, &job.device,
                                  (uint64_t)a.job.seed, a.balanced, a.job.bf16, job.fp8};
    struct trainer_parts alone_parts = parts;
    alone_parts.plan = &one;
    alone_parts.world = &alone;
    if (trainer_init(&trainer, &parts, &err) < 0 || (first && trainer_init(&reference, &alone_parts, &err) < 0)) {
        exec_print(world, "check", "", &err);
        return EXIT_INPUT;
    }
    trainer_start(&trainer, NULL);
    if (first)
        trainer_start(&reference, NULL);
    struct json *steps = json_new_array();
    bool passed = compare(&trainer, first ? &reference : NULL, &a, steps, world->rank);
    answer(&a, &job, steps, passed, world->rank);
    trainer_release(&trainer);
    if (first)
        trainer_release(&reference);
    world_release(&alone);
    job_release(&job);
    return passed ? EXIT_ANSWERED : EXIT_NO;
}
