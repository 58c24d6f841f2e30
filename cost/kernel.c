/* Kernel times from the fitted forms.
 *
 * GEMM (P5, P7, RT9; fits.md section 1): t = t0 + 2(m+a)(n+b)(k+c)/(P e), optionally
 * with the last wave's idle tiles and times (1 + t/t1)^d; then divided by `sustained`,
 * because forms and measured points are of bursts and training runs at the power cap (fits.md section 2).
 * Attention: fits.md section 4. Grouped GEMM: section 5 (E5): below ~300 tokens
 * per expert the pad on m is the cost of streaming the expert's weights. Their wgrad streams the gradients instead. */
#include "cost/kernel.h"

#include <math.h>

enum rate kernel_rate(const struct accelerator *accelerator, enum rate rate)
{
    const double *peak = accelerator->peak_flop_per_s;
    if (peak[rate] > 0)
        return rate;
    return rate == RATE_TF32 && peak[RATE_FP32] > 0 && peak[RATE_FP32] < peak[RATE_16BIT] ? RATE_FP32 : RATE_16BIT;
}

static double sustained(const struct accelerator *accelerator, enum rate rate)
{
    bool low = rate == RATE_FP8 || rate == RATE_FP4;
    return low && accelerator->sustained_low > 0 ? accelerator->sustained_low : accelerator->sustained;
}

#define GEMM_TILE 128.0

/* FLOP of the idle part of the last wave of tiles that is paid; below 0.3 waves less and less. At most the share by which m
 * is rounded to whole tiles: else a tile more could take less time. */
static double tail(const struct gemm_form *form, double multiprocessors, double m, double n, double k)
{
    double waves = ceil(m / GEMM_TILE) * n / GEMM_TILE / multiprocessors, share = fmin(form->tail, form->round_m);
    return share * (ceil(waves) - waves) * fmin(1, waves / 0.3) * 2 * GEMM_TILE * GEMM_TILE * multiprocessors * (k + form->pad_k);
}

double kernel_form_s(const struct gemm_form *form, double peak, double multiprocessors, double m, double n, double k)
{
    double whole = form->round_m > 0 ? m + form->round_m * (GEMM_TILE * ceil(m / GEMM_TILE) - m) : m;
    double product = 2 * (whole + form->pad_m) * (n + form->pad_n) * (k + form->pad_k);
    double t = form->t0_s + (form->tail > 0 ? product + tail(form, multiprocessors, m, n, k) : product) / (peak * form->eff);
    if (form->throttle > 0)
        t *= pow(1 + t / form->throttle_s, form->throttle);
    return t;
}

double kernel_gemm_s(const struct accelerator *accelerator, enum rate rate, double m, double n, double k)
{
    if (m <= 0 || n <= 0 || k <= 0)
        return 0;
    rate = kernel_rate(accelerator, rate);
    double point = accelerator->points ? profile_point_s(accelerator->points, accelerator->name, "gemm", rate, (int64_t)m, (int64_t)n, (int64_t)k) : 0;
    if (point > 0)
        return point / sustained(accelerator, rate);
    const struct gemm_form *form = &accelerator->gemm[rate];
    if (form->eff <= 0)
        form = &accelerator->gemm[RATE_16BIT];
    return kernel_form_s(form, accelerator->peak_flop_per_s[rate], accelerator->sm_count, m, n, k) / sustained(accelerator, rate);
}

double kernel_wgrad_s(const struct accelerator *accelerator, enum rate rate, double m, double n, double k, double factor)
{
    enum rate usable = kernel_rate(accelerator, rate);
    double point = accelerator->points ? profile_point_s(accelerator->points, accelerator->name, "wgrad", usable, (int64_t)m, (int64_t)n, (int64_t)k) : 0;
    return point > 0 ? point / sustained(accelerator, usable) : kernel_gemm_s(accelerator, rate, m, n, k) * factor;
}

/* The form whose head width is nearest on a log scale. */
static const struct attention_form *attention_form(const struct accelerator *accelerator, double head_dim)
{
    const struct attention_form *best = &accelerator->attention[0];
    for (int i = 1; i < accelerator->n_attention; i++)
        if (fabs(log(accelerator->attention[i].head_dim / head_dim)) < fabs(log(best->head_dim / head_dim)))
            best = &accelerator->attention[i];
    return best;
}

