/* planexec run: trains by a plan and says what every step took. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cost/base/err.h"
#include "cost/base/file.h"
#include "cost/base/json.h"
#include "cost/base/opt.h"
#include "cost/base/unit.h"
#include "cost/cluster.h"
#include "cost/model.h"
#include "cost/profile.h"
#include "exec/checkpoint.h"
#include "exec/commands_exec.h"
#include "exec/device_paced.h"
#include "exec/measure.h"
#include "exec/op_kinds.h"
#include "exec/predicted.h"
#include "exec/trainer.h"
#include "sim/writers/trace.h"

static const char *const formats[] = {"table", "json", NULL};

struct arguments {
    struct job_options job;
    const char *trace, *cluster, *profile, *checkpoint, *resume, *memory;
    int64_t checkpoint_every;
    double forward_ms, backward_ms, wgrad_ms;
    int64_t steps, warmup, decay;
    double rate, min_rate, weight_decay, clip;
    bool balanced, help;
    int format;
};

static int parse(struct arguments *a, int argc, char **argv, const struct world *world, struct err *err)
{
    const struct opt table[] = {
        {"model", OPT_STRING, &a->job.model, 0, 0, NULL, "FILE", "config.json"},
        {"plan", OPT_STRING, &a->job.plan, 0, 0, NULL, "FILE", "plan.json"},
        {"device", OPT_CHOICE, &a->job.device, 0, 0, job_devices, "D",
         "cpu (default), cuda, or paced: sleeps for the predicted time of every op"},
        {"share-gpu", OPT_FLAG, &a->job.share_gpu, 0, 0, NULL, NULL,
         "cuda: ranks may share a GPU, and talk by way of the host"},
        {"cluster", OPT_STRING, &a->cluster, 0, 0, NULL, "FILE", "hw.json: also print what plansim predicts"},
        {"profile", OPT_STRING, &a->profile, 0, 0, NULL, "FILE", "a profile over the built-in one, for the prediction"},
        {"forward-ms", OPT_DOUBLE, &a->forward_ms, 0, 1e6, NULL, "X",
         "paced: F of one rank and micro-batch (default: priced by --cluster)"},
        {"backward-ms", OPT_DOUBLE, &a->backward_ms, 0, 1e6, NULL, "X", "paced: B (gradient of the input)"},
        {"wgrad-ms", OPT_DOUBLE, &a->wgrad_ms, 0, 1e6, NULL, "X", "paced: W (gradient of the weights)"},
        {"steps", OPT_INT, &a->steps, 1, 1e9, NULL, "N", "steps (default 10)"},
        {"data", OPT_STRING, &a->job.data, 0, 0, NULL, "FILE", "words (.txt: bytes), or synthetic (default)"},
        {"data-bits", OPT_INT, &a->job.data_bits, 8, 32, NULL, "N",
         "8, 16 or 32: width of the file's words (default: by its name, 16)"},
        {"seed", OPT_INT, &a->job.seed, 0, 1e15, NULL, "N", "of first weights and synthetic data (default 1)"},
        {"lr", OPT_DOUBLE, &a->rate, 0, 10, NULL, "X", "learning rate (default 0.001)"},
        {"min-lr", OPT_DOUBLE, &a->min_rate, 0, 10, NULL, "X", "at the end of the decay (default 0)"},
        {"warmup", OPT_INT, &a->warmup, 0, 1e9, NULL, "N", "steps of linear warm-up (default 0)"},
        {"decay", OPT_INT, &a->decay, 0, 1e9, NULL, "N", "steps of cosine decay (default 0: constant)"},
        {"weight-decay", OPT_DOUBLE, &a->weight_decay, 0, 10, NULL, "X", "of matrices (default 0.1)"},
        {"clip", OPT_DOUBLE, &a->clip, 0, 1e9, NULL, "X", "largest global gradient norm, 0 = any (default 1)"},
        {"bf16", OPT_FLAG, &a->job.bf16, 0, 0, NULL, NULL,
         "round stored weights and activations to bfloat16 (sums stay fp32), and with the plan's precision fp8 the "
         "operands of linears to 8 bits"},
        {"balanced", OPT_FLAG, &a->balanced, 0, 0, NULL, NULL, "experts in turn instead of the router's choice"},
        {"kernels", OPT_CHOICE, &a->job.kernels, 0, 0, job_kernels, "NAME", "cpu (default) or reference"},
        {"threads", OPT_INT, &a->job.threads, 1, 1024, NULL, "N", "per rank (default 1)"},
        {"max-memory", OPT_STRING, &a->memory, 0, 0, NULL, "SIZE",
         "most that a rank's buffers may take, such as 2GiB (default: its share of the host)"},
        {"trace", OPT_STRING, &a->trace, 0, 0, NULL, "FILE", "Chrome/Perfetto trace of the last step"},
        {"checkpoint", OPT_STRING, &a->checkpoint, 0, 0, NULL, "DIR", "write a checkpoint there after the last step"},
        {"checkpoint-every", OPT_INT, &a->checkpoint_every, 1, 1e9, NULL, "N", "and after every N steps"},
        {"resume", OPT_STRING, &a->resume, 0, 0, NULL, "DIR",
         "go on from the latest checkpoint there, whatever plan wrote it"},
        {"format", OPT_CHOICE, &a->format, 0, 0, formats, "F", "table (default), json"},
        {NULL, OPT_FLAG, NULL, 0, 0, NULL, NULL, NULL},
    };
    int n = 0, result = opt_parse(table, argc, argv, NULL, 0, &n, &a->help, err);
    if (a->help && world->rank == 0)
        opt_print_help(stdout, "mpirun -np N planexec run --model FILE --plan FILE [OPTION]...",
                       "Trains a model by a plan and prints loss and time of every step; then the median step, the\n"
                       "pipeline's bubble, time in communication, the most memory that a rank's buffers took.\n"
                       "Arithmetic is fp32 on the CPU, whatever precision the plan says; --bf16 emulates its rounding.\n"
                       "On cuda it is bf16, and with the plan's precision fp8 linears of layers are in 8 bits.",
                       table, "mpirun -np 4 planexec run --model tiny.json --plan tp2-pp2.json --steps 20");
    if (result == 0 && !a->help && (!a->job.model || !a->job.plan))
        return err_add(err, "--model and --plan are needed");
    return result;
}

static double tokens_per_step(const struct plan *plan)
{
    return (double)(plan->global_batch * plan->seq_len);
}

static void print_step(const struct trainer *t, const struct step_result *r, int64_t step)
{
    printf("step %lld  loss %.6f  %.4f s  %.0f tokens/s  gradient norm %.4f%s\n", (long long)step, r->loss,
           r->step_time_s, tokens_per_step(&t->plan) / r->step_time_s, r->optimizer.gradient_norm,
           r->optimizer.skipped ? "  SKIPPED: not finite" : "");
    fflush(stdout);
}

static double off(double predicted, double measured)
{
    return measured > 0 ? 100 * (predicted / measured - 1) : 0;
}

static void print_predicted(const struct measurement *m, const struct predicted *p)
{
    printf("predicted step %.4f s (%+.1f %%), bubble %.1f %%, peak memory %.1f MiB (%+.1f %%)\n", p->step_time_s,
           off(p->step_time_s, m->median_step_time_s), 100 * p->bubble_fraction, p->peak_bytes / 1048576,
           off(p->peak_bytes, (double)m->peak_bytes));
}

static void print_summary(const struct measurement *m, const struct trainer *t, const struct predicted *p)
{
    char name[256];
    struct op_kind_row row[OP_KIND_ROWS_MAX];
    printf("\n%s on %d ranks, device %s\n", plan_format(&t->plan, name, sizeof name), m->ranks, t->device.name);
    printf("median step %.4f s, bubble %.1f %%, peak memory %.1f MiB (rank %d)\n", m->median_step_time_s,
           100 * m->bubble_fraction, (double)m->peak_bytes / 1048576, m->peak_rank);
    if (p)
        print_predicted(m, p);
    op_kinds_print(row, op_kinds_fill(m, &t->program, t->plan.zero, p, row), p != NULL);
    printf("communication, mean seconds and MiB of a rank and step:");
    for (int g = 0; g < WORLD_GROUPS; g++)
        if (m->group[g].sent_bytes > 0)
            printf("  %s %.4f s %.2f", world_group_names[g], m->group[g].seconds, m->group[g].sent_bytes / 1048576);
    putchar('\n');
    if (!t->paced && strcmp(t->device.name, "cpu") == 0 && m->cpu_share < 0.97)
        printf("a rank had its core for %.0f %% of the time only: these seconds are not the machine's\n", 100 * m->cpu_share);
    if (t->optimizer.skipped > 0)
        printf("%lld steps skipped: gradients were not finite\n", (long long)t->optimizer.skipped);
    if (m->loss_spikes > 0)
        printf("%d loss spikes\n", m->loss_spikes);
    if (m->unmatched_bytes != 0)
        printf("bytes sent and received differ by %.0f\n", m->unmatched_bytes);
}

/* null where there is no prediction */
static void put_predicted(struct json *root, const char *key, const struct predicted *p, double value)
{
    if (p)
        json_put_number(root, key, value);
    else
        json_put_null(root, key);
}

