#include "sim/program_csv.h"

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cost/base/arena.h"
#include "cost/base/err.h"
#include "cost/base/file.h"
#include "sim/program.h"

static const char csv_header[] = "rank,index,op,mb,chunk,stage,dir,mb2,chunk2,stage2,dir2";

/* ---- reading: rows first, then the program ---- */

struct row {
    int rank, line;
    struct op op;
    int chunk, chunk2; /* -1 = not told */
};

struct reader {
    const char *file;
    const char *at, *end; /* the text that is left */
    int line;
    struct row *rows;
    size_t n_rows, max_rows;
    struct arena *arena; /* of the result */
    struct err *err;
};

static int fail(const struct reader *r, int line, const char *what, const char *from, size_t length)
{
    if (from)
        return err_add(r->err, "program '%s': line %d: %s: '%.*s'", r->file, line, what, length < 60 ? (int)length : 60,
                       from);
    return err_add(r->err, "program '%s': line %d: %s", r->file, line, what);
}

/* The next line without its end; false at the end of the text. */
static bool next_line(struct reader *r, const char **ret_line, size_t *ret_length)
{
    if (r->at >= r->end)
        return false;
    const char *newline = memchr(r->at, '\n', (size_t)(r->end - r->at));
    const char *stop = newline ? newline : r->end;
    *ret_line = r->at;
    *ret_length = (size_t)(stop - r->at);
    if (*ret_length > 0 && stop[-1] == '\r')
        (*ret_length)--;
    r->at = newline ? newline + 1 : r->end;
    r->line++;
    return true;
}

/* Digits at *at; -1 when there are none or the number is above max. */
static int64_t take_number(const char **at, const char *end, int64_t max)
{
    const char *p = *at;
    int64_t value = 0;
    while (p < end && *p >= '0' && *p <= '9') {
        value = value * 10 + (*p++ - '0');
        if (value > max)
            return -1;
    }
    if (p == *at)
        return -1;
    *at = p;
    return value;
}

static struct row *new_row(struct reader *r)
{
    if (r->n_rows == r->max_rows) {
        size_t max = r->max_rows ? 2 * r->max_rows : 1024;
        struct row *rows = realloc(r->rows, max * sizeof *rows);
        if (!rows) {
            fail(r, r->line, "out of memory", NULL, 0);
            return NULL;
        }
        r->rows = rows;
        r->max_rows = max;
    }
    struct row *row = &r->rows[r->n_rows++];
    *row = (struct row){.line = r->line, .chunk = -1, .chunk2 = -1};
    return row;
}

/* ---- our CSV ---- */

enum { COLUMNS = 11, COLUMN_OP = 2 };

struct cell {
    const char *text;
    size_t length;
};

static int split_cells(const struct reader *r, const char *line, size_t length, struct cell *cells)
{
    int n = 0;
    const char *end = line + length;
    for (const char *at = line;; n++) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        if (n == COLUMNS)
            return fail(r, r->line, "more than 11 columns", line, length);
        cells[n] = (struct cell){at, (size_t)((comma ? comma : end) - at)};
        if (!comma)
            break;
        at = comma + 1;
    }
    return n + 1 == COLUMNS ? 0 : fail(r, r->line, "not 11 columns", line, length);
}

static int cell_number(const struct reader *r, const struct cell *cell, const char *what, int64_t max, int64_t *ret)
{
    const char *at = cell->text;
    *ret = take_number(&at, cell->text + cell->length, max);
    if (*ret >= 0 && at == cell->text + cell->length)
        return 0;
    char text[80];
    snprintf(text, sizeof text, "%s is not a number from 0 to %lld", what, (long long)max);
    return fail(r, r->line, text, cell->text, cell->length);
}

static int cell_kind(const struct reader *r, const struct cell *cell)
{
    for (int kind = OP_F; kind <= OP_F_BW; kind++)
        if (strlen(op_kind_names[kind]) == cell->length && memcmp(op_kind_names[kind], cell->text, cell->length) == 0)
            return kind;
    return fail(r, r->line, "unknown op (allowed: F, B, W, BW, F&BW)", cell->text, cell->length);
}

