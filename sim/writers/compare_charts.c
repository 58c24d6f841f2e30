#include "sim/writers/compare_charts.h"

#include <stdio.h>
#include <stdlib.h>

#include "cost/base/arena.h"
#include "cost/base/err.h"
#include "sim/pricing.h"
#include "sim/schedule.h"
#include "sim/writers/chart.h"

enum { WIDTH_PX = 1200, HEIGHT_PX = 760, POINTS_MAX = 48 };

static const enum chart_colour colours[] = {CHART_BLUE, CHART_ORANGE, CHART_GREEN, CHART_VERMILLION,
                                            CHART_SKY,  CHART_PURPLE, CHART_BLACK};
enum { COLOURS = sizeof colours / sizeof *colours };
static const int marks[] = {7, 5, 9, 11, 13}; /* filled circle, square, triangles, diamond */

struct picture {
    FILE *data, *script;
    char *data_text, *script_text;
    size_t data_length, script_length;
};

static int open_picture(struct picture *p)
{
    *p = (struct picture){0};
    p->data = open_memstream(&p->data_text, &p->data_length);
    p->script = open_memstream(&p->script_text, &p->script_length);
    return p->data && p->script ? 0 : -1;
}

static int draw(struct picture *p, const char *path, struct err *err)
{
    int closed = (p->data ? fclose(p->data) : -1) | (p->script ? fclose(p->script) : -1);
    struct chart chart = {.width_px = WIDTH_PX, .height_px = HEIGHT_PX, .data = p->data_text, .script = p->script_text};
    int result = closed == 0 ? chart_draw(path, &chart, err) : err_add(err, "no picture '%s': out of memory", path);
    free(p->data_text);
    free(p->script_text);
    return result;
}

static void put_frame(FILE *out, const char *title, const char *x, const char *y)
{
    fputs("set title ", out);
    chart_quote(out, title);
    fprintf(out,
            " font ',15' textcolor rgb '#222222'\nset border 3 lc rgb '#444444'\n"
            "set tics nomirror out scale 0.5 textcolor rgb '#222222'\nset grid lc rgb '%s'\n"
            "set xlabel '%s' textcolor rgb '#222222'\nset ylabel '%s' textcolor rgb '#222222'\n",
            chart_light_grey, x, y);
}

/* ---- makespan against memory ---- */

static int by_memory(const void *a, const void *b)
{
    const struct compare_point *x = a, *y = b;
    if (x->peak_activations < y->peak_activations || x->peak_activations > y->peak_activations)
        return x->peak_activations < y->peak_activations ? -1 : 1;
    if (x->makespan < y->makespan || x->makespan > y->makespan)
        return x->makespan < y->makespan ? -1 : 1;
    return (int)x->schedule - (int)y->schedule;
}

static bool same_place(const struct compare_point *a, const struct compare_point *b)
{
    return !(a->makespan < b->makespan) && !(a->makespan > b->makespan) &&
           !(a->peak_activations < b->peak_activations) && !(a->peak_activations > b->peak_activations);
}

/* Where names go, in the plot's own fractions: right of their point, or lines above or below where that is taken. */
struct label {
    double x, y, width;
    char text[256];
};

struct labels {
    double low_x, low_y, size_x, size_y; /* of the plot, in the units of the points */
    int n;
    struct label item[2 * SCHEDULES]; /* the points first: names do not cover them */
};

static const double letter_width = 0.0062, line_height = 0.024,
                    point_gap = 0.008; /* fractions of the plot, font 10 or 11 */

static bool overlaps(const struct label *a, const struct label *b)
{
    return a->x < b->x + b->width && b->x < a->x + a->width && a->y < b->y + line_height && b->y < a->y + line_height;
}

/* The nearest free line: 0, +1, -1, +2, ... */
static void place_label(struct labels *labels, struct label *label)
{
    double y = label->y;
    for (int try = 0; try < 2 * SCHEDULES; try++) {
        label->y = y + (try % 2 ? 1 : -1) * ((try + 1) / 2) * line_height;
        bool taken = label->y < line_height || label->y > 1 - line_height;
        for (int i = 0; i < labels->n && !taken; i++)
            taken = overlaps(label, &labels->item[i]);
        if (!taken)
            break;
    }
    labels->item[labels->n++] = *label;
}

/* Points of one kind: memory, makespan, and where the names of all that share the place go. */
static void put_points(FILE *out, struct labels *labels, const struct compare_point *points, int n, bool pareto)
{
    for (int i = 0; i < n; i++) {
        if (points[i].pareto != pareto)
            continue;
        double x = points[i].peak_activations, y = points[i].makespan;
        struct label label = {.x = (x - labels->low_x) / labels->size_x + point_gap,
                              .y = (y - labels->low_y) / labels->size_y + (pareto ? line_height : 0)};
        int length = snprintf(label.text, sizeof label.text, "%s", schedule_names[points[i].schedule]);
        for (; i + 1 < n && same_place(&points[i], &points[i + 1]); i++)
            length += snprintf(label.text + length, sizeof label.text - (size_t)length, ", %s",
                               schedule_names[points[i + 1].schedule]);
        label.width = length * letter_width;
        if (label.x + label.width > 1) /* no room on the right */
            label.x -= label.width + 2 * point_gap;
        double point = (x - labels->low_x) / labels->size_x, near = label.x > point ? label.x : label.x + label.width;
        place_label(labels, &label);
        fprintf(out, "%.15g\t%.15g\t\"%s\"\t%.9g\t%.9g\t%.9g\n", x, y, label.text, labels->low_x + label.x * labels->size_x,
                labels->low_y + label.y * labels->size_y, labels->low_x + near * labels->size_x);
    }
    fputs("\n\n", out);
}

