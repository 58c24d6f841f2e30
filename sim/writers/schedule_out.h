/* What `plansim schedule` prints: a summary for people, JSON for programs (contract.md "schedule/compare JSON"). */
#ifndef SIM_WRITERS_SCHEDULE_OUT_H
#define SIM_WRITERS_SCHEDULE_OUT_H

#include <stdio.h>

struct priced;
struct pricing;

/* Name of what was priced, vp as asked for; source: the file of a program, NULL for a schedule. */
struct schedule_label {
    const char *source;
    int vp;
    int group;           /* 0 = the schedule has none */
    const char *variant; /* NULL = the usual form */
};

void schedule_out_summary(FILE *out, const struct priced *priced, const struct pricing *pricing,
                          const struct schedule_label *label);
/* One document, with the program when the timeline is recorded. */
void schedule_out_json(FILE *out, const struct priced *priced, const struct pricing *pricing,
                       const struct schedule_label *label);
/* The shortest text that reads back as the same number; returns buffer. */
const char *schedule_out_number(double value, char *buffer, size_t size);

#endif
