#include "sim/calibrate_points.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cost/base/arena.h"
#include "cost/base/err.h"
#include "cost/base/json.h"
#include "cost/base/names.h"
#include "cost/base/unit.h"
#include "cost/profile.h"
#include "cost/profile_rows.h"
#include "cost/profile_store.h"
#include "sim/calibrate_answer.h"
#include "sim/calibrate_gemm.h"
#include "sim/calibrate_kernels.h"
#include "sim/calibrate_solve.h"
#include "sim/inputs.h"
#include "sim/writers/table.h"

int answer_add(struct answer *a, enum profile_section section, const char *name, const char *key, const char *field, double value, const char *unit)
{
    const struct profile_field *f = profile_field_find(section, field);
    struct profile_row row = {.section = section, .name = name, .key = key, .field = field, .unit = unit,
                              .value = strtod_rounded(value / profile_unit_factor(unit, f->dimension)), .low = (double)NAN, .high = (double)NAN,
                              .provenance = PROVENANCE_MEASURED, .date = a->date, .source = a->source};
    return profile_rows_add(&a->rows, &row, a->err);
}

/* What a table did not measure of a form stays what it was (`before`, 0 = unknown). Where the accelerator's own rows do
 * not say it, but its base's did, it is written: forms are taken whole from the first that has one. */
static int keep(struct answer *a, const struct profile *profile, enum profile_section section, const char *key, const char *field, double before)
{
    const char *name = a->arguments->accelerator;
    if (!(before > 0) || profile_rows_find(profile_rows_of(profile), section, name, key, field) != NULL)
        return 0;
    struct profile_row row = {.section = section, .name = name, .key = key, .field = field, .unit = "1", .value = before, .low = (double)NAN, .high = (double)NAN,
                              .provenance = PROVENANCE_ASSUMED, .date = a->date, .source = "not measured: that of the accelerator's base"};
    return profile_rows_add(&a->rows, &row, a->err);
}

/* ---- GEMM ---- */

/* Formats of kernels by the names that tables give them; of 8 bits also fp8_block, fp8-static, fp8+cast, ... */
static const struct { const char *name; enum rate rate; } dtypes[] = {
    {"bf16", RATE_16BIT}, {"bfloat16", RATE_16BIT}, {"fp16", RATE_16BIT}, {"float16", RATE_16BIT}, {"half", RATE_16BIT}, {"fp32", RATE_FP32},
    {"tf32", RATE_TF32}, {"fp8", RATE_FP8}, {"mxfp8", RATE_FP8}, {"nvfp4", RATE_FP4}};
enum { DTYPES = sizeof dtypes / sizeof *dtypes };

/* Which rows to take, and the rate of their kernels; -1 with a sentence for a --dtype that is none. */
static int find_choice(struct answer *a, struct kernel_choice *ret, enum rate *ret_rate)
{
    const struct points_arguments *p = a->arguments;
    const char *names[DTYPES + 1] = {NULL};
    char known[200];
    *ret = (struct kernel_choice){p->dtype ? p->dtype : "bf16", p->gpu ? p->gpu : ""};
    for (int i = 0; i < DTYPES; i++) {
        names[i] = dtypes[i].name;
        *ret_rate = dtypes[i].rate;
        if (strcmp(dtypes[i].name, ret->dtype) == 0)
            return 0;
    }
    *ret_rate = RATE_FP8;
    if (strncmp(ret->dtype, "fp8", 3) == 0 && strchr("-_+", ret->dtype[3]))
        return 0;
    a->bad_option = true;
    return err_add(a->err, "--dtype '%s' is none of %s, or fp8 with what kind it is (fp8_block)", ret->dtype, names_join(names, known, sizeof known));
}

/* Every number that the formula has, so that none of a form below it stays: no throttle, and no tiles where none pay. */
static int add_gemm(struct answer *a, const struct gemm_fit *fit, enum rate rate)
{
    const char *name = a->arguments->accelerator, *key = profile_rate_names[rate];
    int bad = answer_add(a, SECTION_GEMM, name, key, "eff", fit->form.eff, "1") | answer_add(a, SECTION_GEMM, name, key, "t0_s", fit->form.t0_s, "us") |
              answer_add(a, SECTION_GEMM, name, key, "pad_m", fit->form.pad_m, "1") | answer_add(a, SECTION_GEMM, name, key, "pad_n", fit->form.pad_n, "1") |
              answer_add(a, SECTION_GEMM, name, key, "pad_k", fit->form.pad_k, "1");
    bad |= answer_add(a, SECTION_GEMM, name, key, "round_m", fit->form.round_m, "1") | answer_add(a, SECTION_GEMM, name, key, "tail", fit->form.tail, "1") |
           answer_add(a, SECTION_GEMM, name, key, "throttle", fit->form.throttle, "1") | answer_add(a, SECTION_GEMM, name, key, "throttle_s", fit->form.throttle_s, "us");
    if (fit->n_sustained > 0)
        bad |= answer_add(a, SECTION_ACCELERATOR, name, "", rate == RATE_16BIT ? "sustained" : "sustained_low", fit->sustained, "1");
    return bad;
}

