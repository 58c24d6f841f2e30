#include "sim/pricing.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cost/base/arena.h"
#include "cost/base/err.h"
#include "cost/base/file.h"
#include "cost/base/names.h"
#include "cost/base/unit.h"

static const double cost_max = 1e15;

void pricing_defaults(struct pricing *pricing)
{
    *pricing = (struct pricing){.cost = {1, 1, 1}, .slot = SLOT_SUM};
}

/* ---- --cost ---- */

static const char *const cost_keys[] = {"F", "B", "W", "comm", "overlap", NULL};
enum { KEY_COMM = 3, KEY_OVERLAP = 4 };

/* seen: bits of the names that came before. */
static int parse_pair(const char *key, const char *value, struct pricing *pricing, unsigned *seen, struct err *err)
{
    char list[64];
    int before = err ? err->count : 0, k = names_find(cost_keys, key);
    if (k < 0)
        return err_add(err, "cost: unknown name '%s'; allowed: %s", key, names_join(cost_keys, list, sizeof list));
    if (*seen & 1u << k)
        return err_add(err, "cost: '%s' is given twice", key);
    *seen |= 1u << k;
    if (k == KEY_OVERLAP) {
        int slot = names_find(engine_slot_names, value);
        if (slot >= 0 && slot != SLOT_COMM)
            pricing->slot = (enum engine_slot)slot;
        else if (unit_parse_double(value, 1e-300, cost_max, &pricing->slot_cost, NULL) < 0)
            return err_add(err, "cost: overlap '%s' is not one of max, sum, half, or a number above 0", value);
        return 0;
    }
    if (unit_parse_double(value, 0, cost_max, k == KEY_COMM ? &pricing->comm : &pricing->cost[k], err) < 0)
        return err_prefix(err, before, "cost: %s: ", key);
    return 0;
}

const char *pricing_overlap(const struct pricing *pricing, char *buffer, size_t size)
{
    if (!(pricing->slot_cost > 0))
        return engine_slot_names[pricing->slot];
    snprintf(buffer, size, "%.6g", pricing->slot_cost);
    return buffer;
}

int pricing_parse_cost(const char *text, struct pricing *pricing, struct err *err)
{
    char copy[512], *rest = copy;
    unsigned seen = 0;
    if (strlen(text) >= sizeof copy)
        return err_add(err, "cost: too long; write for example F=1,B=1,W=1");
    memcpy(copy, text, strlen(text) + 1);
    while (rest) {
        char *pair = rest, *equals = strchr(pair, '=');
        rest = strchr(pair, ',');
        if (rest)
            *rest++ = 0;
        if (!equals || (rest && equals > rest))
            return err_add(err, "cost: '%s' is not name=value; write for example F=1,B=1,W=1", pair);
        *equals = 0;
        if (parse_pair(pair, equals + 1, pricing, &seen, err) < 0)
            return -1;
    }
    return 0;
}

/* ---- --stage-cost ---- */

static int parse_stage_line(const char *path, int line, char *text, int stage, double *values, struct err *err)
{
    int before = err ? err->count : 0;
    char *rest = text;
    int64_t index = -1;
    for (int column = 0; column < 4; column++) {
        char *cell = rest;
        if (!cell)
            return err_add(err, "stage costs '%s': line %d: not 4 columns (stage,F,B,W)", path, line);
        rest = strchr(cell, ',');
        if (rest)
            *rest++ = 0;
        int result = column == 0 ? unit_parse_int(cell, 0, PROGRAM_STAGES_MAX, &index, err)
                                 : unit_parse_double(cell, 0, cost_max, &values[column - 1], err);
        if (result < 0)
            return err_prefix(err, before, "stage costs '%s': line %d: ", path, line);
    }
    if (rest)
        return err_add(err, "stage costs '%s': line %d: not 4 columns (stage,F,B,W)", path, line);
    if (index != stage)
        return err_add(err, "stage costs '%s': line %d: stage %lld, expected %d", path, line, (long long)index, stage);
    return 0;
}

static int parse_stage_costs(const char *path, char *text, struct pricing *pricing, struct err *err)
{
    int n = 0;
    char *line = text;
    for (int number = 1; line && *line; number++) {
        char *next = strchr(line, '\n');
        if (next)
            *next++ = 0;
        line[strcspn(line, "\r")] = 0;
        double values[3];
        if (*line && *line != '#' && !(n == 0 && strcmp(line, "stage,F,B,W") == 0)) {
            if (n == PROGRAM_STAGES_MAX)
                return err_add(err, "stage costs '%s': more than %d stages", path, PROGRAM_STAGES_MAX);
            if (parse_stage_line(path, number, line, n, values, err) < 0)
                return -1;
            for (int k = 0; k < 3; k++)
                pricing->stage_cost[k][n] = values[k];
            n++;
        }
        line = next;
    }
    pricing->n_stage_costs = n;
    return n > 0 ? 0 : err_add(err, "stage costs '%s': no stages in it", path);
}

