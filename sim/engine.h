/* The engine: program x durations -> timeline, exact.
 *
 * Discrete events on an int64 picosecond clock. Every rank runs its list in
 * order; an op starts when its rank is free and its input has arrived, so the
 * result does not depend on the order in which ranks are looked at.
 *   F(s) needs F(s-1); B(s), BW(s) need B(s+1) or BW(s+1); W needs its B (same rank).
 *   A fused BW delivers its input gradient at its end. F_BW needs both inputs
 *   and delivers both outputs at its end.
 * The program must come from schedule_emit or have passed program_check.
 * Pure: no state, thread-safe with one arena per thread. */
#ifndef SIM_ENGINE_H
#define SIM_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

struct arena;
struct err;
struct program;
struct timeline;

/* How long an F_BW slot lasts, from F and BW of its two stages. */
enum engine_slot {
    SLOT_SUM,  /* F + BW: nothing overlaps */
    SLOT_HALF, /* mean of sum and max */
    SLOT_MAX,  /* max(F, BW) */
    /* Compute of one half hides communication of the other: max(F, BW, compute of both, communication of both),
     * where F and BW contain forward_comm_ps and backward_comm_ps (expert all-to-all, say). */
    SLOT_COMM,
};
extern const char *const engine_slot_names[]; /* "sum", "half", "max", "comm", NULL */

/* What happens between the last op of an iteration and the first of the next. */
enum engine_sync {
    SYNC_BARRIER, /* the optimizer waits for all ranks (global gradient norm) */
    SYNC_NONE,    /* every rank steps at once: the period is the span, not the makespan */
    SYNC_CHAIN, /* post-validation (Qi et al. 2024, section 4): rank r steps when rank r-1's partial norm has arrived */
};

struct engine_costs {
    /* By global stage (program->stages values); both directions of bidir share them. */
    const int64_t *forward_ps, *backward_ps, *wgrad_ps;
    /* By boundary: [s] = one message between stages s and s+1, on other ranks (stages - 1 values); NULL = 0.
     * bidir: [r] = between ranks r and r+1, whichever direction. */
    const int64_t *p2p_ps;
    /* Of that, the time during which the sender's stream is busy (bytes / bandwidth) and the next message of the
     * same rank and kind (forward, backward) has to wait; NULL = messages never queue. */
    const int64_t *p2p_occupancy_ps;
    bool blocking_sends; /* the sender computes nothing until its message has arrived */
    enum engine_slot slot;
    const int64_t *slot_ps; /* by stage of the forward half; not NULL = the slot lasts this long */
    const int64_t *forward_comm_ps, *backward_comm_ps; /* for SLOT_COMM: the communication inside F and BW; NULL = 0 */
    /* Bytes that F of stage s allocates and, of these, what B frees (W frees the rest); NULL = 0. */
    const int64_t *act_bytes, *act_b_bytes;
    /* Iterations back to back; 0 = 1. */
    int iterations;
    enum engine_sync sync;
    const int64_t *optimizer_ps; /* by rank; NULL = 0 */
    int64_t chain_ps;            /* SYNC_CHAIN: one hop of the partial norm */
    bool record;                 /* keep start and end of every op */
};

/* 0, or -1 with a sentence: durations negative or the clock would overflow, or the program deadlocks. */
int engine_run(const struct program *program, const struct engine_costs *costs, struct arena *arena,
               struct timeline *ret, struct err *err);

/* Seconds to the engine's clock, rounded to nearest. */
int64_t engine_ps(double seconds);

#endif
