/* A plan's pipeline, run by the engine: the schedule's own program with the
 * plan's stage durations, messages and activation bytes.
 *
 * Long batches are not simulated micro-batch by micro-batch: past
 * PIPELINE_OPS_MAX ops the steady state, which repeats every pp micro-batches
 * (every group of interleaved chunks, every 2 pp for programs with two directions),
 * is extended linearly. */
#ifndef SIM_PIPELINE_H
#define SIM_PIPELINE_H

#include "cost/base/arena.h"
#include "sim/program.h"
#include "sim/stages.h"
#include "sim/timeline.h"

struct engine_costs;
struct err;

enum { PIPELINE_OPS_MAX = 1 << 16 };

struct pipeline {
    double makespan_s;
    double makespan_no_p2p_s; /* the same with messages that take no time */
    double busy_s[PREDICT_STAGES_MAX];
    double kept_bytes[PREDICT_STAGES_MAX]; /* peak activations by rank */
    double gradient_bytes[PREDICT_STAGES_MAX]; /* beside them, of B and W apart (stages_open_gradients); else 0 */
};

/* What pipeline_run keeps between calls (question.memo): the programs of schedules that do not depend on durations, and, for
 * one plan whose durations change, the first answer, given again for the same durations. Start with zeros; forget before
 * another plan or model, or state `programs_only`. */
enum { PIPELINE_PROGRAMS_MAX = 128, PIPELINE_KEPT_OPS_MAX = 1 << 21 };
struct pipeline_memo {
    bool programs_only; /* no answers: plans differ */
    struct arena arena; /* block_bytes is the owner's choice */
    struct arena_mark start;
    int n_programs;
    int64_t kept_ops; /* of them, at most PIPELINE_KEPT_OPS_MAX and one program */
    struct {
        enum plan_schedule schedule;
        int pp, vp, group;
        int64_t micro_batches;
        struct program program;
    } program[PIPELINE_PROGRAMS_MAX];
    int64_t *durations; /* of the first answer, NULL = none */
    struct pipeline answer;
};
void pipeline_memo_forget(struct pipeline_memo *memo);
void pipeline_memo_release(struct pipeline_memo *memo);

/* Makespan by the engine of a few periods, extended linearly: for the search, where the closed form of a schedule flatters. The
 * question's memo should keep programs. */
int pipeline_estimate_s(const struct stages *stages, struct arena *arena, double *ret, struct err *err);

/* give_up_s: a makespan above this is not taken apart (makespan_no_p2p_s = makespan_s). */
int pipeline_run(const struct stages *stages, double give_up_s, struct arena *arena, struct pipeline *ret, struct err *err);

/* The program, recorded timeline and durations of one step, for traces and charts;
 * of a step longer than PIPELINE_OPS_MAX ops, its first micro-batches
 * (ret_program->micro_batches says how many). All in the arena. */
int pipeline_record(const struct stages *stages, struct arena *arena, struct program *ret_program, struct timeline *ret_timeline,
                    struct engine_costs *ret_costs, struct err *err);

#endif