int pricing_load_stage_costs(const char *path, struct arena *arena, struct pricing *pricing, struct err *err)
{
    char *text;
    size_t length;
    if (file_read(path, FILE_MAX_BYTES, &text, &length, err) < 0)
        return -1;
    pricing->stage_cost_file = arena_strdup(arena, path);
    for (int k = 0; k < 3; k++)
        pricing->stage_cost[k] = arena_array(arena, PROGRAM_STAGES_MAX, sizeof(double));
    int result = parse_stage_costs(path, text, pricing, err);
    free(text);
    return result;
}

/* ---- units to ticks ---- */

/* Ticks per unit: divisible by 2 to 16 (a chunk's share is then whole) and by powers of ten, as fine as the clock
 * allows for the sum of all ops. */
static double choose_ticks(double total_units)
{
    static const double choices[] = {720720e6, 720720e5, 720720e4, 720720e3, 720720e2, 720720e1, 720720, 5040, 60, 1};
    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++)
        if (total_units * choices[i] <= 0x1p60)
            return choices[i];
    return 0x1p60 / total_units;
}

/* Fills costs for a pipeline of `stages` stages on pp ranks. */
static int set_costs(const struct pricing *pricing, int pp, int stages, int micro_batches, struct arena *arena,
                     struct priced *ret, struct err *err)
{
    if (pricing->stage_cost[0] && pricing->n_stage_costs != stages)
        return err_add(err, "stage costs '%s': %d stages, but the program has %d", pricing->stage_cost_file,
                       pricing->n_stage_costs, stages);
    double total = 0, share = (double)pp / stages;
    for (int k = 0; k < 3; k++)
        for (int s = 0; s < stages; s++)
            total += pricing->stage_cost[k] ? pricing->stage_cost[k][s] : pricing->cost[k] * share;
    int iterations = pricing->iterations > 0 ? pricing->iterations : 1;
    ret->ticks_per_unit = choose_ticks(
        2 * ((total + stages * (2.0 * pricing->comm + pricing->slot_cost)) * micro_batches + 1) * iterations);
    int64_t *ticks[5];
    for (int k = 0; k < 5; k++)
        ticks[k] = arena_array(arena, (size_t)stages, sizeof(int64_t));
    for (int s = 0; s < stages; s++) {
        for (int k = 0; k < 3; k++)
            ticks[k][s] = (int64_t)llround(
                (pricing->stage_cost[k] ? pricing->stage_cost[k][s] : pricing->cost[k] * share) * ret->ticks_per_unit);
        ticks[3][s] = (int64_t)llround(pricing->comm * ret->ticks_per_unit);
        ticks[4][s] = (int64_t)llround(pricing->slot_cost * share * ret->ticks_per_unit);
    }
    ret->costs = (struct engine_costs){.forward_ps = ticks[0],
                                       .backward_ps = ticks[1],
                                       .wgrad_ps = ticks[2],
                                       .p2p_ps = ticks[3],
                                       .blocking_sends = pricing->blocking_sends,
                                       .slot = pricing->slot,
                                       .slot_ps = pricing->slot_cost > 0 ? ticks[4] : NULL,
                                       .iterations = pricing->iterations,
                                       .sync = pricing->sync};
    ret->stages_per_chunk = share;
    return 0;
}

int pricing_schedule(const struct pricing *pricing, enum plan_schedule schedule, const struct schedule_request *request,
                     bool record, struct arena *arena, struct priced *ret, struct err *err)
{
    const struct schedule *s = schedule_of(schedule);
    struct priced priced = {.schedule = s};
    if (schedule_validate(schedule, request, err) < 0)
        return -1;
    int vp = request->vp ? request->vp : s->vp_default,
        stages = s->placement == PLACEMENT_BIDIR ? request->pp : request->pp * vp;
    if (set_costs(pricing, request->pp, stages, request->micro_batches, arena, &priced, err) < 0)
        return -1;
    struct schedule_request with_costs = *request;
    with_costs.forward_ticks = priced.costs.forward_ps;
    with_costs.backward_ticks = priced.costs.backward_ps;
    with_costs.wgrad_ticks = priced.costs.wgrad_ps;
    with_costs.comm_ticks = priced.costs.p2p_ps[0];
    priced.costs.record = record;
    if (schedule_emit(schedule, &with_costs, arena, &priced.program, err) < 0 ||
        engine_run(&priced.program, &priced.costs, arena, &priced.timeline, err) < 0)
        return -1;
    *ret = priced;
    return 0;
}

int pricing_program(const struct pricing *pricing, const struct program *program, bool record, struct arena *arena,
                    struct priced *ret, struct err *err)
{
    struct priced priced = {.program = *program};
    if (set_costs(pricing, program->pp, program->stages, program->micro_batches, arena, &priced, err) < 0)
        return -1;
    priced.costs.record = record;
    if (engine_run(program, &priced.costs, arena, &priced.timeline, err) < 0)
        return -1;
    *ret = priced;
    return 0;
}

double priced_peak_activations(const struct priced *priced)
{
    int peak = 0;
    for (int r = 0; r < priced->timeline.ranks; r++)
        if (priced->timeline.rank[r].peak_in_flight > peak)
            peak = priced->timeline.rank[r].peak_in_flight;
    return peak * priced->stages_per_chunk;
}