/* Four cells from `first`: micro-batch, chunk, stage, direction. */
static int read_half(const struct reader *r, const struct cell *first, uint32_t *ret_micro_batch, int *ret_chunk,
                     uint16_t *ret_stage, uint8_t *ret_direction)
{
    int64_t micro_batch, chunk, stage, direction;
    if (cell_number(r, &first[0], "mb", PROGRAM_MICRO_BATCHES_MAX - 1, &micro_batch) < 0 ||
        cell_number(r, &first[1], "chunk", PROGRAM_STAGES_MAX - 1, &chunk) < 0 ||
        cell_number(r, &first[2], "stage", PROGRAM_STAGES_MAX - 1, &stage) < 0 ||
        cell_number(r, &first[3], "dir", 1, &direction) < 0)
        return -1;
    *ret_micro_batch = (uint32_t)micro_batch;
    *ret_chunk = (int)chunk;
    *ret_stage = (uint16_t)stage;
    *ret_direction = (uint8_t)direction;
    return 0;
}

static int read_our_row(struct reader *r, const char *line, size_t length, int *counts)
{
    struct cell cells[COLUMNS];
    int64_t rank, index;
    if (split_cells(r, line, length, cells) < 0 ||
        cell_number(r, &cells[0], "rank", PROGRAM_RANKS_MAX - 1, &rank) < 0 ||
        cell_number(r, &cells[1], "index", PROGRAM_OPS_MAX, &index) < 0)
        return -1;
    if (index != counts[rank]++) {
        char text[80];
        snprintf(text, sizeof text, "rank %d: expected index %d", (int)rank, counts[rank] - 1);
        return fail(r, r->line, text, line, length);
    }
    int kind = cell_kind(r, &cells[COLUMN_OP]);
    struct row *row = kind < 0 ? NULL : new_row(r);
    if (!row)
        return -1;
    row->rank = (int)rank;
    row->op.kind = (uint8_t)kind;
    if (read_half(r, &cells[3], &row->op.micro_batch, &row->chunk, &row->op.stage, &row->op.direction) < 0)
        return -1;
    if (kind == OP_F_BW)
        return read_half(r, &cells[7], &row->op.micro_batch2, &row->chunk2, &row->op.stage2, &row->op.direction2);
    for (int i = 7; i < COLUMNS; i++)
        if (cells[i].length > 0)
            return fail(r, r->line, "only F&BW has a second half", line, length);
    return 0;
}

static int read_ours(struct reader *r)
{
    const char *line;
    size_t length;
    bool header = false;
    int *counts = calloc(PROGRAM_RANKS_MAX, sizeof *counts);
    int result = counts ? 0 : fail(r, 0, "out of memory", NULL, 0);
    while (result == 0 && next_line(r, &line, &length)) {
        if (length == 0 || line[0] == '#')
            continue;
        if (header)
            result = read_our_row(r, line, length, counts);
        else if (length != strlen(csv_header) || memcmp(line, csv_header, length) != 0)
            result = fail(r, r->line, "the first line must be the column names", line, length);
        header = true;
    }
    free(counts);
    return result;
}

/* ---- PyTorch's CSV ---- */

static const struct {
    const char *word;
    enum op_kind kind;
    bool micro_batch;
} torch_types[] = {
    /* longer words before their own beginnings */
    {"RECV_F", OP_RECV_F, true},
    {"RECV_B", OP_RECV_B, true},
    {"SEND_F", OP_SEND_F, true},
    {"SEND_B", OP_SEND_B, true},
    {"UNSHARD", OP_UNSHARD, false},
    {"RESHARD", OP_RESHARD, false},
    {"REDUCE_GRAD", OP_REDUCE_GRAD, false},
    {"F", OP_F, true},
    {"I", OP_B, true},
    {"W", OP_W, true},
    {"B", OP_BW, true},
};

static int torch_action(const struct reader *r, const char *at, const char *end, struct op *ret)
{
    const char *cell = at;
    int64_t stage = take_number(&at, end, PROGRAM_STAGES_MAX - 1), micro_batch = 0;
    for (size_t i = 0; stage >= 0 && i < sizeof torch_types / sizeof *torch_types; i++) {
        size_t n = strlen(torch_types[i].word);
        if ((size_t)(end - at) < n || memcmp(at, torch_types[i].word, n) != 0)
            continue;
        at += n;
        if (torch_types[i].micro_batch)
            micro_batch = take_number(&at, end, PROGRAM_MICRO_BATCHES_MAX - 1);
        if (micro_batch < 0 || at != end)
            break;
        *ret = op_plain(torch_types[i].kind, 0, (int)stage, (int)micro_batch);
        return 0;
    }
    return fail(r, r->line, "not an action of PyTorch's schedules", cell, (size_t)(end - cell));
}

