#include "sim/calibrate_kernels.h"

#include <math.h>
#include <string.h>

#include "cost/base/arena.h"
#include "cost/base/csv.h"
#include "cost/base/err.h"
#include "cost/base/names.h"
#include "cost/base/unit.h"
#include "cost/kernel.h"
#include "sim/calibrate_form.h"

/* ---- reading ---- */

static double number(const struct csv *csv, size_t row, const char *column)
{
    double value;
    int at = csv_column(csv, column);
    return at >= 0 && unit_parse_double(csv_cell(csv, row, at), 1e-9, 1e15, &value, NULL) == 0 ? value : 0;
}

static const char *text(const struct csv *csv, size_t row, const char *column)
{
    return csv_cell(csv, row, csv_column(csv, column));
}

/* An empty cell, or a column that is not there, contradicts nothing. */
static bool says(const struct csv *csv, size_t row, const char *column, const char *word)
{
    const char *cell = text(csv, row, column);
    return !*word || !*cell || strcmp(cell, word) == 0;
}

static bool chosen(const struct csv *csv, size_t row, const struct kernel_choice *choice)
{
    return says(csv, row, "dtype", choice->dtype) && says(csv, row, "gpu", choice->gpu) && says(csv, row, "dist", "balanced") && says(csv, row, "mode", "burst") &&
           strcmp(text(csv, row, "bad"), "1") != 0;
}

int kernel_choice_check(const struct csv *csv, const char *path, const struct kernel_choice *choice, struct err *err)
{
    enum { GPUS_MAX = 20 };
    const char *gpus[GPUS_MAX + 1] = {NULL};
    char list[400];
    int n = 0;
    for (size_t row = 0; row < csv->n_rows && n < GPUS_MAX; row++) {
        const char *gpu = text(csv, row, "gpu");
        if (*gpu && says(csv, row, "dtype", choice->dtype) && says(csv, row, "gpu", choice->gpu) && names_find(gpus, gpu) < 0)
            gpus[n++] = gpu;
    }
    if (n < 2)
        return 0;
    return err_add(err, "table '%s': rows of %d GPUs; state --gpu, one of %s", path, n, names_join(gpus, list, sizeof list));
}

/* ---- attention ---- */

enum { ATTENTION_PARAMETERS = 5, ATTENTION_ROWS_MIN = 6 }; /* log of eff, s0, waves, mem_eff, t0 */
static const double attention_prior[] = {-0.6, 4.6, -0.9, -0.2, -12.2};  /* 0.55, 100, 0.4, 0.8, 5 us */
static const double attention_sigma[] = {1, 1.5, 1, 0.5, 1};

struct core {
    double batch, seq, heads, kv_heads, dim;
};

static double attention_seconds(const double *x, const void *point, const void *context)
{
    const struct core *c = point;
    const struct accelerator *a = context;
    double flop = 2 * c->batch * c->heads * c->seq * c->seq * c->dim, waves = c->batch * c->heads * ceil(c->seq / 128) / a->sm_count;
    double bytes = 4 * c->batch * c->seq * c->dim * (c->heads + c->kv_heads);
    return exp(x[4]) + flop * (1 + exp(x[1]) / c->seq) * (1 + exp(x[2]) / waves) / (a->peak_flop_per_s[RATE_16BIT] * exp(x[0])) +
           bytes / (exp(x[3]) * a->hbm_bytes_per_s);
}

/* Causal: half of the scores. */
static double core_share(const struct core *c, const struct accelerator *a, double seconds)
{
    return 2 * c->batch * c->heads * c->seq * c->seq * c->dim / (seconds * a->peak_flop_per_s[RATE_16BIT]);
}

/* A row for each direction, or a column for each; 0 = not measured. */
static double core_us(const struct csv *csv, size_t row, bool forward)
{
    if (csv_column(csv, "forward_us") >= 0)
        return number(csv, row, forward ? "forward_us" : "backward_us");
    const char *direction = text(csv, row, "direction");
    bool same = forward ? !*direction || strcmp(direction, "fwd") == 0 : strcmp(direction, "bwd") == 0;
    return same ? number(csv, row, "time_us") : 0;
}

static bool read_core(const struct csv *csv, size_t row, const struct kernel_choice *choice, double dim, bool forward, struct core *ret)
{
    double v_dim = fmax(number(csv, row, "v_head_dim"), number(csv, row, "head_dim_v"));
    *ret = (struct core){number(csv, row, "batch"), number(csv, row, "seq"), number(csv, row, "heads"), number(csv, row, "kv_heads"), number(csv, row, "head_dim")};
    ret->kv_heads = ret->kv_heads > 0 ? ret->kv_heads : ret->heads;
    bool causal = strcmp(text(csv, row, "causal"), "0") != 0, square = !(v_dim > 0) || (v_dim <= ret->dim && v_dim >= ret->dim);
    return chosen(csv, row, choice) && causal && square && core_us(csv, row, forward) > 0 && ret->batch > 0 && ret->seq > 0 && ret->heads > 0 && ret->dim <= dim && ret->dim >= dim;
}

