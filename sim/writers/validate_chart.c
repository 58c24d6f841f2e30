#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cost/base/err.h"
#include "sim/writers/chart.h"
#include "sim/writers/validate_out.h"

enum { KINDS_MAX = 24 };

/* Accelerators in the order of how many runs each has; shapes and colours repeat in different pairs. */
struct kinds {
    const char *trust; /* "" = all runs */
    int n;
    struct { const char *name; int runs; } kind[KINDS_MAX];
};

static bool has_point(const struct outcome *o, const char *trust)
{
    return (!*trust || strcmp(o->run->trust, trust) == 0) && o->predicted && isfinite(o->error) && o->measured_s > 0 && o->step_time_s > 0;
}

static void find_kinds(const struct validation *v, struct kinds *ret)
{
    ret->n = 0;
    for (int row = 0; row < v->table.n; row++) {
        const char *name = v->outcome[row].run->accelerator;
        int i = 0;
        if (!has_point(&v->outcome[row], ret->trust))
            continue;
        while (i < ret->n && strcmp(ret->kind[i].name, name) != 0)
            i++;
        if (i == KINDS_MAX)
            continue;
        if (i == ret->n) {
            ret->kind[ret->n].name = name;
            ret->kind[ret->n++].runs = 0;
        }
        ret->kind[i].runs++;
    }
    for (int i = 1; i < ret->n; i++)
        for (int k = i; k > 0 && ret->kind[k].runs > ret->kind[k - 1].runs; k--) {
            const char *name = ret->kind[k].name;
            int runs = ret->kind[k].runs;
            ret->kind[k] = ret->kind[k - 1];
            ret->kind[k - 1].name = name;
            ret->kind[k - 1].runs = runs;
        }
}

/* One block of lines per accelerator, two blank lines between: gnuplot's index. */
static void put_points(FILE *out, const struct validation *v, const struct kinds *kinds)
{
    for (int i = 0; i < kinds->n; i++) {
        for (int row = 0; row < v->table.n; row++) {
            const struct outcome *o = &v->outcome[row];
            if (has_point(o, kinds->trust) && strcmp(o->run->accelerator, kinds->kind[i].name) == 0)
                fprintf(out, "%.6g\t%.6g\n", o->measured_s, o->step_time_s);
        }
        fputs("\n\n", out);
    }
}

static void put_script(FILE *out, const struct kinds *kinds, double low, double high)
{
    static const int shapes[] = {7, 5, 9, 11, 13, 3};
    static const int colours[] = {CHART_BLUE, CHART_ORANGE, CHART_GREEN, CHART_VERMILLION, CHART_SKY, CHART_PURPLE, CHART_BLACK};
    enum { SHAPES = sizeof shapes / sizeof *shapes, COLOURS = sizeof colours / sizeof *colours };
    fprintf(out, "set title 'predicted and measured step time' font ',15' textcolor rgb '#222222'\n"
                 "set logscale xy\nset format xy '%%g'\nset xlabel 'measured, seconds'\nset ylabel 'predicted, seconds'\n"
                 "set border 3 lc rgb '#444444'\nset tics nomirror out scale 0.5 textcolor rgb '#222222'\nset grid lc rgb '%s' lw 0.5\n"
                 "set key outside right center Left reverse samplen 0.6\nset size ratio -1\nset samples 200\n"
                 "set xrange [%g:%g]\nset yrange [%g:%g]\n", chart_light_grey, low, high, low, high);
    fprintf(out, "plot '+' using 1:($1/1.1):($1*1.1) with filledcurves fc rgb '%s' fs solid 0.5 noborder title '10 %% either way', \\\n"
                 "  x with lines lc rgb '%s' lw 1 title 'equal'", chart_light_grey, chart_grey);
    for (int i = 0; i < kinds->n; i++) {
        fprintf(out, ", \\\n  data index %d using 1:2 with points pt %d ps 0.55 lc rgb '%s' title ", i, shapes[i % SHAPES],
                chart_palette[colours[i % COLOURS]]);
        char label[120];
        snprintf(label, sizeof label, "%s, %d", kinds->kind[i].name, kinds->kind[i].runs);
        chart_quote(out, label);
    }
    fputs("\n", out);
}

static void find_range(const struct validation *v, const char *trust, double *low, double *high)
{
    *low = 1e9;
    *high = 1e-9;
    for (int row = 0; row < v->table.n; row++) {
        const struct outcome *o = &v->outcome[row];
        if (has_point(o, trust)) {
            *low = fmin(*low, fmin(o->measured_s, o->step_time_s));
            *high = fmax(*high, fmax(o->measured_s, o->step_time_s));
        }
    }
    *low /= 1.3;
    *high *= 1.3;
}

int validate_chart(const char *path, const struct validation *v, const char *trust, struct err *err)
{
    struct kinds kinds = {.trust = trust};
    double low, high;
    char *data = NULL, *script = NULL;
    size_t data_length, script_length;
    find_kinds(v, &kinds);
    find_range(v, trust, &low, &high);
    if (kinds.n == 0)
        return err_add(err, "no picture: no run has both a prediction and a measurement");
    FILE *points = open_memstream(&data, &data_length), *commands = open_memstream(&script, &script_length);
    int result = -1;
    if (points && commands) {
        put_points(points, v, &kinds);
        put_script(commands, &kinds, low, high);
    }
    int closed = (points ? fclose(points) : -1) | (commands ? fclose(commands) : -1);
    if (closed == 0)
        result = chart_draw(path, &(struct chart){.width_px = 1100, .height_px = 900, .data = data, .script = script}, err);
    else
        err_add(err, "no picture: out of memory");
    free(data);
    free(script);
    return result;
}