/* (7F3;0B1)OVERLAP_F_B */
static int torch_overlap(const struct reader *r, const char *at, const char *end, struct op *ret)
{
    static const char suffix[] = ")OVERLAP_F_B";
    size_t length = (size_t)(end - at), n = sizeof suffix - 1;
    const char *semicolon = memchr(at, ';', length);
    struct op forward, backward;
    if (length < n + 2 || memcmp(end - n, suffix, n) != 0 || !semicolon)
        return fail(r, r->line, "not an overlapped action of PyTorch's schedules", at, length);
    if (torch_action(r, at + 1, semicolon, &forward) < 0 || torch_action(r, semicolon + 1, end - n, &backward) < 0)
        return -1;
    if (forward.kind != OP_F || backward.kind != OP_BW)
        return fail(r, r->line, "an overlapped action must be a forward and a full backward", at, length);
    *ret = op_overlap(forward, backward);
    return 0;
}

static int read_torch(struct reader *r)
{
    const char *line;
    size_t length;
    for (int rank = 0; next_line(r, &line, &length); rank++) {
        if (rank == PROGRAM_RANKS_MAX)
            return fail(r, r->line, "more than 4096 ranks", NULL, 0);
        const char *end = line + length, *comma;
        for (const char *at = line;; at = comma + 1) {
            comma = memchr(at, ',', (size_t)(end - at));
            const char *stop = comma ? comma : end;
            struct row *row = new_row(r);
            if (!row)
                return -1;
            row->rank = rank;
            row->op.kind = OP_IDLE;
            if (at < stop &&
                (*at == '(' ? torch_overlap(r, at, stop, &row->op) : torch_action(r, at, stop, &row->op)) < 0)
                return -1;
            if (!comma)
                break;
        }
    }
    return 0;
}

/* ---- rows to program ---- */

struct shape {
    int ranks, stages, directions, micro_batches; /* micro-batches of one direction */
    int n_ops[PROGRAM_RANKS_MAX];
};

static int larger(int a, int b)
{
    return a > b ? a : b;
}

static struct shape measure(const struct reader *r)
{
    struct shape shape = {0};
    for (size_t i = 0; i < r->n_rows; i++) {
        const struct row *row = &r->rows[i];
        shape.n_ops[row->rank]++;
        shape.ranks = larger(shape.ranks, row->rank + 1);
        if (row->op.kind == OP_IDLE)
            continue;
        shape.stages = larger(shape.stages, larger(row->op.stage, row->op.stage2) + 1);
        shape.directions = larger(shape.directions, larger(row->op.direction, row->op.direction2) + 1);
        shape.micro_batches = larger(shape.micro_batches, (int)row->op.micro_batch + 1);
        shape.micro_batches = larger(shape.micro_batches, (int)row->op.micro_batch2 + 1);
    }
    return shape;
}

enum { UNSEEN = UINT16_MAX };

/* "line 7: rank 1, index 3: " and the reason. */
static int refuse_row(const struct reader *r, const struct row *row, const char *reason)
{
    int index = 0;
    for (const struct row *before = r->rows; before < row; before++)
        index += before->rank == row->rank;
    char text[160];
    snprintf(text, sizeof text, "rank %d, index %d: %s", row->rank, index, reason);
    return fail(r, row->line, text, NULL, 0);
}

/* Notes that (direction, stage) lives on the row's rank, as module `chunk` of it. */
static int place(const struct reader *r, struct program *program, const struct row *row, int direction, int stage,
                 int chunk)
{
    size_t i = (size_t)direction * (size_t)program->stages + (size_t)stage;
    if (program->stage_rank[i] == UNSEEN) {
        program->stage_rank[i] = (uint16_t)row->rank;
        program->stage_chunk[i] = chunk < 0 ? UNSEEN : (uint16_t)chunk;
    }
    char text[96];
    snprintf(text, sizeof text, "stage %d is on rank %d here and on rank %d before", stage, row->rank,
             program->stage_rank[i]);
    if (program->stage_rank[i] != row->rank)
        return refuse_row(r, row, text);
    snprintf(text, sizeof text, "stage %d is chunk %d here and chunk %d before", stage, chunk, program->stage_chunk[i]);
    if (chunk >= 0 && program->stage_chunk[i] != chunk)
        return refuse_row(r, row, text);
    return 0;
}