static int read_cores(const struct csv *csv, const struct kernel_choice *choice, double dim, bool forward, struct core *cores, double *seconds)
{
    int n = 0;
    for (size_t row = 0; row < csv->n_rows; row++)
        if (read_core(csv, row, choice, dim, forward, &cores[n]))
            seconds[n++] = core_us(csv, row, forward) * 1e-6;
    return n;
}

static int fit_width(const char *path, const struct csv *csv, const struct accelerator *accelerator, const struct kernel_choice *choice, struct core *cores, double *seconds,
                     struct arena *arena, double dim, struct attention_fit *ret, struct err *err)
{
    double x[FORM_PARAMETERS_MAX];
    struct form form = {ATTENTION_PARAMETERS, attention_prior, attention_sigma, attention_seconds, accelerator, cores, sizeof *cores, seconds, 0};
    form.n = ret->n = read_cores(csv, choice, dim, true, cores, seconds);
    if (ret->n < ATTENTION_ROWS_MIN)
        return 0;
    double *share = arena_array(arena, (size_t)ret->n, sizeof *share);
    for (int i = 0; i < ret->n; i++)
        share[i] = core_share(&cores[i], accelerator, seconds[i]);
    if (form_check_shares(path, share, ret->n, err) < 0)
        return -1;
    form_fit(&form, arena, x);
    form_errors(&form, x, arena, &ret->median, &ret->p90);
    if (form_check_eff(path, exp(x[0]), err) < 0)
        return -1;
    ret->form = (struct attention_form){.head_dim = (int)dim, .eff = exp(x[0]), .s0 = exp(x[1]), .waves = exp(x[2]), .mem_eff = exp(x[3]), .t0_s = exp(x[4]),
                                        .provenance = PROVENANCE_MEASURED};
    ret->n_backward = read_cores(csv, choice, dim, false, cores, seconds);
    for (int i = 0; i < ret->n_backward; i++)
        seconds[i] /= attention_seconds(x, &cores[i], accelerator);
    ret->form.backward = form_middle(seconds, ret->n_backward);
    return 0;
}

int calibrate_attention(const char *path, const struct accelerator *accelerator, const struct kernel_choice *choice, struct arena *arena,
                        struct attention_fit *ret, int max, struct err *err)
{
    static const double widths[] = {32, 64, 80, 96, 112, 128, 160, 192, 256, 512};
    struct csv csv;
    int n = 0, bad = 0;
    if (csv_load(path, &csv, err) < 0)
        return -1;
    bad = kernel_choice_check(&csv, path, choice, err);
    struct core *cores = arena_array(arena, csv.n_rows + 1, sizeof *cores);
    double *seconds = arena_array(arena, csv.n_rows + 1, sizeof *seconds);
    for (size_t i = 0; i < sizeof widths / sizeof *widths && n < max && bad == 0; i++) {
        ret[n] = (struct attention_fit){.n = 0};
        bad = fit_width(path, &csv, accelerator, choice, cores, seconds, arena, widths[i], &ret[n], err);
        n += ret[n].n >= ATTENTION_ROWS_MIN;
    }
    csv_release(&csv);
    if (bad != 0)
        return -1;
    return n > 0 ? n : err_add(err, "table '%s': no head width with %d causal forward rows (columns batch, seq, heads, head_dim, time_us)", path, ATTENTION_ROWS_MIN);
}

/* ---- experts ---- */

enum { WGRAD_BYTES = 4 }; /* gradients of the measured wgrad rows: added to fp32 */

enum { EXPERT_PARAMETERS = 5, EXPERT_ROWS_MIN = 3 }; /* share of eff_max (logit); log of pad_m, t0, activation and token bandwidth over memory's */
static const double expert_prior[] = {0.5, 5.3, -11.5, -0.2, -0.2}; /* 0.6, 200, 10 us, 0.8, 0.8 */
static const double expert_sigma[] = {1, 0.5, 1, 0.5, 0.5};
static const double eff_max = 0.95; /* of the peak: small groups are bound by the pad, which a fit could trade for more than the peak */

static double efficiency(double x)
{
    return eff_max / (1 + exp(-x));
}

/* One grouped GEMM, or a whole MLP: gate and up, activation, down, and the permutation. */
struct group {
    bool mlp;
    double experts, tokens, n, k; /* tokens of each expert; MLP: k hidden, n inner */
    double rows;                  /* MLP: tokens before routing */
};

struct expert_context {
    const struct accelerator *accelerator;
    enum rate rate;
};

