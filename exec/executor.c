#include "exec/executor.h"

#include <math.h>
#include <stdlib.h>

#include "exec/arch.h"
#include "exec/device.h"
#include "exec/fp8.h"
#include "exec/world.h"
#include "cost/model.h"
#include "cost/plan.h"
#include "kernels/kernels.h"

/* Ring attention gives rank r the pieces r and 2cp-1-r of 2cp: equal work under a causal mask. */
static int position_of(const struct plan *plan, int cp_rank, int i, int sequence)
{
    if (plan->cp == 1 || plan->context_parallel == CP_ULYSSES)
        return cp_rank * sequence + i;
    int piece = sequence / 2;
    return i < piece ? cp_rank * piece + i : (2 * plan->cp - 1 - cp_rank) * piece + i - piece;
}

static void fill_positions(struct executor *ex)
{
    int all = ex->plan->cp * ex->sequence;
    int *position = malloc((size_t)all * sizeof *position), *row = malloc((size_t)ex->tokens * sizeof *row);
    if (!position || !row)
        abort();
    for (int r = 0; r < ex->plan->cp; r++)
        for (int i = 0; i < ex->sequence; i++)
            position[r * ex->sequence + i] = position_of(ex->plan, r, i, ex->sequence);
    for (int t = 0; t < ex->tokens; t++)
        row[t] = position[ex->world->cp * ex->sequence + t / ex->batch];
    ex->position = device_ints(ex->device, all);
    ex->row_position = device_ints(ex->device, ex->tokens);
    ex->device->upload(ex->device, ex->position, position, (size_t)all * sizeof *position);
    ex->device->upload(ex->device, ex->row_position, row, (size_t)ex->tokens * sizeof *row);
    free(position);
    ex->host_row_position = row;
}

/* Cosine and sine of pair i at position p: of p times the pair's frequency. */
static void fill_angles(struct executor *ex)
{
    int half = ex->head_dim / 2;
    int64_t n = (int64_t)ex->tokens * half;
    float *host = malloc((size_t)(2 * n) * sizeof *host);
    double *frequency = malloc((size_t)(half + 1) * sizeof *frequency), scale = ex->arch->rope.attention_factor;
    if (!host || !frequency)
        abort();
    rope_frequencies(&ex->arch->rope, ex->head_dim, frequency);
    for (int t = 0; t < ex->tokens; t++)
        for (int i = 0; i < half; i++) {
            double angle = ex->host_row_position[t] * frequency[i];
            host[(int64_t)t * half + i] = (float)(scale * cos(angle));
            host[n + (int64_t)t * half + i] = (float)(scale * sin(angle));
        }
    ex->cosine = device_floats(ex->device, n);
    ex->sine = device_floats(ex->device, n);
    ex->device->upload(ex->device, ex->cosine, host, (size_t)n * sizeof *host);
    ex->device->upload(ex->device, ex->sine, host + n, (size_t)n * sizeof *host);
    free(frequency);
    free(host);
}

static void size_vocabulary(struct executor *ex)
{
    int64_t padded = plan_padded_vocab(ex->plan, ex->model);
    ex->vocab_rows = (int)(padded / ex->plan->tp);
    ex->vocab_first = ex->world->tp * ex->vocab_rows;
    int64_t real = ex->model->vocab - ex->vocab_first;
    ex->vocab_real = (int)(real < 0 ? 0 : real < ex->vocab_rows ? real : ex->vocab_rows);
}

void executor_init(struct executor *ex)
{
    const struct plan *plan = ex->plan;
    const struct model *model = ex->model;
    ex->kernels = ex->device->kernels;
    ex->queue = ex->device->queue;
    ex->params.device = ex->device;
    ex->params.zero = plan->zero;
    ex->batch = plan->micro_batch;
    ex->sequence = (int)(plan->seq_len / plan->cp);
    ex->tokens = ex->batch * ex->sequence;
    ex->rows = plan->sequence_parallel ? ex->tokens / plan->tp : ex->tokens;
    ex->hidden = (int)model->hidden;
    ex->head_dim = (int)model->head_dim;
    ex->heads = (int)model->heads / plan->tp;
    ex->kv_heads = model->kv_heads >= plan->tp ? (int)model->kv_heads / plan->tp : 1;
    ex->kv_first = (int)(ex->world->tp * model->kv_heads / plan->tp);
    double tokens = (double)(plan->global_batch * plan->seq_len);
    ex->loss_factor = (float)(1 / tokens);
    ex->aux_factor =
        model->experts > 0
            ? (float)((double)ex->arch->aux_coefficient * plan->micro_batch * (double)plan->seq_len / tokens)
            : 0;
    size_vocabulary(ex);
    fill_positions(ex);
    fill_angles(ex);
}

void executor_release(struct executor *ex)
{
    int64_t angles = (int64_t)ex->tokens * (ex->head_dim / 2);
    free(ex->host_row_position);
    device_free(ex->device, ex->position, ex->plan->cp * ex->sequence);
    device_free(ex->device, ex->row_position, ex->tokens);
    device_free(ex->device, ex->cosine, angles);
    device_free(ex->device, ex->sine, angles);
    fp8_free(ex->fp8);
    params_release(&ex->params);
    stopwatch_release(&ex->watch, ex->device);
}

/* --- losses ------------------------------------------------------------------ */

struct loss_part {
    struct loss_part *next;
    int rows;
    float *host; /* [2 * rows] sums, then picked */
};

void executor_note_loss(struct executor *ex, const struct tensor *sum, const struct tensor *picked)
{
    size_t bytes = (size_t)sum->rows * sizeof(float);
    struct loss_part *part = calloc(1, sizeof *part), **last = &ex->losses;
    float *host = part ? ex->device->host_allocate(ex->device, 2 * bytes) : NULL;
    if (!host)
        abort();
    part->rows = sum->rows;
    part->host = host;
    ex->device->fetch(ex->device, host, sum->data, bytes);
    ex->device->fetch(ex->device, host + sum->rows, picked->data, bytes);
    while (*last)
        last = &(*last)->next;
    *last = part;
}

/* Once per tp group. */
void executor_add_losses(struct executor *ex)
{
    if (ex->losses)
        ex->device->wait(ex->device);
    while (ex->losses) {
        struct loss_part *part = ex->losses;
        double loss = 0;
        for (int r = 0; r < part->rows; r++)
            loss += log((double)part->host[r]) - (double)part->host[part->rows + r];
        if (ex->world->tp == 0)
            ex->loss += loss * (double)ex->loss_factor;
        ex->losses = part->next;
        ex->device->host_release(ex->device, part->host, 2 * (size_t)part->rows * sizeof(float));
        free(part);
    }
}