/* Of each rank, as a prediction counts them: no recomputation, half of the attention. */
static double model_flop_per_s(const struct measurement *m, const struct trainer *t)
{
    struct model_flops flops;
    model_count_flops(t->executor.model, t->plan.seq_len, &flops);
    return flops.training * tokens_per_step(&t->plan) / m->median_step_time_s / m->ranks;
}

static void put_op_kinds(struct json *root, const struct measurement *m, const struct trainer *t,
                         const struct predicted *p)
{
    struct op_kind_row row[OP_KIND_ROWS_MAX];
    op_kinds_put(root, "op_kinds", row, op_kinds_fill(m, &t->program, t->plan.zero, p, row), p != NULL);
}

static void print_json(const struct measurement *m, const struct trainer *t, const struct predicted *p,
                       struct json *steps)
{
    struct json *root = json_new_object(), *kinds, *groups;
    json_put(root, "steps", steps);
    json_put_number(root, "median_step_time_s", m->median_step_time_s);
    put_predicted(root, "predicted_step_time_s", p, p ? p->step_time_s : 0);
    put_predicted(root, "error", p, p ? p->step_time_s / m->median_step_time_s - 1 : 0);
    json_put_number(root, "bubble_fraction", m->bubble_fraction);
    put_predicted(root, "predicted_bubble_fraction", p, p ? p->bubble_fraction : 0);
    json_put_int(root, "peak_memory_bytes", m->peak_bytes);
    json_put_int(root, "reserved_memory_bytes", t->device.bytes_reserved_peak); /* by the allocator, rank 0 */
    put_predicted(root, "predicted_peak_memory_bytes", p, p ? p->peak_bytes : 0);
    json_put_int(root, "ranks", m->ranks);
    json_put_string(root, "device", t->device.name);
    kinds = json_put_object(root, "time_s");
    for (int k = 0; k < MEASURE_KINDS; k++)
        json_put_number(kinds, measure_kind_names[k], m->kind_s[k]);
    if (p) {
        const double values[] = {p->forward_s, p->backward_s, p->wait_s, p->end_s};
        static const char *const names[] = {"forward", "backward", "wait", "optimizer"};
        kinds = json_put_object(root, "predicted_time_s");
        for (int k = 0; k < 4; k++)
            json_put_number(kinds, names[k], values[k]);
    }
    put_op_kinds(root, m, t, p);
    json_put_number(root, "model_tflops_per_gpu", model_flop_per_s(m, t) * 1e-12);
    json_put_number(root, "cpu_share", m->cpu_share);
    groups = json_put_object(root, "communication");
    for (int g = 0; g < WORLD_GROUPS; g++) {
        struct json *group = json_put_object(groups, world_group_names[g]);
        json_put_number(group, "seconds", m->group[g].seconds);
        json_put_number(group, "waited_s", m->group[g].waited_s);
        json_put_number(group, "sent_bytes", m->group[g].sent_bytes);
        json_put_number(group, "received_bytes", m->group[g].received_bytes);
    }
    json_put_number(root, "unmatched_bytes", m->unmatched_bytes);
    json_put_int(root, "skipped_steps", t->optimizer.skipped);
    json_put_int(root, "loss_spikes", m->loss_spikes);
    char *text = json_print(root);
    fputs(text, stdout);
    free(text);
    json_free(root);
}

