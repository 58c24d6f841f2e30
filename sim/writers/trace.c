#include "sim/writers/trace.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "cost/base/arena.h"
#include "cost/base/err.h"
#include "cost/base/file.h"
#include "sim/engine.h"
#include "sim/program.h"
#include "sim/timeline.h"

/* Threads of a rank: 0 computes; the messages of a kind (0 forward, 1 backward) are on 1 + kind and, where they
 * overlap each other, on further lanes 1 + kind + 2 lane. */
enum { COMPUTE, LANES_MAX = 16 };
enum message_kind { FORWARD, BACKWARD, MESSAGE_KINDS };

struct sender {
    int64_t stream_ps[MESSAGE_KINDS]; /* when the stream is free */
    int64_t lane_end_ps[MESSAGE_KINDS][LANES_MAX];
    int lanes[MESSAGE_KINDS]; /* in use */
};

struct trace {
    FILE *out;
    const struct program *program;
    const struct timeline *timeline;
    const struct engine_costs *costs;
    const struct trace_options *options;
    bool any; /* an event has been written */
    int64_t
        *start_ps; /* [2][slot] start of the F and of the backward of (direction, stage, micro-batch), this iteration */
    int64_t n_slots;
    int64_t flows; /* arrows drawn */
};

static void event(struct trace *t, const char *phase, int rank, int thread, int64_t at_ps)
{
    fprintf(t->out, "%s\n{\"ph\":\"%s\",\"pid\":%d,\"tid\":%d,\"ts\":%.15g", t->any ? "," : "", phase, rank, thread,
            (double)at_ps * t->options->us_per_tick);
    t->any = true;
}

static void name_thread(struct trace *t, int rank, int thread, const char *name)
{
    event(t, "M", rank, thread, 0);
    fprintf(t->out, ",\"name\":\"thread_name\",\"args\":{\"name\":\"%s\"}}", name);
}

static void name_rank(struct trace *t, int rank)
{
    event(t, "M", rank, COMPUTE, 0);
    fprintf(t->out, ",\"name\":\"process_name\",\"args\":{\"name\":\"%s %d\"}}",
            t->options->rank_name ? t->options->rank_name : "rank", rank);
    event(t, "M", rank, COMPUTE, 0);
    fprintf(t->out, ",\"name\":\"process_sort_index\",\"args\":{\"sort_index\":%d}}", rank);
    name_thread(t, rank, COMPUTE, "compute");
}

/* A lane that is free from start_ps on. */
static int take_lane(struct trace *t, int rank, struct sender *sender, enum message_kind kind, int64_t start_ps,
                     int64_t end_ps)
{
    static const char *const names[MESSAGE_KINDS] = {"send forward", "send backward"};
    int lane = 0;
    while (lane < sender->lanes[kind] && sender->lane_end_ps[kind][lane] > start_ps)
        lane++;
    lane = lane < LANES_MAX ? lane : LANES_MAX - 1;
    if (lane >= sender->lanes[kind]) {
        sender->lanes[kind] = lane + 1;
        name_thread(t, rank, 1 + (int)kind + 2 * lane, names[kind]);
    }
    sender->lane_end_ps[kind][lane] = end_ps;
    return 1 + (int)kind + 2 * lane;
}

static int64_t slot_of(const struct trace *t, int direction, int stage, uint32_t micro_batch)
{
    return ((int64_t)direction * t->program->stages + stage) * program_direction_micro_batches(t->program) +
           micro_batch;
}

/* Where every message is consumed. */
static void note_starts(struct trace *t, int iteration)
{
    const struct program *p = t->program;
    for (int r = 0; r < p->pp; r++)
        for (int i = 0; i < p->n_ops[r]; i++) {
            const struct op *op = &p->ops[r][i];
            int64_t start_ps = t->timeline->start_ps[r][(size_t)iteration * (size_t)p->n_ops[r] + (size_t)i];
            if (op->kind == OP_F || op->kind == OP_F_BW)
                t->start_ps[slot_of(t, op->direction, op->stage, op->micro_batch)] = start_ps;
            if (op->kind == OP_B || op->kind == OP_BW)
                t->start_ps[t->n_slots + slot_of(t, op->direction, op->stage, op->micro_batch)] = start_ps;
            if (op->kind == OP_F_BW)
                t->start_ps[t->n_slots + slot_of(t, op->direction2, op->stage2, op->micro_batch2)] = start_ps;
        }
}

