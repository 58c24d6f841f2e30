#include "config.h"

#include "sim/writers/plan_charts.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cost/base/err.h"
#include "cost/base/unit.h"
#include "cost/plan.h"
#include "sim/predict.h"
#include "sim/writers/chart.h"

/* How a part of a bar looks; the same part has the same colour in every picture. */
struct part_style {
    const char *label;
    const char *fill, *text; /* colours of the box and of what is written in it */
};

static const struct part_style time_styles[TIME_PARTS] = {
    [TIME_COMPUTE] = {"compute", "#0072B2", "#FFFFFF"},     [TIME_RECOMPUTE] = {"recompute", "#56B4E9", "#000000"},
    [TIME_TP] = {"TP exposed", "#E69F00", "#000000"},       [TIME_CP] = {"CP exposed", "#F0E442", "#000000"},
    [TIME_EP] = {"EP exposed", "#D55E00", "#FFFFFF"},       [TIME_PP] = {"PP exposed", "#009E73", "#FFFFFF"},
    [TIME_DP] = {"DP exposed", "#CC79A7", "#000000"},       [TIME_BUBBLE] = {"bubble", "#DDDDDD", "#000000"},
    [TIME_OPTIMIZER] = {"optimizer", "#444444", "#FFFFFF"}, [TIME_OTHER] = {"other", "#999999", "#000000"},
};

static const struct part_style memory_styles[MEMORY_PARTS] = {
    [MEMORY_WEIGHTS] = {"weights", "#0072B2", "#FFFFFF"},
    [MEMORY_GRADIENTS] = {"gradients", "#56B4E9", "#000000"},
    [MEMORY_OPTIMIZER] = {"optimizer", "#444444", "#FFFFFF"},
    [MEMORY_ACTIVATIONS] = {"activations", "#E69F00", "#000000"},
    [MEMORY_LOGITS] = {"logits", "#F0E442", "#000000"},
    [MEMORY_TEMPORARY] = {"temporary", "#009E73", "#FFFFFF"},
    [MEMORY_COMMUNICATION] = {"communication", "#D55E00", "#FFFFFF"},
    [MEMORY_CONTEXT] = {"context", "#999999", "#000000"},
    [MEMORY_FRAGMENTATION] = {"fragmentation", "#DDDDDD", "#000000"},
};

/* Parts below this share of the longest bar are left out of the legend; all are in the data. */
static const double smallest_share = 0.002;
/* Parts from this share of the axis on have their percentage written in them: the text is as wide beside long names of plans. */
static const double written_share = 0.07;

static const char common_script[] =
    "set datafile columnheaders\n"
    "set border 3 lc rgb '#444444'\n"
    "set tics nomirror out scale 0.5 textcolor rgb '#222222'\n"
    "set style fill solid 1.0 border lc rgb '#FFFFFF'\n"
    "set key outside bottom center horizontal reverse Left samplen 1.2 width 0 maxcols 6\n";

static double largest_time_s(const struct prediction *predictions, int n, int part)
{
    double largest = 0;
    for (int i = 0; i < n; i++)
        largest = predictions[i].time_s[part] > largest ? predictions[i].time_s[part] : largest;
    return largest;
}

static double largest_bytes(const struct prediction *p, int part)
{
    double largest = 0;
    for (int stage = 0; stage < p->n_stages; stage++)
        largest = p->stage[stage].bytes[part] > largest ? p->stage[stage].bytes[part] : largest;
    return largest;
}

struct text {
    char *chars;
    size_t length;
    FILE *out;
};

static int text_open(struct text *text)
{
    *text = (struct text){0};
    text->out = open_memstream(&text->chars, &text->length);
    return text->out ? 0 : -1;
}

/* Draws what was written to data and script, and frees both. */
static int finish(const char *path, int width_px, int height_px, struct text *data, struct text *script,
                  struct err *err)
{
    int closed = (data->out ? fclose(data->out) : -1) | (script->out ? fclose(script->out) : -1);
    struct chart chart = {.width_px = width_px, .height_px = height_px, .data = data->chars, .script = script->chars};
    int result = closed == 0 ? chart_draw(path, &chart, err) : err_add(err, "no picture: out of memory");
    free(data->chars);
    free(script->chars);
    return result;
}

