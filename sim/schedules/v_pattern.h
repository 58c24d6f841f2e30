/* V schedules made by repeating a pattern of offsets every six time slots, then
 * squeezing the ends without raising peak memory (V-Half, V-Min). */
#ifndef SIM_SCHEDULES_V_PATTERN_H
#define SIM_SCHEDULES_V_PATTERN_H

struct arena;
struct err;
struct program;
struct schedule_request;

/* A micro-batch's way through a rank, in order; W's come after. */
enum v_leg { V_F0, V_F1, V_B1, V_B0, V_LEGS };

/* offsets[rank * V_LEGS + leg]: the slot in which micro-batch 0 runs the leg. */
int v_pattern_emit(const struct schedule_request *request, const int *offsets, struct arena *arena, struct program *ret,
                   struct err *err);

#endif
