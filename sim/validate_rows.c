#include "sim/validate_rows.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cost/base/arena.h"

enum { THREADS_MAX = 64, BLOCK_BYTES = 4 << 20 }; /* the programs of nearly all runs fit into one block */

/* ---- one run ---- */

static void begin_anew(struct arena *arena, struct arena_mark *start)
{
    if (start->block) {
        arena_rewind(arena, *start);
        return;
    }
    arena_alloc(arena, 1); /* the first block stays */
    *start = arena_mark(arena);
}

void row_pricer_begin(struct row_pricer *p, const struct validation *v, int row)
{
    const struct outcome *o = &v->outcome[row];
    p->validation = v;
    p->row = row;
    p->cluster = v->clusters[o->cluster].cluster;
    p->cluster.spans = &p->spans;
    memset(&p->spans, 0, sizeof p->spans);
    for (int i = 0; i < v->n_stacks; i++)
        if (strcmp(v->stacks[i].name, o->mapped.plan.stack) == 0)
            p->stack = v->stacks[i];
    p->question = (struct question){.model = &v->models[o->model].model, .cluster = &p->cluster, .profile = v->profile, .stacks = &p->stack,
                                    .n_stacks = 1, .memory_limit_bytes = p->cluster.accelerator.memory_bytes, .memo = &p->memo};
    begin_anew(&p->arena, &p->start);
    pipeline_memo_forget(&p->memo);
}

double row_pricer_step_s(struct row_pricer *p)
{
    const struct plan *plan = &p->validation->outcome[p->row].mapped.plan;
    static const double at_once = 0; /* messages and bubbles need not be told apart */
    layer_prices_fill(&p->prices, &p->question, plan, &p->stack);
    if (predict_priced(&p->question, plan, &p->prices, at_once, &p->arena, &p->prediction, NULL) < 0)
        return (double)NAN;
    return p->prediction.step_time_s;
}

/* ---- threads ---- */

struct visits {
    int n;
    atomic_int next;
    void (*visit)(void *context, struct row_pricer *pricer, int row);
    void *context;
};

static void *run_visits(void *argument)
{
    struct visits *visits = argument;
    struct row_pricer *pricer = calloc(1, sizeof *pricer);
    if (!pricer)
        arena_out_of_memory(sizeof *pricer);
    pricer->arena.block_bytes = pricer->memo.arena.block_bytes = BLOCK_BYTES;
    for (int row = atomic_fetch_add(&visits->next, 1); row < visits->n; row = atomic_fetch_add(&visits->next, 1))
        visits->visit(visits->context, pricer, row);
    arena_release(&pricer->arena);
    pipeline_memo_release(&pricer->memo);
    free(pricer);
    return NULL;
}

static int count_threads(const struct validation *v, int n)
{
    long cores = v->threads > 0 ? v->threads : sysconf(_SC_NPROCESSORS_ONLN);
    if (cores > THREADS_MAX)
        cores = THREADS_MAX;
    return cores < 1 ? 1 : cores < n ? (int)cores : n;
}

void validation_visit_rows(const struct validation *v, int n, void (*visit)(void *context, struct row_pricer *pricer, int row), void *context)
{
    struct visits visits = {.n = n, .visit = visit, .context = context};
    pthread_t thread[THREADS_MAX];
    int threads = count_threads(v, n), started = 0;
    while (started < threads - 1 && pthread_create(&thread[started], NULL, run_visits, &visits) == 0)
        started++;
    run_visits(&visits);
    for (int t = 0; t < started; t++)
        pthread_join(thread[t], NULL);
}