/* "14.56", "3.2": three figures or so. */
static int decimals(double value)
{
    return value >= 100 ? 0 : value >= 10 ? 1 : 2;
}

static void put_title(FILE *out, const char *what, const char *title)
{
    char text[512];
    snprintf(text, sizeof(text), "%s: %s", title, what);
    fputs("set title ", out);
    chart_quote(out, text);
    fputs(" font ',15' textcolor rgb '#222222'\n", out);
}

/* Boxes of part `column` stacked on the columns before it. along: 'x' for horizontal bars, 'y' for vertical ones. */
static void put_boxes(FILE *out, int first, int column, const struct part_style *style, char along)
{
    const char *before = "(sum [k=%d:%d] column(k))";
    char low[64] = "0", high[64];
    if (column > first)
        snprintf(low, sizeof(low), before, first, column - 1);
    snprintf(high, sizeof(high), before, first, column);
    if (along == 'x')
        fprintf(out, "  data using (0):($0):(%s):(%s):($0-0.36):($0+0.36)", low, high);
    else
        fprintf(out, "  data using ($0):(0):($0-0.4):($0+0.4):(%s):(%s)", low, high);
    fprintf(out, " with boxxyerror fc rgb '%s' title '%s', \\\n", style->fill, style->label);
}

static void put_time_data(FILE *out, const struct prediction *predictions, int n, double unit_s, int places)
{
    fputs("plan", out);
    for (int part = 0; part < TIME_PARTS; part++)
        fprintf(out, "\t%s", time_part_names[part]);
    fputs("\tstep_time\tlow\thigh\tnote\n", out);
    for (int i = 0; i < n; i++) {
        const struct prediction *p = &predictions[i];
        char name[256];
        fputs(plan_format(&p->plan, name, sizeof(name)), out);
        for (int part = 0; part < TIME_PARTS; part++)
            fprintf(out, "\t%.9g", p->time_s[part] / unit_s);
        fprintf(out, "\t%.9g\t%.9g\t%.9g\t%.*f %s, %.1f %% MFU\n", p->step_time_s / unit_s, p->step_time_low_s / unit_s,
                p->step_time_high_s / unit_s, places, p->step_time_s / unit_s, unit_s < 1 ? "ms" : "s", 100 * p->mfu);
    }
}

int plan_chart_breakdown(const char *path, const char *title, const struct prediction *predictions, int n,
                         struct err *err)
{
    enum { FIRST = 2, TOTAL = FIRST + TIME_PARTS, LOW, HIGH, NOTE };
    n = n < PLAN_CHART_ROWS_MAX ? n : PLAN_CHART_ROWS_MAX;
    double longest_s = 0, high_s = 0;
    for (int i = 0; i < n; i++) {
        longest_s = predictions[i].step_time_s > longest_s ? predictions[i].step_time_s : longest_s;
        high_s = predictions[i].step_time_high_s > high_s ? predictions[i].step_time_high_s : high_s;
    }
    high_s = high_s > longest_s ? high_s : longest_s;
    if (n <= 0 || !(longest_s > 0))
        return err_add(err, "no picture: there is no step time to draw");

    double unit_s = longest_s < 1 ? 1e-3 : 1;
    struct text data, script;
    int opened = text_open(&data) | text_open(&script);
    if (opened != 0)
        return finish(path, 0, 0, &data, &script, err);
    put_time_data(data.out, predictions, n, unit_s, decimals(longest_s / unit_s));

