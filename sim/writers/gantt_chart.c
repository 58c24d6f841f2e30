#include "sim/writers/gantt_chart.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cost/base/err.h"
#include "cost/base/unit.h"
#include "sim/engine.h"
#include "sim/program.h"
#include "sim/timeline.h"
#include "sim/writers/chart.h"

enum {
    WIDTH_MIN_PX = 900,
    WIDTH_MAX_PX = 4800,
    MARGIN_PX = 150,
    ROW_MIN_PX = 16,
    ROW_MAX_PX = 44,
    PLOT_MAX_PX = 1500,
    FONT_MIN = 6,
    FONT_MAX = 11
};

/* Okabe-Ito; a rank's odd chunks are lighter. */
static const struct {
    const char *fill[2], *text, *name;
} looks[] = {
    [OP_F] = {{"#0072B2", "#56B4E9"}, "#FFFFFF", "F forward"},
    [OP_B] = {{"#E69F00", "#F5CB73"}, "#000000", "B input gradient"},
    [OP_W] = {{"#009E73", "#66CFB0"}, "#000000", "W weight gradient"},
    [OP_BW] = {{"#D55E00", "#F0995A"}, "#000000", "BW both, fused"},
    [OP_F_BW] = {{"#CC79A7", "#E3B3CE"}, "#000000", "F&BW overlapped"},
};

struct picture {
    const struct program *program;
    const struct timeline *timeline;
    const struct gantt_chart *options;
    FILE *data, *script;
    char *data_text, *script_text;
    size_t data_length, script_length;
    int width_px, row_px, height_px;
    int font;   /* of the numbers in the boxes */
    int blocks; /* of the data file */
};

static double shown(const struct picture *p, double ticks)
{
    return ticks * p->options->per_tick;
}

static double px_of(const struct picture *p, double ticks)
{
    return ticks * (p->width_px - MARGIN_PX) / (double)p->timeline->makespan_ps;
}

static int chunk_of(const struct picture *p, const struct op *op)
{
    return p->program->stage_chunk[op->direction * p->program->stages + op->stage] % 2;
}

/* Width of a digit per point of font size, in pixels. */
static const double digit_width = 0.68;

/* As wide as the shortest op needs for its number, within limits; rows share the height. */
static void choose_size(struct picture *p)
{
    double shortest = (double)p->timeline->makespan_ps;
    int digits = p->program->micro_batches / p->program->directions > 10 ? 2 : 1;
    for (int r = 0; r < p->program->pp; r++)
        for (int i = 0; i < p->program->n_ops[r]; i++) {
            double ticks = (double)(p->timeline->end_ps[r][i] - p->timeline->start_ps[r][i]);
            if (op_is_compute(&p->program->ops[r][i]) && ticks > 0 && ticks < shortest)
                shortest = ticks;
        }
    double wanted = MARGIN_PX + (double)p->timeline->makespan_ps / shortest * (6 + 6 * digits);
    p->width_px = wanted < WIDTH_MIN_PX ? WIDTH_MIN_PX : wanted > WIDTH_MAX_PX ? WIDTH_MAX_PX : (int)wanted;
    p->row_px = PLOT_MAX_PX / p->program->pp;
    p->row_px = p->row_px < ROW_MIN_PX ? ROW_MIN_PX : p->row_px > ROW_MAX_PX ? ROW_MAX_PX : p->row_px;
    p->height_px = 190 + p->row_px * p->program->pp;
    int fits = (int)(px_of(p, shortest) / (digits * digit_width));
    p->font = fits < FONT_MIN ? FONT_MIN : fits > FONT_MAX ? FONT_MAX : fits;
}

static int open_picture(struct picture *p, const struct program *program, const struct timeline *timeline,
                        const struct gantt_chart *options)
{
    *p = (struct picture){.program = program, .timeline = timeline, .options = options};
    p->data = open_memstream(&p->data_text, &p->data_length);
    p->script = open_memstream(&p->script_text, &p->script_length);
    return p->data && p->script ? 0 : -1;
}

static int draw(struct picture *p, const char *path, struct err *err)
{
    int closed = (p->data ? fclose(p->data) : -1) | (p->script ? fclose(p->script) : -1);
    struct chart chart = {
        .width_px = p->width_px, .height_px = p->height_px, .data = p->data_text, .script = p->script_text};
    int result = closed == 0 ? chart_draw(path, &chart, err) : err_add(err, "no picture '%s': out of memory", path);
    free(p->data_text);
    free(p->script_text);
    return result;
}