static void push_step(struct json *steps, const struct trainer *t, const struct step_result *r)
{
    struct json *step = json_new_object();
    json_put_number(step, "loss", r->loss);
    json_put_number(step, "step_time_s", r->step_time_s);
    json_put_number(step, "tokens_per_s", tokens_per_step(&t->plan) / r->step_time_s);
    json_put_number(step, "gradient_norm", r->optimizer.gradient_norm);
    json_put_bool(step, "skipped", r->optimizer.skipped);
    json_push(steps, step);
}

static int save(const struct arguments *a, const struct trainer *t, int64_t done)
{
    struct err err = {0};
    bool due = done == a->steps || (a->checkpoint_every > 0 && done % a->checkpoint_every == 0);
    if (!a->checkpoint || !due || checkpoint_save(t, a->checkpoint, &err) == 0)
        return 0;
    exec_print(t->executor.world, "run", "", &err);
    return -1;
}

static int train(const struct arguments *a, struct trainer *t, struct measurement *m, struct json *steps, int rank)
{
    for (int64_t i = 0; i < a->steps; i++) {
        struct step_result result;
        trainer_gradients(t, &result);
        trainer_update(t, &result);
        measure_step(m, t, &result);
        if (rank == 0 && a->format == 0)
            print_step(t, &result, t->optimizer.step + t->optimizer.skipped);
        push_step(steps, t, &result);
        if (save(a, t, i + 1) < 0)
            return -1;
    }
    measure_end(m, t);
    return 0;
}

