/* Predictions for people (tables) and for scripts (JSON, CSV; contract.md). */
#ifndef SIM_WRITERS_PREDICTION_H
#define SIM_WRITERS_PREDICTION_H

#include <stdio.h>

struct err;
struct json;
struct prediction;
struct profile;

struct json *prediction_to_json(const struct prediction *prediction, const struct profile *profile, const struct err *warnings);
/* One plan in full: headline, where the time goes, memory of the heaviest stage. */
void prediction_print(FILE *out, const struct prediction *prediction, const struct profile *profile);
/* What bounds the step most, in a word or two: "compute", "bubble", "tp communication", ... (static text). */
const char *prediction_bound(const struct prediction *prediction);
/* The share of the step that is exposed communication. */
double prediction_exposed(const struct prediction *prediction);

#endif