double kernel_attention_s(const struct accelerator *accelerator, const struct attention_shape *s)
{
    const struct attention_form *form = attention_form(accelerator, s->qk_dim);
    double flop = 2 * s->batch * s->heads * s->queries * s->span * (s->qk_dim + s->v_dim);
    double bytes = 2 * s->batch * (s->heads * s->queries * (s->qk_dim + s->v_dim) + 2 * s->kv_heads * s->keys * (s->qk_dim + s->v_dim));
    double waves = s->batch * s->heads * ceil(s->queries / 128) / accelerator->sm_count;
    double time = form->t0_s +
                  flop * (1 + form->s0 / s->keys) * (1 + form->waves / waves) /
                      (accelerator->peak_flop_per_s[RATE_16BIT] * form->eff * accelerator->sustained) +
                  bytes / (form->mem_eff * accelerator->hbm_bytes_per_s);
    return time;
}

double kernel_attention_backward(const struct accelerator *accelerator, const struct attention_shape *shape)
{
    if (shape->qk_dim > shape->v_dim)
        return accelerator->attention_mla_backward;
    return attention_form(accelerator, shape->qk_dim)->backward;
}

double kernel_pointwise_s(const struct accelerator *accelerator, double bytes)
{
    return bytes / (accelerator->mem_eff * accelerator->hbm_bytes_per_s) + accelerator->kernel_latency_s;
}

/* One GEMM per expert, side by side on several streams: the dense form's pads on n and k, efficiency and pad on m of the
 * grouped kernels, throttled over all of them together, one start for four (TransformerEngine's streams). */
static double grouped_s(const struct accelerator *a, enum rate rate, double experts, double m, double n, double k)
{
    rate = kernel_rate(a, rate);
    const struct expert_form *own = a->expert[rate].eff > 0 ? &a->expert[rate] : &a->expert[RATE_16BIT];
    const struct gemm_form *dense = a->gemm[rate].eff > 0 ? &a->gemm[rate] : &a->gemm[RATE_16BIT];
    struct gemm_form all = {.eff = own->eff, .pad_n = dense->pad_n, .pad_k = dense->pad_k, .throttle = dense->throttle, .throttle_s = dense->throttle_s};
    return own->t0_s / 2 + experts * dense->t0_s / 4 + kernel_form_s(&all, a->peak_flop_per_s[rate], a->sm_count, experts * m, n, k) / sustained(a, rate);
}

double kernel_grouped_gemm_s(const struct accelerator *accelerator, enum rate rate, double experts, double tokens, double width_in,
                             double width_out)
{
    const struct expert_form *form = &accelerator->expert[accelerator->expert[rate].eff > 0 ? rate : RATE_16BIT];
    if (experts <= 1) /* nothing to group */
        return kernel_gemm_s(accelerator, rate, tokens, width_out, width_in);
    return grouped_s(accelerator, rate, experts, tokens + form->pad_m, width_out, width_in);
}

/* Share of the memory's rate that a GEMM's epilogue reaches: 256 experts of 4096 x 7168 with 128 tokens each take 11.0 ms
 * with gradients in fp32, 6.0 in 16 bit (SimuMax 4dcaae5, TransformerEngine on B200, 8 TB/s). */
#define EPILOGUE_MEMORY 0.85

double kernel_gradient_stream_s(const struct accelerator *accelerator, double elements, double gradient_bytes)
{
    return 2 * gradient_bytes * elements / (EPILOGUE_MEMORY * accelerator->hbm_bytes_per_s);
}

double kernel_grouped_wgrad_s(const struct accelerator *accelerator, enum rate rate, double experts, double tokens, double width_in,
                              double width_out, double gradient_bytes)
{
    const struct expert_form *form = &accelerator->expert[accelerator->expert[rate].eff > 0 ? rate : RATE_16BIT];
    double factor = form->wgrad > 0 ? form->wgrad : 1;
    return factor * grouped_s(accelerator, rate, experts, tokens, width_out, width_in) +
           kernel_gradient_stream_s(accelerator, experts * width_in * width_out, gradient_bytes);
}