/* A stage that no row has, below one that has: the first row beyond the gap is the one to look at. */
static int refuse_gap(const struct reader *r, int direction, int gap)
{
    for (size_t i = 0; i < r->n_rows; i++) {
        const struct row *row = &r->rows[i];
        bool first = row->op.kind != OP_IDLE && row->op.direction == direction && row->op.stage > gap;
        bool second = row->op.kind == OP_F_BW && row->op.direction2 == direction && row->op.stage2 > gap;
        char text[96];
        snprintf(text, sizeof text, "unknown stage %d: no rank runs stage %d%s", first ? row->op.stage : row->op.stage2,
                 gap, direction ? " of direction 1" : "");
        if (first || second)
            return refuse_row(r, row, text);
    }
    return err_add(r->err, "program '%s': no rank runs stage %d%s", r->file, gap, direction ? " of direction 1" : "");
}

static int place_rows(const struct reader *r, struct program *program)
{
    size_t entries = (size_t)program->stages * (size_t)program->directions;
    for (size_t i = 0; i < entries; i++)
        program->stage_rank[i] = program->stage_chunk[i] = UNSEEN;
    for (size_t i = 0; i < r->n_rows; i++) {
        const struct row *row = &r->rows[i];
        if (row->op.kind != OP_IDLE && place(r, program, row, row->op.direction, row->op.stage, row->chunk) < 0)
            return -1;
        if (row->op.kind == OP_F_BW && place(r, program, row, row->op.direction2, row->op.stage2, row->chunk2) < 0)
            return -1;
    }
    for (size_t i = 0; i < entries; i++)
        if (program->stage_rank[i] == UNSEEN)
            return refuse_gap(r, (int)i / program->stages, (int)i % program->stages);
    return 0;
}

/* Numbers the modules of each rank by depth where the file does not, and counts them. */
static void number_chunks(struct program *program, int *next)
{
    memset(next, 0, (size_t)program->pp * sizeof *next);
    for (int i = 0; i < program->stages * program->directions; i++) {
        int rank = program->stage_rank[i];
        if (program->stage_chunk[i] == UNSEEN)
            program->stage_chunk[i] = (uint16_t)next[rank];
        next[rank]++;
        program->chunks = larger(program->chunks, next[rank]);
    }
}

static enum placement recognize(const struct program *program)
{
    int pp = program->pp;
    bool loop = program->directions == 1 && program->stages % pp == 0,
         v = program->directions == 1 && program->stages == 2 * pp;
    bool bidir = program->directions == 2 && program->stages == pp;
    for (int s = 0; s < program->stages; s++) {
        int rank = program->stage_rank[s];
        loop = loop && rank == s % pp;
        v = v && rank == (s < pp ? s : 2 * pp - 1 - s);
        bidir = bidir && rank == s && program->stage_rank[program->stages + s] == pp - 1 - s;
    }
    return loop ? PLACEMENT_LOOP : v ? PLACEMENT_V : bidir ? PLACEMENT_BIDIR : PLACEMENT_FREE;
}

/* The arrays of a program of any shape; program_init knows one direction only. */
static int allocate(const struct reader *r, const struct shape *shape, struct program *ret)
{
    int64_t stages = (int64_t)shape->stages * shape->directions, pairs = stages * shape->micro_batches;
    if (pairs > (1 << 20) && pairs > (int64_t)r->n_rows) /* program_check would name one, but needs room for all */
        return err_add(r->err, "program '%s': %zu ops cannot be all of %lld stages x %d micro-batches", r->file,
                       r->n_rows, (long long)stages, shape->micro_batches);
    if (program_init(ret, r->arena, PLACEMENT_FREE, shape->ranks, 1, (int)stages, shape->micro_batches, 0, r->err) < 0)
        return -1;
    for (int rank = 0; rank < shape->ranks; rank++) {
        ret->max_ops[rank] = shape->n_ops[rank];
        ret->ops[rank] = arena_array(r->arena, (size_t)shape->n_ops[rank], sizeof **ret->ops);
    }
    ret->stages = shape->stages;
    ret->directions = shape->directions;
    ret->micro_batches = shape->micro_batches * shape->directions;
    return 0;
}