static int64_t boundary_ps(const struct trace *t, const int64_t *values, int direction, int boundary)
{
    return values ? values[direction == 0 ? boundary : t->program->pp - 2 - boundary] : 0;
}

/* The message of an op that ended at end_ps to stage `to`: a slice on the sender's stream, and an arrow. */
static void message(struct trace *t, int rank, struct sender *sender, enum message_kind kind, int direction, int from,
                    int to, uint32_t micro_batch, int64_t end_ps)
{
    const struct program *p = t->program;
    int peer = p->stage_rank[direction * p->stages + to], boundary = from < to ? from : to, thread = COMPUTE;
    if (peer == rank)
        return;
    int64_t start_ps = end_ps, length_ps = t->costs ? boundary_ps(t, t->costs->p2p_ps, direction, boundary) : 0;
    if (t->costs && t->costs->p2p_occupancy_ps) {
        start_ps = sender->stream_ps[kind] > end_ps ? sender->stream_ps[kind] : end_ps;
        sender->stream_ps[kind] = start_ps + boundary_ps(t, t->costs->p2p_occupancy_ps, direction, boundary);
    }
    if (length_ps > 0) {
        thread = take_lane(t, rank, sender, kind, start_ps, start_ps + length_ps);
        event(t, "X", rank, thread, start_ps);
        fprintf(t->out, ",\"dur\":%.15g,\"name\":\"mb %u to %d\",\"args\":{\"stage\":%d}}",
                (double)length_ps * t->options->us_per_tick, micro_batch, peer, to);
    }
    int64_t arrival_ps = t->start_ps[(kind == FORWARD ? 0 : t->n_slots) + slot_of(t, direction, to, micro_batch)];
    /* An arrow starts inside a slice: the message's, or just before the end of the op's. */
    event(t, "s", rank, thread, thread == COMPUTE ? end_ps - 1 : start_ps);
    fprintf(t->out, ",\"id\":%" PRId64 ",\"cat\":\"message\",\"name\":\"message\"}", t->flows);
    event(t, "f", peer, COMPUTE, arrival_ps);
    fprintf(t->out, ",\"bp\":\"e\",\"id\":%" PRId64 ",\"cat\":\"message\",\"name\":\"message\"}", t->flows++);
}

static void compute(struct trace *t, int rank, const struct op *op, int64_t start_ps, int64_t end_ps)
{
    char name[96];
    event(t, "X", rank, COMPUTE, start_ps);
    fprintf(t->out, ",\"dur\":%.15g,\"cat\":\"%s\",\"name\":\"%s\",\"args\":{\"mb\":%u,\"stage\":%d,\"chunk\":%d}}",
            (double)(end_ps - start_ps) * t->options->us_per_tick, op_kind_names[op->kind],
            op_format(t->program, op, name, sizeof name), op->micro_batch, op->stage,
            t->program->stage_chunk[op->direction * t->program->stages + op->stage]);
}

static void messages(struct trace *t, int rank, const struct op *op, int64_t end_ps, struct sender *sender)
{
    bool overlap = op->kind == OP_F_BW, forward = op->kind == OP_F || overlap;
    bool backward = op->kind == OP_B || op->kind == OP_BW || overlap;
    int direction = overlap ? op->direction2 : op->direction, stage = overlap ? op->stage2 : op->stage;
    if (forward && op->stage + 1 < t->program->stages)
        message(t, rank, sender, FORWARD, op->direction, op->stage, op->stage + 1, op->micro_batch, end_ps);
    if (backward && stage > 0)
        message(t, rank, sender, BACKWARD, direction, stage, stage - 1, overlap ? op->micro_batch2 : op->micro_batch,
                end_ps);
}