static void put_title(const struct picture *p, const char *what)
{
    char text[512];
    snprintf(text, sizeof text, "%s: %s%.6g %s, bubble %.1f %%", p->options->title, what,
             shown(p, (double)p->timeline->makespan_ps), p->options->unit, 100 * timeline_bubble_fraction(p->timeline));
    fputs("set title ", p->script);
    chart_quote(p->script, text);
    fputs(" font ',14' textcolor rgb '#222222'\n", p->script);
    fputs(
        "set border 3 lc rgb '#444444'\nset tics nomirror out scale 0.5 textcolor rgb '#222222'\n"
        "set key at screen 0.5, 0.01 center bottom horizontal reverse Left samplen 1.2 width 1 maxrows 3\nset bmargin 7.5\nset xlabel ",
        p->script);
    snprintf(text, sizeof text, "time (%s)", p->options->unit);
    chart_quote(p->script, text);
    fprintf(p->script, " textcolor rgb '#222222'\nset xrange [0:%.15g]\n", shown(p, (double)p->timeline->makespan_ps));
}

static void end_block(struct picture *p)
{
    fputs("\n\n", p->data);
    p->blocks++;
}

/* ---- Gantt ---- */

/* The number in a box, where it fits. */
static void label_of(const struct picture *p, const struct op *op, double ticks, char *label, size_t size)
{
    double room = px_of(p, ticks), width = p->font * digit_width;
    snprintf(label, size, "%u", op->micro_batch);
    if (op->kind == OP_F_BW)
        snprintf(label, size, "%u|%u", op->micro_batch, op->micro_batch2);
    if (op->kind == OP_F_BW && (double)strlen(label) * width > room)
        snprintf(label, size, "%u", op->micro_batch);
    if ((double)strlen(label) * width > room)
        label[0] = 0;
}

/* Boxes of one kind and chunk parity: from, to, row, label. Boxes that would be thinner than a pixel are joined. */
static int put_boxes(struct picture *p, int kind, int parity)
{
    int n = 0;
    for (int r = 0; r < p->program->pp; r++) {
        double from = -1, to = -1;
        char label[32];
        for (int i = 0; i < p->program->n_ops[r]; i++) {
            const struct op *op = &p->program->ops[r][i];
            if (op->kind != kind || chunk_of(p, op) != parity)
                continue;
            double start = (double)p->timeline->start_ps[r][i], end = (double)p->timeline->end_ps[r][i];
            if (from >= 0 && px_of(p, start - to) < 0.5 && px_of(p, to - from) < 1) {
                to = end;
                continue;
            }
            if (from >= 0)
                fprintf(p->data, "%.15g\t%.15g\t%d\t\"%s\"\n", shown(p, from), shown(p, to), r, label);
            from = start;
            to = end;
            label_of(p, op, to - from, label, sizeof label);
            n++;
        }
        if (from >= 0)
            fprintf(p->data, "%.15g\t%.15g\t%d\t\"%s\"\n", shown(p, from), shown(p, to), r, label);
    }
    return n;
}

static int64_t message_ps(const struct picture *p, int direction, int boundary)
{
    const int64_t *values = p->options->costs ? p->options->costs->p2p_ps : NULL;
    return values ? values[direction == 0 ? boundary : p->program->pp - 2 - boundary] : 0;
}

/* A message's line under its sender's row. */
static int put_message(struct picture *p, int r, int direction, int from, int to, double start)
{
    const uint16_t *rank = p->program->stage_rank + direction * p->program->stages;
    if (to < 0 || to >= p->program->stages || rank[to] == r)
        return 0;
    double length = (double)message_ps(p, direction, from < to ? from : to);
    if (px_of(p, length) < 0.5)
        return 0;
    fprintf(p->data, "%.15g\t%.15g\t%d\t%d\n", shown(p, start), shown(p, start + length), r, from < to);
    return 1;
}

static int put_messages(struct picture *p)
{
    int n = 0;
    for (int r = 0; r < p->program->pp; r++)
        for (int i = 0; i < p->program->n_ops[r]; i++) {
            const struct op *op = &p->program->ops[r][i];
            double end = (double)p->timeline->end_ps[r][i];
            if (op->kind == OP_F || op->kind == OP_F_BW)
                n += put_message(p, r, op->direction, op->stage, op->stage + 1, end);
            if (op->kind == OP_B || op->kind == OP_BW)
                n += put_message(p, r, op->direction, op->stage, op->stage - 1, end);
            if (op->kind == OP_F_BW)
                n += put_message(p, r, op->direction2, op->stage2, op->stage2 - 1, end);
        }
    return n;
}

static void put_rank_axis(struct picture *p)
{
    int step = p->program->pp > 32 ? 4 : 1;
    fprintf(p->script, "set yrange [%.2f:-0.6] noextend\nset ylabel 'rank' textcolor rgb '#222222'\nset ytics %d\n",
            p->program->pp - 0.4, step);
    fprintf(p->script, "set style fill solid 1.0 border lc rgb '#FFFFFF'\nplot \\\n");
    for (int r = 0; r < p->program->pp; r++)
        fprintf(p->data, "0\t%.15g\t%d\n", shown(p, (double)p->timeline->makespan_ps), r);
    end_block(p);
    fputs("  data index 0 using 1:3:1:2:($3-0.42):($3+0.42) with boxxyerror fc rgb '#EEEEEE' title 'idle'", p->script);
}