static int write_trace(const struct arguments *a, const struct trainer *t, struct measurement *m, int rank)
{
    struct err err = {0};
    char name[256];
    struct trace_options options = {.title = plan_format(&t->plan, name, sizeof name),
                                    .us_per_tick = 1e-6,
                                    .stages_per_chunk = 1.0 / t->program.chunks};
    if (!a->trace || rank != 0 || trace_write(a->trace, &t->program, &m->timeline, NULL, &options, &err) == 0)
        return EXIT_ANSWERED;
    fprintf(stderr, "planexec run: %s\n", err.text);
    return EXIT_MACHINE;
}

static void set_optimizer(const struct arguments *a, struct optimizer_state *o)
{
    o->learning_rate = a->rate;
    o->min_learning_rate = a->min_rate;
    o->warmup_steps = a->warmup;
    o->decay_steps = a->decay;
    o->weight_decay = a->weight_decay;
    o->clip = a->clip;
}

static int price(struct pacing *ret, const struct arguments *a, const struct trainer *t, struct err *err)
{
    struct profile *profile = NULL;
    struct cluster cluster;
    struct stack stack;
    struct err warn = {0};
    int result = -1;
    if (a->forward_ms + a->backward_ms + a->wgrad_ms > 0) {
        pacing_equal(ret, &t->program, a->forward_ms * 1e-3, a->backward_ms * 1e-3, a->wgrad_ms * 1e-3);
        return 0;
    }
    if (!a->cluster)
        return err_add(err, "--device paced needs --cluster, or --forward-ms, --backward-ms and --wgrad-ms");
    if (profile_open(NULL, &profile, err) == 0 && (!a->profile || profile_layer(profile, a->profile, err) == 0) &&
        cluster_load(a->cluster, profile, &cluster, &warn, err) == 0 &&
        profile_stack(profile, t->plan.stack, &stack, err) == 0) {
        pacing_price(ret, &t->program, t->executor.model, &cluster, &t->plan, &stack);
        result = 0;
    }
    profile_close(profile);
    return result;
}

