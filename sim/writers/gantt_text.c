#include "sim/writers/gantt_text.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "sim/program.h"
#include "sim/timeline.h"

enum { COLUMNS_DEFAULT = 100, COLUMNS_MIN = 8, COLUMNS_MAX = 2000, CELL_MAX = 4, OP_CELLS = 4, LABEL_MAX = 48 };

static const struct {
    const char *shade[2], *colour, *meaning; /* shade: Unicode, ASCII */
} styles[] = {
    [OP_F] = {{"\u2591", "-"}, "\033[97;48;5;25m", "F forward"},           /* blue */
    [OP_B] = {{"\u2593", "+"}, "\033[30;48;5;214m", "B input gradient"},   /* orange */
    [OP_W] = {{"\u2592", "="}, "\033[30;48;5;36m", "W weight gradient"},   /* green */
    [OP_BW] = {{"\u2588", "#"}, "\033[97;48;5;166m", "BW both, fused"},    /* vermillion */
    [OP_F_BW] = {{"\u259e", "%"}, "\033[97;48;5;133m", "F&BW overlapped"}, /* purple */
};
static const char *const idle_text[2] = {"\u00b7", "."};

/* One line of the chart: a glyph per column. */
struct line {
    int columns;
    char (*glyph)[CELL_MAX];
    signed char *kind; /* -1 = idle */
    bool *labelled;    /* part of an op's label */
};

