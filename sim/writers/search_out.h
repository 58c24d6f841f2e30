/* The answer of a search: table, JSON or CSV (contract.md), why plans were left out. */
#ifndef SIM_WRITERS_SEARCH_OUT_H
#define SIM_WRITERS_SEARCH_OUT_H

#include <stdio.h>

struct err;
struct prediction;
struct profile;
struct search_result;

void search_print_table(FILE *out, const struct prediction *plans, int n);
void search_print_csv(FILE *out, const struct prediction *plans, int n);
/* plans and n apart, so that a Pareto set can be printed too. */
void search_print_json(FILE *out, const struct search_result *result, const struct prediction *plans, int n, const struct profile *profile,
                       const struct err *warnings);
void search_print_why(FILE *out, const struct search_result *result);

#endif