    FILE *out = script.out;
    put_title(out, "where the time of a step goes", title);
    fputs(common_script, out);
    fprintf(out, "set xlabel 'time per step (%s)'\n", unit_s < 1 ? "ms" : "s");
    double axis_s = 1.3 * high_s;
    fprintf(out, "set xrange [0:%.9g]\nset yrange [%d.6:-0.6]\n", axis_s / unit_s, n - 1);
    fprintf(out, "set grid x back lc rgb '%s' lt 1 dt 1 lw 0.8\nset ytics scale 0\nset bmargin 6.5\n",
            chart_light_grey);
    fputs("plot \\\n", out);
    for (int part = 0; part < TIME_PARTS; part++) {
        if (largest_time_s(predictions, n, part) > smallest_share * longest_s)
            put_boxes(out, FIRST, FIRST + part, &time_styles[part], 'x');
    }
    for (int part = 0; part < TIME_PARTS; part++) {
        int column = FIRST + part;
        if (largest_time_s(predictions, n, part) <= written_share * axis_s)
            continue;
        fprintf(
            out,
            "  data using ((sum [k=%d:%d] column(k)) - 0.5*column(%d)):($0):"
            "(column(%d) > %.9g ? sprintf('%%.0f %%%%', 100*column(%d)/column(%d)) : '') with labels font ',11' tc rgb '%s' notitle, \\\n",
            FIRST, column, column, column, written_share * axis_s / unit_s, column, TOTAL, time_styles[part].text);
    }
    fprintf(out, "  data using %d:($0+0.24):%d:%d with xerrorbars pt 0 lc rgb '#000000' lw 1 title '80 %% range', \\\n",
            TOTAL, LOW, HIGH);
    fprintf(
        out,
        "  data using (column(%d) > column(%d) ? column(%d) : column(%d)):($0):%d:ytic(1) with labels left offset 0.6,0 notitle\n",
        HIGH, TOTAL, HIGH, TOTAL, NOTE);
    return finish(path, 1200, 150 + 42 * n, &data, &script, err);
}

static void put_memory_data(FILE *out, const struct prediction *p)
{
    fputs("stage", out);
    for (int part = 0; part < MEMORY_PARTS; part++)
        fprintf(out, "\t%s", memory_part_names[part]);
    fputs("\ttotal\tlimit\n", out);
    for (int stage = 0; stage < p->n_stages; stage++) {
        fprintf(out, "%d", stage);
        for (int part = 0; part < MEMORY_PARTS; part++)
            fprintf(out, "\t%.9g", p->stage[stage].bytes[part] / UNIT_GIB);
        fprintf(out, "\t%.9g\t%.9g\n", p->stage[stage].total / UNIT_GIB, p->limit_bytes / UNIT_GIB);
    }
}

int plan_chart_memory(const char *path, const char *title, const struct prediction *p, struct err *err)
{
    enum { FIRST = 2, TOTAL = FIRST + MEMORY_PARTS, STAGES_WIDE = 4, STAGES_NAMED = 24 };
    double highest = 0;
    for (int stage = 0; stage < p->n_stages; stage++)
        highest = p->stage[stage].total > highest ? p->stage[stage].total : highest;
    if (!(highest > 0))
        return err_add(err, "no picture: there is no memory to draw");

    struct text data, script;
    int opened = text_open(&data) | text_open(&script);
    if (opened != 0)
        return finish(path, 0, 0, &data, &script, err);
    put_memory_data(data.out, p);

    FILE *out = script.out;
    int n = p->n_stages;
    double top_gib = (highest > p->limit_bytes ? highest : p->limit_bytes) / UNIT_GIB;
    double limit_gib = p->limit_bytes / UNIT_GIB;
    put_title(out, "memory of each pipeline stage's heaviest rank", title);
    fputs(common_script, out);
    double beside = n < STAGES_WIDE ? 0.5 * (STAGES_WIDE - n) : 0; /* keeps few bars slim */
    fprintf(out, "set xlabel 'pipeline stage%s\nset ylabel 'memory per accelerator (GiB)'\n",
            n <= STAGES_NAMED ? " and its total (GiB)' offset 0,-1" : "'");
    fprintf(out, "set xrange [%.9g:%.9g]\nset yrange [0:%.9g]\n", -0.6 - beside, n - 0.4 + beside, 1.14 * top_gib);
    fprintf(out, "set xtics %d scale 0\nset grid y back lc rgb '%s' lt 1 dt 1 lw 0.8\nset bmargin %s\n",
            n > STAGES_NAMED ? (n + 15) / 16 : 1, chart_light_grey, n <= STAGES_NAMED ? "7.5" : "6.5");
    if (limit_gib > 0)
        fprintf(out,
                "set arrow from graph 0,first %.9g to graph 1,first %.9g nohead dt 2 lw 1.5 lc rgb '%s' front\n"
                "set label 'limit %.1f GiB' at graph 0.995,first %.9g right offset 0,0.8 textcolor rgb '%s' front\n",
                limit_gib, limit_gib, chart_palette[CHART_VERMILLION], limit_gib, limit_gib,
                chart_palette[CHART_VERMILLION]);
    fputs("plot \\\n", out);
    for (int part = 0; part < MEMORY_PARTS; part++)
        if (largest_bytes(p, part) > smallest_share * highest)
            put_boxes(out, FIRST, FIRST + part, &memory_styles[part], 'y');
    if (n <= STAGES_NAMED)
        fprintf(
            out,
            "  data using ($0):(NaN):xticlabels(sprintf(\"%%s\\n%%.1f\", stringcolumn(1), column(%d))) with points notitle\n",
            TOTAL);
    else
        fputs("  NaN notitle\n", out);
    return finish(path, 1200, 600, &data, &script, err);
}