int gantt_text_columns(FILE *out)
{
    struct winsize size;
    if (isatty(fileno(out)) && ioctl(fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        return size.ws_col < COLUMNS_MAX ? size.ws_col : COLUMNS_MAX;
    return COLUMNS_DEFAULT;
}

bool gantt_text_colour(FILE *out)
{
    const char *no_colour = getenv("NO_COLOR"), *terminal = getenv("TERM");
    return isatty(fileno(out)) && !(no_colour && *no_colour) && !(terminal && strcmp(terminal, "dumb") == 0);
}

/* What the locale variables say: does a terminal show UTF-8? */
static bool locale_is_utf8(void)
{
    static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *value = getenv(names[i]);
        if (value && *value)
            return strstr(value, "UTF-8") || strstr(value, "utf8") || strstr(value, "UTF8") || strstr(value, "utf-8");
    }
    return false;
}

bool gantt_text_ascii(FILE *out)
{
    return isatty(fileno(out)) && !locale_is_utf8();
}

/* Columns of the chart: whole cells for the shortest op where there is room, OP_CELLS of them at most. */
static int choose_columns(const struct program *p, const struct timeline *t, int columns)
{
    int64_t shortest = INT64_MAX;
    for (int r = 0; r < p->pp; r++)
        for (int i = 0; i < p->n_ops[r]; i++) {
            int64_t duration = t->end_ps[r][i] - t->start_ps[r][i];
            if (op_is_compute(&p->ops[r][i]) && duration > 0 && duration < shortest)
                shortest = duration;
        }
    if (shortest == INT64_MAX || t->makespan_ps <= 0)
        return columns;
    double ops = (double)t->makespan_ps / (double)shortest;
    int cells = (int)(columns / ops) < OP_CELLS ? (int)(columns / ops) : OP_CELLS;
    return cells >= 1 ? (int)(cells * ops + 0.5) : columns;
}

static void half_label(const struct program *p, const char *kind, unsigned micro_batch, int direction, int stage,
                       bool chunk, char *text, size_t size)
{
    int number = p->stage_chunk[direction * p->stages + stage];
    if (chunk && p->chunks > 1 && number < 26)
        snprintf(text, size, "%s%u%c", kind, micro_batch, 'a' + number);
    else
        snprintf(text, size, "%s%u", kind, micro_batch);
}

/* The longest label of an op that fits `room` columns; "" when none does. */
static void choose_label(const struct program *p, const struct op *op, int room, char *label)
{
    for (int brevity = 0; brevity < 3; brevity++) {
        const char *kind = brevity < 2 ? op_kind_names[op->kind == OP_F_BW ? OP_F : op->kind] : "";
        half_label(p, kind, op->micro_batch, op->direction, op->stage, brevity == 0, label, LABEL_MAX / 2);
        if (op->kind == OP_F_BW) {
            size_t n = strlen(label);
            label[n] = '&';
            half_label(p, brevity < 2 ? "BW" : "", op->micro_batch2, op->direction2, op->stage2, brevity == 0,
                       label + n + 1, LABEL_MAX - n - 1);
        }
        if ((int)strlen(label) <= room)
            return;
    }
    label[0] = 0;
}

static int column_of(const struct timeline *t, const struct line *line, int64_t time_ps)
{
    return (int)((double)time_ps * line->columns / (double)t->makespan_ps + 0.5);
}

static void draw_op(const struct program *p, const struct timeline *t, const struct op *op, int64_t start_ps,
                    int64_t end_ps, bool ascii, struct line *line)
{
    char label[LABEL_MAX];
    int from = column_of(t, line, start_ps), to = column_of(t, line, end_ps);
    choose_label(p, op, to - from, label);
    int length = (int)strlen(label);
    for (int c = from; c < to && c < line->columns; c++) {
        line->kind[c] = (signed char)op->kind;
        line->labelled[c] = c - from < length;
        if (line->labelled[c])
            snprintf(line->glyph[c], CELL_MAX, "%c", label[c - from]);
        else
            memcpy(line->glyph[c], styles[op->kind].shade[ascii], strlen(styles[op->kind].shade[ascii]) + 1);
    }
}

static void print_line(FILE *out, const struct line *line, bool colour, bool ascii)
{
    int kind = -1;
    for (int c = 0; c < line->columns; c++) {
        if (colour && line->kind[c] != kind)
            fputs(line->kind[c] < 0 ? "\033[0m" : styles[line->kind[c]].colour, out);
        kind = line->kind[c];
        fputs(kind < 0 ? idle_text[ascii] : colour && !line->labelled[c] ? " " : line->glyph[c], out);
    }
    if (colour && kind >= 0)
        fputs("\033[0m", out);
}

static void print_legend(FILE *out, const struct program *p, bool colour, bool ascii)
{
    bool used[OP_KINDS] = {false};
    for (int r = 0; r < p->pp; r++)
        for (int i = 0; i < p->n_ops[r]; i++)
            used[p->ops[r][i].kind] = true;
    for (int kind = OP_F; kind <= OP_F_BW; kind++)
        if (used[kind])
            fprintf(out, "%s%s%s %s   ", colour ? styles[kind].colour : "", colour ? "  " : styles[kind].shade[ascii],
                    colour ? "\033[0m" : "", styles[kind].meaning);
    fprintf(out, "%s idle\n", idle_text[ascii]);
}

void gantt_text_print(FILE *out, const struct program *program, const struct timeline *timeline, int columns,
                      bool colour, bool ascii)
{
    char label[32];
    int width = snprintf(label, sizeof label, "rank %d ", program->pp - 1), room = columns - width - 1;
    room = room < COLUMNS_MIN ? COLUMNS_MIN : room > COLUMNS_MAX ? COLUMNS_MAX : room;
    struct line line = {.columns = choose_columns(program, timeline, room)};
    line.glyph = malloc((size_t)line.columns * sizeof *line.glyph);
    line.kind = malloc((size_t)line.columns);
    line.labelled = malloc((size_t)line.columns * sizeof *line.labelled);
    for (int r = 0; r < program->pp && line.glyph && line.kind && line.labelled; r++) {
        memset(line.kind, -1, (size_t)line.columns);
        for (int k = 0; k < timeline->iterations && timeline->makespan_ps > 0; k++)
            for (int i = 0; i < program->n_ops[r]; i++) {
                size_t at = (size_t)k * (size_t)program->n_ops[r] + (size_t)i;
                if (op_is_compute(&program->ops[r][i]))
                    draw_op(program, timeline, &program->ops[r][i], timeline->start_ps[r][at], timeline->end_ps[r][at],
                            ascii, &line);
            }
        snprintf(label, sizeof label, "rank %d", r);
        fprintf(out, "%-*s|", width, label);
        print_line(out, &line, colour, ascii);
        fputc('\n', out);
    }
    free(line.glyph);
    free(line.kind);
    free(line.labelled);
    print_legend(out, program, colour, ascii);
}