struct held {
    int chunks;
    int64_t bytes;
};

static void counter(struct trace *t, int rank, const struct held *held, int64_t at_ps)
{
    event(t, "C", rank, COMPUTE, at_ps);
    if (t->costs && t->costs->act_bytes)
        fprintf(t->out, ",\"name\":\"activation bytes\",\"args\":{\"bytes\":%" PRId64 "}}", held->bytes);
    else
        fprintf(t->out, ",\"name\":\"activations\",\"args\":{\"stages\":%.15g}}",
                held->chunks * t->options->stages_per_chunk);
}

static void memory(struct trace *t, int rank, const struct op *op, int64_t start_ps, int64_t end_ps, struct held *held)
{
    const int64_t *all = t->costs ? t->costs->act_bytes : NULL, *by_b = t->costs ? t->costs->act_b_bytes : NULL;
    int kind = op->kind == OP_F_BW ? OP_BW : op->kind, stage = op->kind == OP_F_BW ? op->stage2 : op->stage;
    if (op->kind == OP_F || op->kind == OP_F_BW) {
        held->chunks++;
        held->bytes += all ? all[op->stage] : 0;
        counter(t, rank, held, start_ps);
    }
    if (kind == OP_F)
        return;
    int64_t whole = all ? all[stage] : 0, first = by_b ? by_b[stage] : 0;
    held->chunks -= kind != OP_B;
    held->bytes -= kind == OP_BW ? whole : kind == OP_B ? first : whole - first;
    counter(t, rank, held, end_ps);
}

static void write_rank(struct trace *t, int rank, int iteration)
{
    const struct program *p = t->program;
    struct sender sender = {0};
    struct held held = {0, 0};
    for (int i = 0; i < p->n_ops[rank]; i++) {
        const struct op *op = &p->ops[rank][i];
        size_t at = (size_t)iteration * (size_t)p->n_ops[rank] + (size_t)i;
        int64_t start_ps = t->timeline->start_ps[rank][at], end_ps = t->timeline->end_ps[rank][at];
        if (!op_is_compute(op))
            continue;
        compute(t, rank, op, start_ps, end_ps);
        messages(t, rank, op, end_ps, &sender);
        memory(t, rank, op, start_ps, end_ps, &held);
    }
}

static void write_quoted(FILE *out, const char *text)
{
    fputc('"', out);
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            fputc('\\', out);
        if ((unsigned char)*text >= 0x20)
            fputc(*text, out);
    }
    fputc('"', out);
}

static void write_all(struct trace *t)
{
    fputs("{\"displayTimeUnit\":\"ms\",\"otherData\":{\"title\":", t->out);
    write_quoted(t->out, t->options->title ? t->options->title : "");
    fputs("},\"traceEvents\":[", t->out);
    for (int r = 0; r < t->program->pp; r++)
        name_rank(t, r);
    for (int k = 0; k < t->timeline->iterations; k++) {
        note_starts(t, k);
        for (int r = 0; r < t->program->pp; r++)
            write_rank(t, r, k);
    }
    fputs("\n]}\n", t->out);
}

int trace_write(const char *path, const struct program *program, const struct timeline *timeline,
                const struct engine_costs *costs, const struct trace_options *options, struct err *err)
{
    char *text = NULL;
    size_t length = 0;
    struct arena arena = {0};
    struct trace t = {.program = program, .timeline = timeline, .costs = costs, .options = options};
    t.out = open_memstream(&text, &length);
    if (!t.out)
        return err_add(err, "trace '%s': out of memory", path);
    t.n_slots = (int64_t)program->directions * program->stages * program_direction_micro_batches(program);
    t.start_ps = arena_array(&arena, 2 * (size_t)t.n_slots, sizeof *t.start_ps);
    write_all(&t);
    arena_release(&arena);
    bool failed = ferror(t.out) != 0;
    int result = fclose(t.out) != 0 || failed ? err_add(err, "trace '%s': out of memory", path)
                                              : file_write_atomic(path, text, length, err);
    free(text);
    return result;
}