static void print_gemm(const struct gemm_fit *fit, const struct accelerator *accelerator, enum rate rate)
{
    char left[240];
    printf("GEMM of %s, %s: t = %.3g us + 2 (m+%.3g)(n+%.3g)(k+%.3g) / (%.4g TFLOP/s x %.3f)\n", accelerator->name, profile_rate_names[rate],
           fit->form.t0_s * 1e6, fit->form.pad_m, fit->form.pad_n, fit->form.pad_k, accelerator->peak_flop_per_s[rate] * 1e-12, fit->form.eff);
    if (fit->form.tail > 0)
        printf("m rounded %.2f of the way to whole tiles of 128; %.2f of the last wave's tail paid\n", fit->form.round_m, fit->form.tail);
    printf("%d shapes, |error| median %.1f %%, p90 %.1f %%", fit->n, 100 * fit->median, 100 * fit->p90);
    if (fit->left_out > 0)
        printf("; rows left out: %s", gemm_faults(fit, left, sizeof left));
    if (fit->n_sustained > 0)
        printf(".\nSustained: %.3f of the burst speed over %d long GEMMs", fit->sustained, fit->n_sustained);
    else
        printf(".\nSustained: %.3f of the burst speed, unchanged (no rows of mode sustained)", accelerator->sustained);
    printf(".\n");
}

