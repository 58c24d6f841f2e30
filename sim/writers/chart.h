/* Pictures by gnuplot, headless: PNG, SVG or PDF by the suffix of the file.
 *
 * A chart is data (text, columns separated by tabs) and a gnuplot script without
 * terminal and output lines; the script reads the variable `data`:
 *     plot data using 1:2 with lines lc rgb '#0072B2'
 * Text is 12 high unless the script says font ',N', which is the same size in all formats.
 * chart_draw leaves two readable files beside the picture, out.png.dat and
 * out.png.gp, even when gnuplot is missing or fails, so that the picture can be
 * drawn elsewhere with `gnuplot out.png.gp`. The picture itself replaces an older
 * one only when gnuplot has finished well. No window is ever opened, no user's
 * start-up file is read, no shell is run. Not being able to draw is not the
 * command's failure: callers print the sentence as a warning and go on. */
#ifndef SIM_WRITERS_CHART_H
#define SIM_WRITERS_CHART_H

#include <stdio.h>

struct err;

/* Okabe and Ito's colours, told apart by colour-blind readers and in grey; "#RRGGBB". */
enum chart_colour {
    CHART_BLUE,
    CHART_ORANGE,
    CHART_GREEN,
    CHART_VERMILLION,
    CHART_SKY,
    CHART_PURPLE,
    CHART_YELLOW,
    CHART_BLACK,
    CHART_COLOURS
};
extern const char *const chart_palette[CHART_COLOURS];
extern const char chart_grey[];       /* idle time, "other" */
extern const char chart_light_grey[]; /* grids, backgrounds */

struct chart {
    int width_px, height_px; /* of the PNG; SVG and PDF keep the proportions */
    const char *data;        /* NUL-terminated text of the data file */
    const char *script;      /* NUL-terminated gnuplot commands */
};

/* 0, or -1 with a sentence: which suffixes are allowed, or that the folder is not there (a usage error: check before the
 * work). */
int chart_check_path(const char *path, struct err *err);
/* 0, or -1 with one sentence: gnuplot is missing, failed (with its own message), or a file could not be written. */
int chart_draw(const char *path, const struct chart *chart, struct err *err);
/* Writes text as a gnuplot string literal, quotes included. */
void chart_quote(FILE *out, const char *text);

#endif