static int build(const struct reader *r, struct program *ret)
{
    struct shape shape = measure(r);
    struct program program;
    if (shape.ranks == 0 || shape.stages == 0)
        return err_add(r->err, "program '%s': no ops in it", r->file);
    int before = r->err ? r->err->count : 0;
    if (allocate(r, &shape, &program) < 0 || place_rows(r, &program) < 0)
        return -1;
    int *next = arena_array(r->arena, (size_t)program.pp, sizeof *next);
    number_chunks(&program, next);
    for (int rank = 0; rank < program.pp; rank++)
        if (next[rank] == 0)
            return err_add(r->err, "program '%s': rank %d runs no stage", r->file, rank);
    program.placement = recognize(&program);
    for (size_t i = 0; i < r->n_rows; i++)
        program_push(&program, r->rows[i].rank, r->rows[i].op);
    if (program_check(&program, r->err) < 0)
        return r->err ? err_prefix(r->err, before, "program '%s': ", r->file) : -1;
    *ret = program;
    return 0;
}

/* Ours begins with a comment or the column names; PyTorch's with a cell. */
static bool is_ours(const char *text, size_t length)
{
    return length > 0 && (text[0] == '#' || (length >= 4 && memcmp(text, "rank", 4) == 0));
}

int program_parse(const char *text, size_t length, const char *file, struct arena *arena, struct program *ret,
                  struct err *err)
{
    struct reader r = {.file = file, .at = text, .end = text + length, .arena = arena, .err = err};
    int result = is_ours(text, length) ? read_ours(&r) : read_torch(&r);
    if (result == 0)
        result = build(&r, ret);
    free(r.rows);
    return result;
}

int program_load(const char *path, struct arena *arena, struct program *ret, struct err *err)
{
    char *text;
    size_t length;
    if (file_read(path, FILE_MAX_BYTES, &text, &length, err) < 0)
        return -1;
    int result = program_parse(text, length, path, arena, ret, err);
    free(text);
    return result;
}

/* ---- writing ---- */

static void write_half(FILE *out, const struct program *p, unsigned micro_batch, int stage, int direction)
{
    fprintf(out, ",%u,%d,%d,%d", micro_batch, p->stage_chunk[direction * p->stages + stage], stage, direction);
}

char *program_to_csv(const struct program *program)
{
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    if (!out)
        return NULL;
    fprintf(out, "%s\n", csv_header);
    for (int r = 0; r < program->pp; r++)
        for (int i = 0, index = 0; i < program->n_ops[r]; i++) {
            const struct op *op = &program->ops[r][i];
            if (!op_is_compute(op))
                continue;
            fprintf(out, "%d,%d,%s", r, index++, op_kind_names[op->kind]);
            write_half(out, program, op->micro_batch, op->stage, op->direction);
            if (op->kind == OP_F_BW)
                write_half(out, program, op->micro_batch2, op->stage2, op->direction2);
            else
                fputs(",,,,", out);
            fputc('\n', out);
        }
    fclose(out);
    return text;
}

static void write_action(FILE *out, enum op_kind kind, int stage, unsigned micro_batch)
{
    for (size_t i = 0; i < sizeof torch_types / sizeof *torch_types; i++)
        if (torch_types[i].kind == kind) {
            fprintf(out, "%d%s", stage, torch_types[i].word);
            if (torch_types[i].micro_batch)
                fprintf(out, "%u", micro_batch);
        }
}

char *program_to_torch_csv(const struct program *program, struct err *err)
{
    if (program->directions > 1) {
        err_add(err, "PyTorch's CSV cannot hold two directions (two copies of every stage)");
        return NULL;
    }
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    if (!out)
        return NULL;
    for (int r = 0; r < program->pp; r++) {
        for (int i = 0; i < program->n_ops[r]; i++) {
            const struct op *op = &program->ops[r][i];
            fputs(i ? "," : "", out);
            if (op->kind == OP_F_BW) {
                fputc('(', out);
                write_action(out, OP_F, op->stage, op->micro_batch);
                fputc(';', out);
                write_action(out, OP_BW, op->stage2, op->micro_batch2);
                fputs(")OVERLAP_F_B", out);
            } else if (op->kind != OP_IDLE) {
                write_action(out, (enum op_kind)op->kind, op->stage, op->micro_batch);
            }
        }
        fputs("\r\n", out);
    }
    fclose(out);
    return text;
}