static struct json *gemm_to_json(const struct gemm_fit *fit)
{
    struct json *root = json_new_object();
    const struct { const char *name; double value; } numbers[] = {
        {"eff", fit->form.eff}, {"t0_s", fit->form.t0_s}, {"pad_m", fit->form.pad_m}, {"pad_n", fit->form.pad_n}, {"pad_k", fit->form.pad_k},
        {"round_m", fit->form.round_m}, {"tail", fit->form.tail},
        {"median_error", fit->median}, {"p90_error", fit->p90}, {"sustained", fit->sustained}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        json_put_number(root, numbers[i].name, numbers[i].value);
    json_put_int(root, "points", fit->n);
    json_put_int(root, "left_out", fit->left_out);
    json_put_int(root, "sustained_points", fit->n_sustained);
    return root;
}

/* The accelerator that the points belong to. */
static int find_accelerator(struct answer *a, const struct profile *profile, enum rate rate, struct accelerator *ret)
{
    const struct points_arguments *p = a->arguments;
    if (profile_accelerator(profile, p->accelerator, ret, a->err) < 0) {
        a->bad_option = true;
        return -1;
    }
    return ret->peak_flop_per_s[rate] > 0 ? 0 : err_add(a->err, "accelerator '%s' has no %s rate", p->accelerator, profile_rate_names[rate]);
}

static int run_gemm(struct answer *a, const struct profile *profile, struct arena *arena, struct json *root)
{
    const struct points_arguments *p = a->arguments;
    struct accelerator accelerator;
    struct gemm_fit fit;
    struct kernel_choice choice;
    enum rate rate;
    if (find_choice(a, &choice, &rate) < 0 || find_accelerator(a, profile, rate, &accelerator) < 0 ||
        calibrate_gemm(p->gemm, &accelerator, rate, &choice, arena, &fit, a->err) < 0)
        return -1;
    if (p->format == FORMAT_TABLE)
        print_gemm(&fit, &accelerator, rate);
    json_put(root, "gemm", gemm_to_json(&fit));
    a->gemm = fit.form;
    return add_gemm(a, &fit, rate) | keep(a, profile, SECTION_GEMM, profile_rate_names[rate], "wgrad", accelerator.gemm[rate].wgrad);
}

/* ---- attention ---- */

static int add_attention(struct answer *a, const struct profile *profile, const struct accelerator *accelerator, const struct attention_fit *fit)
{
    const char *name = a->arguments->accelerator;
    const struct { const char *field; double value; const char *unit; } numbers[] = {{"eff", fit->form.eff, "1"}, {"s0", fit->form.s0, "1"},
        {"waves", fit->form.waves, "1"}, {"mem_eff", fit->form.mem_eff, "1"}, {"t0_s", fit->form.t0_s, "us"}, {"backward", fit->form.backward, "1"}};
    char key[16];
    int bad = 0;
    snprintf(key, sizeof key, "%d", fit->form.head_dim);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (numbers[i].value > 0)
            bad |= answer_add(a, SECTION_ATTENTION, name, key, numbers[i].field, numbers[i].value, numbers[i].unit);
    for (int i = 0; i < accelerator->n_attention && fit->n_backward == 0; i++)
        if (accelerator->attention[i].head_dim == fit->form.head_dim)
            bad |= keep(a, profile, SECTION_ATTENTION, key, "backward", accelerator->attention[i].backward);
    return bad;
}

static void print_attention(const struct attention_fit *fits, int n)
{
    static const char *const titles[] = {"points", "|error| median", "p90", "of peak", "s0", "waves", "of memory", "t0 us", "backward"};
    struct table *table = table_new("  ");
    table_column(table, "head width", TABLE_RIGHT);
    for (size_t i = 0; i < sizeof titles / sizeof *titles; i++)
        table_column(table, titles[i], TABLE_RIGHT);
    for (int i = 0; i < n; i++) {
        const struct attention_fit *f = &fits[i];
        table_cell(table, "%d", f->form.head_dim);
        table_cell(table, "%d", f->n);
        table_cell(table, "%.1f %%", 100 * f->median);
        table_cell(table, "%.1f %%", 100 * f->p90);
        table_cell(table, "%.3f", f->form.eff);
        table_cell(table, "%.3g", f->form.s0);
        table_cell(table, "%.3g", f->form.waves);
        table_cell(table, "%.3g", f->form.mem_eff);
        table_cell(table, "%.3g", f->form.t0_s * 1e6);
        table_cell(table, f->n_backward > 0 ? "%.2f of %d" : "unchanged", f->form.backward, f->n_backward);
    }
    puts("Causal attention forward: t = t0 + F (1 + s0/s)(1 + waves/W) / (peak x share) + bytes / (memory bandwidth x share)\n");
    table_print(table, stdout);
    table_free(table);
}

static int run_attention(struct answer *a, const struct profile *profile, struct arena *arena, struct json *root)
{
    enum { WIDTHS_MAX = 10 };
    struct accelerator accelerator;
    struct attention_fit fits[WIDTHS_MAX];
    struct kernel_choice choice;
    enum rate rate;
    int bad = 0, n = find_choice(a, &choice, &rate);
    if (n == 0 && rate != RATE_16BIT) {
        a->bad_option = true;
        n = err_add(a->err, "--dtype '%s': attention is priced in 16 bit; fit rows of bf16 or fp16", choice.dtype);
    }
    n = n < 0 ? n : find_accelerator(a, profile, RATE_16BIT, &accelerator);
    n = n < 0 ? n : calibrate_attention(a->arguments->attention, &accelerator, &choice, arena, fits, WIDTHS_MAX, a->err);
    if (n < 0)
        return -1;
    if (a->arguments->format == FORMAT_TABLE)
        print_attention(fits, n);
    struct json *list = json_put_array(root, "attention");
    for (int i = 0; i < n; i++) {
        struct json *item = json_new_object();
        const struct attention_form *f = &fits[i].form;
        const struct { const char *name; double value; } numbers[] = {{"eff", f->eff}, {"s0", f->s0}, {"waves", f->waves}, {"mem_eff", f->mem_eff},
            {"t0_s", f->t0_s}, {"backward", f->backward}, {"median_error", fits[i].median}, {"p90_error", fits[i].p90}};
        json_put_int(item, "head_dim", f->head_dim);
        for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++)
            json_put_number(item, numbers[k].name, numbers[k].value);
        json_put_int(item, "points", fits[i].n);
        json_put_int(item, "backward_points", fits[i].n_backward);
        json_push(list, item);
        bad |= add_attention(a, profile, &accelerator, &fits[i]);
    }
    return bad;
}

/* ---- experts ---- */

