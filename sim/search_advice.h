/* When nothing fits: the plan that misses by least, and what would make it fit. */
#ifndef SIM_SEARCH_ADVICE_H
#define SIM_SEARCH_ADVICE_H

#include <stdio.h>

#include "sim/search.h"

void search_print_advice(FILE *out, const struct question *question, const struct search_options *options, const struct search_result *result);

#endif