/* The range of the points with room for the names; the axis of memory begins at 0. */
static struct labels plot_range(const struct compare_point *points, int n)
{
    double low = points[0].makespan, high = low, most = 0;
    for (int i = 0; i < n; i++) {
        low = points[i].makespan < low ? points[i].makespan : low;
        high = points[i].makespan > high ? points[i].makespan : high;
        most = points[i].peak_activations > most ? points[i].peak_activations : most;
    }
    double spread = high > low ? high - low : high > 0 ? high : 1;
    struct labels labels = {
        .low_y = low - 0.1 * spread, .size_y = high - low + 0.22 * spread, .size_x = most > 0 ? 1.22 * most : 1};
    for (int i = 0; i < n; i++)
        labels.item[labels.n++] = (struct label){.x = points[i].peak_activations / labels.size_x - 0.75 * point_gap,
                                                 .y = (points[i].makespan - labels.low_y) / labels.size_y,
                                                 .width = 1.5 * point_gap};
    return labels;
}

int compare_chart_scatter(const char *path, const char *title, const struct compare_point *points, int n,
                          struct err *err)
{
    struct picture p;
    if (open_picture(&p) < 0 || n == 0)
        return n == 0 ? err_add(err, "no picture '%s': no schedule to draw", path) : draw(&p, path, err);
    struct compare_point *sorted = malloc((size_t)n * sizeof *sorted);
    for (int i = 0; sorted && i < n; i++)
        sorted[i] = points[i];
    struct labels labels = plot_range(points, n);
    if (sorted) {
        qsort(sorted, (size_t)n, sizeof *sorted, by_memory);
        put_points(p.data, &labels, sorted, n, true); /* these have the first choice of places */
        put_points(p.data, &labels, sorted, n, false);
    }
    free(sorted);
    put_frame(p.script, title, "most activations of a rank (stages)", "makespan (units of cost)");
    fprintf(p.script,
            "set xrange [0:%.9g]\nset yrange [%.9g:%.9g]\nset key inside top right\nplot \\\n"
            "  data index 0 using 1:2 with fsteps lw 1.5 dt 2 lc rgb '%s' notitle, \\\n"
            "  data index 1 using 1:2 with points pt 7 ps 1.3 lc rgb '%s' title 'beaten in both', \\\n"
            "  data index 1 using 1:2:($6 - $1):(abs($5 - $2) > %.9g ? $5 - $2 : NaN) with vectors nohead lw 0.7 lc rgb '%s' notitle, \\\n"
            "  data index 1 using 4:5:3 with labels left font ',10' textcolor rgb '#666666' notitle, \\\n"
            "  data index 0 using 1:2 with points pt 7 ps 1.8 lc rgb '%s' title 'not beaten in both', \\\n"
            "  data index 0 using 4:5:3 with labels left font ',11' textcolor rgb '#000000' notitle\n",
            labels.size_x, labels.low_y, labels.low_y + labels.size_y, chart_palette[CHART_BLUE], chart_grey,
            0.5 * line_height * labels.size_y, chart_grey, chart_palette[CHART_BLUE]);
    return draw(&p, path, err);
}

/* ---- bubbles against micro-batches ---- */

/* 1, 2, 3, ... then in steps that grow, POINTS_MAX at most. */
static int next_count(int count, int most)
{
    int step = count < 16 ? 1 : count / 8;
    return count < most && count + step > most ? most : count + step;
}

static int put_line(FILE *out, const struct pricing *pricing, int pp, int vp, int most, enum plan_schedule schedule)
{
    int n = 0;
    for (int m = 1; m <= most; m = next_count(m, most)) {
        struct arena arena = {0};
        struct priced priced;
        const struct schedule *s = schedule_of(schedule);
        struct schedule_request request = {.pp = pp, .vp = s->vp_max > 2 && vp ? vp : 0, .micro_batches = m};
        if (s->placement == PLACEMENT_BIDIR && m % 2 != 0)
            request.micro_batches = m + 1;
        if (pricing_schedule(pricing, schedule, &request, false, &arena, &priced, NULL) == 0) {
            fprintf(out, "%d\t%.9g\n", request.micro_batches, 100 * timeline_bubble_fraction(&priced.timeline));
            n++;
        } else {
            fputc('\n', out);
        }
        arena_release(&arena);
    }
    fputs("\n\n", out);
    return n;
}

int compare_chart_bubbles(const char *path, const struct pricing *pricing, int pp, int vp, int most_micro_batches,
                          const enum plan_schedule *which, int n, struct err *err)
{
    struct picture p;
    char title[256];
    if (open_picture(&p) < 0)
        return draw(&p, path, err);
    snprintf(title, sizeof title, "bubble against micro-batches: pp %d, F %.6g, B %.6g, W %.6g, one hop %.6g", pp,
             pricing->cost[0], pricing->cost[1], pricing->cost[2], pricing->comm);
    put_frame(p.script, title, "micro-batches", "bubble (% of all ranks’ time)");
    fprintf(p.script,
            "set logscale x 2\nset xrange [1:%d]\nset yrange [0:100]\nset key outside right top samplen 2\nplot \\\n",
            most_micro_batches > 1 ? most_micro_batches : 2);
    for (int i = 0; i < n; i++) {
        put_line(p.data, pricing, pp, vp, most_micro_batches, which[i]);
        fprintf(p.script,
                "%s  data index %d using 1:2 with linespoints lw 1.5 dt %d pt %d ps 0.7 lc rgb '%s' title '%s'",
                i ? ", \\\n" : "", i, 1 + i / COLOURS, marks[(size_t)i % (sizeof marks / sizeof *marks)],
                chart_palette[colours[i % COLOURS]], schedule_names[which[i]]);
    }
    fputc('\n', p.script);
    return draw(&p, path, err);
}