static int run_experts(struct answer *a, const struct profile *profile, struct arena *arena, struct json *root)
{
    struct accelerator accelerator;
    struct expert_fit fit;
    struct kernel_choice choice;
    enum rate rate;
    if (find_choice(a, &choice, &rate) < 0 || find_accelerator(a, profile, rate, &accelerator) < 0)
        return -1;
    if (a->gemm.eff > 0) /* its pads are theirs, too */
        accelerator.gemm[rate] = a->gemm;
    if (calibrate_experts(a->arguments->experts, &accelerator, rate, &choice, arena, &fit, a->err) < 0)
        return -1;
    const struct { const char *field; double value; const char *unit; } numbers[] = {{"eff", fit.form.eff, "1"}, {"pad_m", fit.form.pad_m, "1"},
        {"t0_s", fit.form.t0_s, "us"}, {"act_mem_eff", fit.form.act_mem_eff, "1"}, {"wgrad", fit.form.wgrad, "1"}};
    if (a->arguments->format == FORMAT_TABLE) {
        printf("Grouped GEMMs of %s, %s: t = %.3g us / 2 + 2 E (m+%.4g) n k / (%.4g TFLOP/s x %.3f)\n", accelerator.name, profile_rate_names[rate], fit.form.t0_s * 1e6,
               fit.form.pad_m, accelerator.peak_flop_per_s[rate] * 1e-12, fit.form.eff);
        printf("%d rows, |error| median %.1f %%, p90 %.1f %%; ", fit.n, 100 * fit.median, 100 * fit.p90);
        printf(fit.n_wgrad > 0 ? "weight gradient %.2f x forward over %d rows.\n" : "weight gradient unchanged.\n", fit.form.wgrad, fit.n_wgrad);
    }
    struct json *item = json_put_object(root, "experts");
    int bad = 0;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        json_put_number(item, numbers[i].field, numbers[i].value);
        if (numbers[i].value > 0)
            bad |= answer_add(a, SECTION_EXPERT, a->arguments->accelerator, profile_rate_names[rate], numbers[i].field, numbers[i].value, numbers[i].unit);
    }
    if (fit.n_wgrad == 0)
        bad |= keep(a, profile, SECTION_EXPERT, profile_rate_names[rate], "wgrad", accelerator.expert[rate].wgrad);
    json_put_number(item, "median_error", fit.median);
    json_put_number(item, "p90_error", fit.p90);
    json_put_int(item, "points", fit.n);
    json_put_int(item, "wgrad_points", fit.n_wgrad);
    return bad;
}

/* ---- all of them ---- */

static void print_answer(const struct answer *a, const struct json *root)
{
    if (a->arguments->format == FORMAT_JSON) {
        char *text = json_print(root);
        fputs(text, stdout);
        free(text);
    } else if (a->arguments->format == FORMAT_CSV) {
        puts(profile_csv_header);
        for (size_t i = 0; i < a->rows.n; i++)
            profile_csv_print(&a->rows.row[i], stdout);
    }
}

int calibrate_points(const struct points_arguments *arguments, const struct profile *profile, struct err *err)
{
    struct answer a = {.arguments = arguments, .err = err};
    struct arena arena = {0};
    struct json *root = json_new_object();
    const char *file = arguments->gemm ? arguments->gemm : arguments->attention ? arguments->attention : arguments->experts ? arguments->experts : arguments->nccl;
    time_t now = time(NULL);
    struct tm tm;
    gmtime_r(&now, &tm);
    strftime(a.date, sizeof a.date, "%Y-%m-%d", &tm);
    snprintf(a.source, sizeof a.source, "%s", arguments->source ? arguments->source : file);
    int result = arguments->gemm ? run_gemm(&a, profile, &arena, root) : 0;
    if (result == 0 && arguments->attention)
        result = run_attention(&a, profile, &arena, root);
    if (result == 0 && arguments->experts)
        result = run_experts(&a, profile, &arena, root);
    if (result == 0 && arguments->nccl)
        result = calibrate_log(&a, profile, &arena, root);
    if (result == 0)
        print_answer(&a, root);
    if (result == 0 && arguments->out && a.rows.n > 0) {
        profile_rows_sort(&a.rows, NULL, NULL);
        result = profile_store_write(arguments->out, &a.rows, a.date, err);
    }
    json_free(root);
    profile_rows_release(&a.rows);
    arena_release(&arena);
    return result == 0 ? EXIT_ANSWERED : result == PROFILE_STORE_MACHINE ? EXIT_MACHINE : a.bad_option ? EXIT_USAGE : EXIT_INPUT;
}