/* Rank 0 asks plansim; NULL when it was not wanted or did not answer (then a warning says why). */
static const struct predicted *ask_plansim(const struct arguments *a, int rank, struct predicted *ret)
{
    struct err err = {0};
    if (!a->cluster || rank != 0)
        return NULL;
    if (predicted_load(a->job.model, a->job.plan, a->cluster, a->profile, ret, &err) == 0)
        return ret;
    fprintf(stderr, "planexec run: warning: %s\n", err.text);
    return NULL;
}

static int run(const struct arguments *a, struct job *job, struct world *world)
{
    struct trainer t;
    struct measurement m;
    struct predicted answer;
    struct pacing pacing = {0};
    struct err err = {0};
    struct trainer_parts parts = {&job->model,           &job->arch,  &job->plan,  world,   &job->data, &job->device,
                                  (uint64_t)a->job.seed, a->balanced, a->job.bf16, job->fp8};
    int result = trainer_init(&t, &parts, &err) < 0 || (a->job.device == JOB_PACED && price(&pacing, a, &t, &err) < 0) ? -1 : 0;
    if (!exec_all(world, "run", result, &err))
        return EXIT_INPUT;
    result = (a->trace && file_check_output(a->trace, "--trace", &err) < 0) || (a->checkpoint && checkpoint_prepare(a->checkpoint, &err) < 0) ? -1 : 0;
    if (!exec_all(world, "run", result, &err))
        return EXIT_MACHINE;
    const struct predicted *predicted = ask_plansim(a, world->rank, &answer);
    if (a->job.device == JOB_PACED)
        t.device.name = "paced";
    trainer_start(&t, a->job.device == JOB_PACED ? &pacing : NULL);
    set_optimizer(a, &t.optimizer);
    if (a->resume && checkpoint_load(&t, a->resume, &err) < 0) {
        exec_print(world, "run", "", &err);
        return EXIT_INPUT;
    }
    struct json *steps = json_new_array();
    measure_begin(&m, &t, a->steps);
    if (train(a, &t, &m, steps, world->rank) < 0)
        return EXIT_MACHINE;
    if (world->rank == 0 && a->format == 0)
        print_summary(&m, &t, predicted);
    if (world->rank == 0 && a->format == 1)
        print_json(&m, &t, predicted, steps);
    else
        json_free(steps);
    int code = write_trace(a, &t, &m, world->rank);
    measure_release(&m);
    trainer_release(&t);
    pacing_release(&pacing);
    return code;
}

int cmd_run(struct world *world, int argc, char **argv)
{
    struct arguments a = {.job = {.data = "synthetic", .seed = 1, .threads = 1},
                          .steps = 10,
                          .rate = 1e-3,
                          .weight_decay = 0.1,
                          .clip = 1};
    struct job job;
    struct err err = {0};
    if (parse(&a, argc, argv, world, &err) < 0) {
        exec_print(world, "run", "", &err);
        return EXIT_USAGE;
    }
    if (a.help)
        return EXIT_ANSWERED;
    double limit = 0;
    if (a.memory && unit_parse_bytes(a.memory, &limit, &err) < 0) {
        exec_print(world, "run", "", &err);
        return EXIT_USAGE;
    }
    int code = job_load(&job, &a.job, "run", world);
    double options[] = {(double)a.steps, (double)a.warmup, (double)a.decay, a.rate, a.min_rate, a.weight_decay, a.clip, a.balanced, a.forward_ms,
                        a.backward_ms, a.wgrad_ms, (double)a.checkpoint_every, a.checkpoint != NULL, a.resume != NULL};
    if (code == EXIT_ANSWERED && !exec_same(world, "run", "options", sizeof options / sizeof *options, options))
        code = EXIT_USAGE;
    if (a.memory)
        job.device.bytes_limit = limit < 0x1p62 ? (int64_t)limit : INT64_MAX;
    if (code == EXIT_ANSWERED)
        code = run(&a, &job, world);
    job_release(&job);
    return code;
}