/* Does another plan need less of one and no more of the other? */
static bool is_beaten(const struct prediction *predictions, int n, int i)
{
    const struct prediction *p = &predictions[i];
    for (int k = 0; k < n; k++) {
        const struct prediction *other = &predictions[k];
        bool as_good = other->step_time_s <= p->step_time_s && other->peak_bytes <= p->peak_bytes;
        bool better = other->step_time_s < p->step_time_s || other->peak_bytes < p->peak_bytes;
        if (as_good && (better || k < i))
            return true;
    }
    return false;
}

/* What the picture spans. Times far apart are drawn by their logarithm. */
struct pareto_range {
    double unit_s, shortest_s, longest_s, most_bytes;
};

static bool is_logarithmic(const struct pareto_range *range)
{
    return range->shortest_s > 0 && range->longest_s > 4 * range->shortest_s;
}

/* Of the plot, from below. */
static double height_of(const struct pareto_range *range, double time_s)
{
    if (!(range->longest_s > range->shortest_s))
        return 0;
    return is_logarithmic(range) ? log(time_s / range->shortest_s) / log(range->longest_s / range->shortest_s)
                                 : (time_s - range->shortest_s) / (range->longest_s - range->shortest_s);
}

/* The name once more in the fourth column, to be written left of the point, or in the fifth, right of it: on the left where it
 * has room, else on the wider side, as much of it as goes there. */
static void put_point(FILE *out, const struct prediction *p, const struct pareto_range *range, bool written)
{
    static const double letter_width = 0.0058; /* of the plot, font 11 */
    char name[256];
    plan_format(&p->plan, name, sizeof(name));
    double at = p->peak_bytes / range->most_bytes, room = fmax(at, 1 - at) / letter_width;
    int length = (int)strlen(name);
    bool left = at > letter_width * length || at > 0.5;
    int shown = !written ? 0 : length <= room ? length : (int)room - 1;
    const char *more = written && shown < length ? "…" : "";
    fprintf(out, "%.9g\t%.9g\t%s\t%.*s%s\t%.*s%s\n", p->peak_bytes / UNIT_GIB, p->step_time_s / range->unit_s, name, left ? shown : 0, name,
            left ? more : "", left ? 0 : shown, name, left ? "" : more);
}

static const double name_height = 0.05; /* of the plot */

/* The next plan of the front after `last` (-1: the first), by rising memory; -1 = none. */
static int next_of_front(const struct prediction *predictions, int n, int last)
{
    int next = -1;
    for (int i = 0; i < n; i++) {
        bool later = last < 0 || predictions[i].peak_bytes > predictions[last].peak_bytes;
        if (later && (next < 0 || predictions[i].peak_bytes < predictions[next].peak_bytes) && !is_beaten(predictions, n, i))
            next = i;
    }
    return next;
}

/* Rows of the front by rising memory first, then the rest; the two are blocks of the data file. Names are written into
 * the picture where they do not cover another, the fastest plan's first of all. Returns the number of rows of the front. */