int gantt_chart_draw(const char *path, const struct program *program, const struct timeline *timeline,
                     const struct gantt_chart *options, struct err *err)
{
    struct picture p;
    if (open_picture(&p, program, timeline, options) < 0)
        return draw(&p, path, err);
    choose_size(&p);
    put_title(&p, "makespan ");
    put_rank_axis(&p);
    for (int kind = OP_F; kind <= OP_F_BW; kind++)
        for (int parity = 0; parity < 2; parity++) {
            if (put_boxes(&p, kind, parity) == 0)
                continue;
            fprintf(
                p.script,
                ", \\\n  data index %d using 1:3:1:2:($3-0.42):($3+0.42) with boxxyerror fc rgb '%s' title '%s%s', \\\n",
                p.blocks, looks[kind].fill[parity], looks[kind].name,
                !parity                                 ? ""
                : program->placement == PLACEMENT_BIDIR ? ", direction 1"
                                                        : ", odd chunk");
            fprintf(p.script, "  data index %d using (($1+$2)/2):3:4 with labels font ',%d' textcolor rgb '%s' notitle",
                    p.blocks, p.font, parity ? "#000000" : looks[kind].text);
            end_block(&p);
        }
    if (put_messages(&p) > 0) {
        fprintf(
            p.script,
            ", \\\n  data index %d using 1:($3+0.46):($2-$1):(0) with vectors nohead lw 2 lc rgb '#000000' title 'communication'",
            p.blocks);
        end_block(&p);
    }
    fputc('\n', p.script);
    return draw(&p, path, err);
}

/* ---- memory over time ---- */

/* Step function of one rank: time, held. */
static void put_memory(struct picture *p, int r, double per_byte, double per_chunk)
{
    const int64_t *all = p->options->costs ? p->options->costs->act_bytes : NULL,
                  *by_b = all ? p->options->costs->act_b_bytes : NULL;
    double held = 0;
    fprintf(p->data, "0\t0\n");
    for (int i = 0; i < p->program->n_ops[r]; i++) {
        const struct op *op = &p->program->ops[r][i];
        int kind = op->kind == OP_F_BW ? OP_BW : op->kind, stage = op->kind == OP_F_BW ? op->stage2 : op->stage;
        if (!op_is_compute(op))
            continue;
        if (op->kind == OP_F || op->kind == OP_F_BW) {
            held += all ? (double)all[op->stage] * per_byte : per_chunk;
            fprintf(p->data, "%.15g\t%.9g\n", shown(p, (double)p->timeline->start_ps[r][i]), held);
        }
        if (kind == OP_F)
            continue;
        double whole = all ? (double)all[stage] * per_byte : per_chunk,
               first = by_b ? (double)by_b[stage] * per_byte : 0;
        held -= kind == OP_BW ? whole : kind == OP_B ? first : whole - first;
        fprintf(p->data, "%.15g\t%.9g\n", shown(p, (double)p->timeline->end_ps[r][i]), held);
    }
    fprintf(p->data, "%.15g\t0\n", shown(p, (double)p->timeline->makespan_ps));
}

int gantt_chart_memory(const char *path, const struct program *program, const struct timeline *timeline,
                       const struct gantt_chart *options, struct err *err)
{
    struct picture p;
    if (open_picture(&p, program, timeline, options) < 0)
        return draw(&p, path, err);
    bool bytes = options->costs && options->costs->act_bytes;
    p.width_px = 1200;
    p.height_px = 640;
    put_title(&p, "activations over time, makespan ");
    fprintf(p.script, "set ylabel '%s' textcolor rgb '#222222'\nset yrange [0:*]\nset grid ytics lc rgb '%s'\n",
            bytes ? "activations held (GiB)" : "activations held (stages)", chart_light_grey);
    fprintf(p.script,
            "set palette defined (0 '#0072B2', 1 '#56B4E9', 2 '#009E73', 3 '#F0E442', 4 '#E69F00', 5 '#D55E00')\n"
            "unset colorbox\nset cbrange [0:%d]\nplot \\\n",
            program->pp > 1 ? program->pp - 1 : 1);
    for (int r = 0; r < program->pp; r++) {
        put_memory(&p, r, 1 / UNIT_GIB, options->stages_per_chunk);
        bool named = program->pp <= 16 || r == 0 || r == program->pp - 1 || r % ((program->pp + 7) / 8) == 0;
        char name[32];
        snprintf(name, sizeof name, "title 'rank %d'", r);
        fprintf(p.script, "%s  data index %d using 1:2 with steps lw 2 lc palette cb %d %s", r ? ", \\\n" : "",
                p.blocks, r, named ? name : "notitle");
        end_block(&p);
    }
    fputc('\n', p.script);
    return draw(&p, path, err);
}
