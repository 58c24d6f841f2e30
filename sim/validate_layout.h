/* How the layers of a measured run lie on its pipeline stages. */
#ifndef SIM_VALIDATE_LAYOUT_H
#define SIM_VALIDATE_LAYOUT_H

#include "cost/model.h"
#include "cost/plan.h"
#include "sim/validate_table.h"

/* Reads Megatron-core's layout text ("Et*4|(tttt|)*14tmL": E embedding, t layer, m MTP, L loss, | next stage, *n repeat) into
 * counts of t per stage; returns the number of stages, -1 when it is not understood. */
int layout_parse(const char *text, uint16_t counts[PLAN_CHUNKS_MAX]);

/* Sets vp and layers_per_stage where the layers do not divide: the stated layout, else one assumed and named in `assumed`
 * (RUN_TEXT_MAX bytes each). */
int run_layout(const struct run *run, const struct model *model, struct plan *plan, char *assumed, char *reason);

#endif