static double expert_seconds(const double *x, const void *point, const void *context)
{
    const struct group *g = point;
    const struct expert_context *c = context;
    double rate = c->accelerator->peak_flop_per_s[c->rate] * efficiency(x[0]), hbm = c->accelerator->hbm_bytes_per_s;
    const struct gemm_form *dense = &c->accelerator->gemm[c->rate]; /* its pads on n and k, and its throttle (cost/kernel.c) */
    double product = 2 * g->experts * (g->tokens + exp(x[1])) * (g->n + dense->pad_n) * (g->k + dense->pad_k) / rate;
    if (dense->throttle > 0)
        product *= pow(1 + product / dense->throttle_s, dense->throttle);
    if (!g->mlp)
        return exp(x[2]) / 2 + g->experts * dense->t0_s / 4 + product;
    return exp(x[2]) + 3 * product + g->experts * g->tokens * (8 * g->k + 12 * g->n) / (exp(x[3]) * hbm) + 4 * g->rows * g->k / (exp(x[4]) * hbm);
}

static double group_share(const struct group *g, double peak, double seconds)
{
    return (g->mlp ? 3 : 1) * 2 * g->experts * g->tokens * g->n * g->k / (seconds * peak);
}

static bool read_group(const struct csv *csv, size_t row, const struct kernel_choice *choice, bool wgrad, struct group *ret)
{
    bool is_wgrad = strcmp(text(csv, row, "stage"), "wgrad") == 0;
    if (!chosen(csv, row, choice) || is_wgrad != wgrad || !(number(csv, row, "time_us") > 0))
        return false;
    *ret = (struct group){false, number(csv, row, "ng"), number(csv, row, "m"), number(csv, row, "n"), number(csv, row, "k"), 0};
    if (ret->experts > 0 && ret->tokens > 0 && ret->n > 0 && ret->k > 0)
        return true;
    double all = number(csv, row, "experts"), tp = fmax(1, number(csv, row, "tp")), ep = fmax(1, number(csv, row, "ep"));
    *ret = (struct group){true, all / ep, 0, number(csv, row, "inter") / tp, number(csv, row, "hidden"), number(csv, row, "tokens")};
    ret->tokens = all > 0 ? ret->rows * number(csv, row, "topk") / all : 0;
    return ret->experts > 0 && ret->tokens > 0 && ret->n > 0 && ret->k > 0;
}

static int read_groups(const struct csv *csv, const struct kernel_choice *choice, bool wgrad, struct group *groups, double *seconds)
{
    int n = 0;
    for (size_t row = 0; row < csv->n_rows; row++)
        if (read_group(csv, row, choice, wgrad, &groups[n]))
            seconds[n++] = number(csv, row, "time_us") * 1e-6;
    return n;
}

int calibrate_experts(const char *path, const struct accelerator *accelerator, enum rate rate, const struct kernel_choice *choice, struct arena *arena,
                      struct expert_fit *ret, struct err *err)
{
    struct csv csv;
    struct expert_context context = {accelerator, rate};
    double x[FORM_PARAMETERS_MAX];
    memset(ret, 0, sizeof *ret);
    if (csv_load(path, &csv, err) < 0)
        return -1;
    int result = kernel_choice_check(&csv, path, choice, err);
    struct group *groups = arena_array(arena, csv.n_rows + 1, sizeof *groups);
    double *seconds = arena_array(arena, csv.n_rows + 1, sizeof *seconds);
    struct form form = {EXPERT_PARAMETERS, expert_prior, expert_sigma, expert_seconds, &context, groups, sizeof *groups, seconds, 0};
    form.n = ret->n = read_groups(&csv, choice, false, groups, seconds);
    double *share = arena_array(arena, (size_t)ret->n + 1, sizeof *share);
    for (int i = 0; i < ret->n; i++)
        share[i] = group_share(&groups[i], accelerator->peak_flop_per_s[rate], seconds[i]);
    if (result < 0) {
        ret->n = 0;
    } else if (ret->n < EXPERT_ROWS_MIN) {
        result = err_add(err, "table '%s': %d rows of grouped GEMMs (ng, m, n, k, time_us) or expert MLPs (tokens, hidden, inter, topk, experts, time_us); at least %d are needed",
                         path, ret->n, EXPERT_ROWS_MIN);
    } else if (form_check_shares(path, share, ret->n, err) < 0) {
        result = -1;
    } else {
        form_fit(&form, arena, x);
        form_errors(&form, x, arena, &ret->median, &ret->p90);
        ret->form = (struct expert_form){.eff = efficiency(x[0]), .pad_m = exp(x[1]), .t0_s = exp(x[2]), .act_mem_eff = exp(x[3])};
        ret->n_wgrad = read_groups(&csv, choice, true, groups, seconds);
        x[1] = (double)-INFINITY; /* what follows streams gradients, not weights */
        for (int i = 0; i < ret->n_wgrad; i++) {
            double streamed = kernel_gradient_stream_s(accelerator, groups[i].experts * groups[i].n * groups[i].k, WGRAD_BYTES);
            seconds[i] = fmax(0.5, (seconds[i] - streamed) / expert_seconds(x, &groups[i], &context));
        }
        ret->form.wgrad = form_middle(seconds, ret->n_wgrad);
    }
    csv_release(&csv);
    return result;
}
