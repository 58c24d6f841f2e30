/* A timeline as text for the terminal: ranks down, time across. */
#ifndef SIM_WRITERS_GANTT_TEXT_H
#define SIM_WRITERS_GANTT_TEXT_H

#include <stdbool.h>
#include <stdio.h>

struct program;
struct timeline;

/* The timeline must be recorded. colour: escape codes for terminals; without, kinds differ by their shading.
 * ascii: no character beyond ASCII. */
void gantt_text_print(FILE *out, const struct program *program, const struct timeline *timeline, int columns,
                      bool colour, bool ascii);
/* Columns of the terminal behind `out`, or 100 for a file or pipe. */
int gantt_text_columns(FILE *out);
/* Is `out` a terminal whose locale is not UTF-8? Files and pipes get UTF-8. */
bool gantt_text_ascii(FILE *out);
/* Is `out` a terminal that wants colour (NO_COLOR unset)? */
bool gantt_text_colour(FILE *out);

#endif