static int put_pareto_data(FILE *out, const struct prediction *predictions, int n, const struct pareto_range *range)
{
    int *front = malloc((size_t)n * sizeof *front), count = 0;
    bool *named = calloc((size_t)n, sizeof *named);
    for (int at = -1; front && named && (at = next_of_front(predictions, n, at)) >= 0;)
        front[count++] = at;
    double below = -HUGE_VAL; /* height of the last name */
    for (int i = count - 1; i >= 0; i--) {
        double height = height_of(range, predictions[front[i]].step_time_s);
        named[i] = height - below >= name_height;
        below = named[i] ? height : below;
    }
    fputs("peak_memory_gib\tstep_time\tplan\tlabel_left\tlabel_right\n", out);
    for (int i = 0; i < count; i++)
        put_point(out, &predictions[front[i]], range, named[i]);
    free(front);
    free(named);
    fputs("\n\npeak_memory_gib\tstep_time\tplan\tlabel_left\tlabel_right\n", out);
    for (int i = 0; i < n; i++)
        if (is_beaten(predictions, n, i))
            put_point(out, &predictions[i], range, false);
    return count;
}

int plan_chart_pareto(const char *path, const char *title, const struct prediction *predictions, int n, struct err *err)
{
    double longest_s = 0, shortest_s = INFINITY, most_bytes = 0, limit_bytes = n > 0 ? predictions[0].limit_bytes : 0;
    for (int i = 0; i < n; i++) {
        longest_s = predictions[i].step_time_s > longest_s ? predictions[i].step_time_s : longest_s;
        shortest_s = predictions[i].step_time_s < shortest_s ? predictions[i].step_time_s : shortest_s;
        most_bytes = predictions[i].peak_bytes > most_bytes ? predictions[i].peak_bytes : most_bytes;
    }
    if (!(longest_s > 0) || !(most_bytes > 0))
        return err_add(err, "no picture: there are no plans to draw");

    struct pareto_range range = {longest_s < 1 ? 1e-3 : 1, shortest_s, longest_s, 1.1 * (limit_bytes > most_bytes ? limit_bytes : most_bytes)};
    struct text data, script;
    int opened = text_open(&data) | text_open(&script);
    if (opened != 0)
        return finish(path, 0, 0, &data, &script, err);
    int front = put_pareto_data(data.out, predictions, n, &range);

    FILE *out = script.out;
    put_title(out, "time against memory", title);
    fputs(common_script, out);
    fprintf(out, "set xlabel 'peak memory per accelerator (GiB)'\nset ylabel 'time per step (%s)'\n",
            range.unit_s < 1 ? "ms" : "s");
    fprintf(out, "set xrange [0:%.9g]\nset offsets graph 0, graph 0, graph 0.08, graph 0.04\n", range.most_bytes / UNIT_GIB);
    if (is_logarithmic(&range))
        fprintf(out, "set logscale y 2\nset yrange [%.9g:%.9g]\n", 0.8 * shortest_s / range.unit_s, 1.2 * longest_s / range.unit_s);
    fprintf(out, "set grid back lc rgb '%s' lt 1 dt 1 lw 0.8\nset bmargin 6\n", chart_light_grey);
    if (limit_bytes > 0)
        fprintf(out,
                "set arrow from first %.9g,graph 0 to first %.9g,graph 1 nohead dt 2 lw 1.5 lc rgb '%s'\n"
                "set label 'limit %.1f GiB' at first %.9g,graph 0.97 offset 0.5,0 textcolor rgb '%s'\n",
                limit_bytes / UNIT_GIB, limit_bytes / UNIT_GIB, chart_palette[CHART_VERMILLION], limit_bytes / UNIT_GIB,
                limit_bytes / UNIT_GIB, chart_palette[CHART_VERMILLION]);
    fputs("plot \\\n", out);
    if (front < n)
        fprintf(out,
                "  data index 1 using 1:2 with points pt 7 ps 0.7 lc rgb '%s' title 'beaten by another plan', \\\n",
                chart_grey);
    fprintf(out, "  data index 0 using 1:2 with linespoints pt 7 ps 1 lw 1.5 lc rgb '%s' title 'beaten by none', \\\n",
            chart_palette[CHART_BLUE]);
    /* Left of and below the front there is nothing, by its nature: room for the names. */
    fputs("  data index 0 using 1:2:4 with labels right offset -0.8,-0.5 font ',11' notitle, \\\n"
          "  data index 0 using 1:2:5 with labels left offset 0.8,0.5 font ',11' notitle\n",
          out);
    return finish(path, 1200, 600, &data, &script, err);
}
