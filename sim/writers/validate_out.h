/* A validation as table, JSON and CSV (contract.md), and the scatter of predicted against measured step times. */
#ifndef SIM_WRITERS_VALIDATE_OUT_H
#define SIM_WRITERS_VALIDATE_OUT_H

#include <stdio.h>

#include "sim/validate_stats.h"

struct err;

void validate_print(FILE *out, const struct validation *validation, const struct validate_stats *stats, enum validate_by by);
struct json *validate_to_json(const struct validation *validation, const struct validate_stats *stats, enum validate_by by); /* caller frees */
void validate_print_csv(FILE *out, const struct validation *validation);
/* As chart_draw: 0, or -1 with one sentence that is a warning. */
int validate_chart(const char *path, const struct validation *validation, const char *trust, struct err *err);

#endif
