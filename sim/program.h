/* A program: for every pipeline rank, the list of ops that it runs in order.
 *
 * The contract of the house: schedules write it, the engine prices it, the
 * executor runs it. A program is plain data in one arena (the caller's); it
 * lives as long as that arena. Read-only use from many threads is safe.
 *
 * Words: F forward; B gradient with respect to the stage's input; W gradient
 * with respect to its weights; BW both, fused; F_BW one overlapped slot, a
 * forward (first half) beside a fused backward (second half).
 * stage = depth in the pipeline, 0 .. stages-1; chunk = the rank's own module
 * number. Micro-batches count from 0 within a direction.
 *
 * Placement of stages on ranks:
 *   loop   rank = stage mod pp                        (1F1B, interleaved, ...)
 *   v      rank = stage, or 2 pp - 1 - stage from pp on (ZB-V, DualPipeV, ...)
 *   bidir  two pipelines, direction 0: rank = stage, direction 1: rank = pp - 1 - stage (DualPipe)
 *   free   as a file says (stage_rank is the truth for all of them) */
#ifndef SIM_PROGRAM_H
#define SIM_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct arena;
struct err;

enum op_kind {
    OP_F,
    OP_B,
    OP_W,
    OP_BW,
    OP_F_BW,
    /* Communication and bookkeeping as PyTorch's compute_comms programs spell it out. They take no time of the
     * compute stream: a message leaves when its send's turn has come, and is awaited by the compute op that needs it. */
    OP_SEND_F,
    OP_RECV_F,
    OP_SEND_B,
    OP_RECV_B,
    OP_UNSHARD,
    OP_RESHARD,
    OP_REDUCE_GRAD,
    OP_IDLE, /* an empty cell of a time-step table */
    OP_KINDS
};
extern const char *const op_kind_names[]; /* "F", "B", "W", "BW", "F&BW", "SEND_F", ... NULL-terminated */

/* 16 bytes. stage2, direction2, micro_batch2: the backward half of F_BW, 0 for all others. */
struct op {
    uint8_t kind; /* enum op_kind */
    uint8_t direction, direction2;
    uint8_t unused;
    uint16_t stage, stage2;
    uint32_t micro_batch, micro_batch2;
};

enum placement { PLACEMENT_LOOP, PLACEMENT_V, PLACEMENT_BIDIR, PLACEMENT_FREE, PLACEMENTS };
extern const char *const placement_names[]; /* "loop", "v", "bidir", "free", NULL */

enum {
    PROGRAM_RANKS_MAX = 4096,
    PROGRAM_STAGES_MAX = 16384,
    PROGRAM_MICRO_BATCHES_MAX = 1 << 22,
    PROGRAM_OPS_MAX = 1 << 27, /* of all ranks together: 2 GiB */
};

struct program {
    enum placement placement;
    int pp;                /* ranks */
    int stages;            /* of one direction */
    int directions;        /* 1, or 2 for bidir */
    int chunks;            /* modules per rank (the most that any rank holds) */
    int micro_batches;     /* of all directions together */
    uint16_t *stage_rank;  /* [direction * stages + stage] */
    uint16_t *stage_chunk; /* the same index: module number on that rank */
    int *n_ops;            /* [pp] */
    int *max_ops;          /* [pp] room in ops[rank] */
    struct op **ops;       /* [pp][n_ops[rank]] */
};

/* Micro-batches of one direction. */
static inline int program_direction_micro_batches(const struct program *program)
{
    return program->micro_batches / program->directions;
}

/* Makes an empty program with room for ops_per_rank ops on every rank. stages is needed for PLACEMENT_FREE only
 * (else pp * vp, or pp for bidir); a free program's stage_rank and stage_chunk are left 0 for the caller to fill.
 * Refuses sizes beyond the limits above. */
int program_init(struct program *program, struct arena *arena, enum placement placement, int pp, int vp, int stages,
                 int micro_batches, int64_t ops_per_rank, struct err *err);
/* Appends; the room must be there (asserted). */
void program_push(struct program *program, int rank, struct op op);

static inline struct op op_plain(enum op_kind kind, int direction, int stage, int micro_batch)
{
    struct op op = {.kind = (uint8_t)kind,
                    .direction = (uint8_t)direction,
                    .stage = (uint16_t)stage,
                    .micro_batch = (uint32_t)micro_batch};
    return op;
}
struct op op_overlap(struct op forward, struct op backward); /* backward: a BW */
static inline bool op_is_compute(const struct op *op)
{
    return op->kind <= OP_F_BW;
}

int64_t program_count_ops(const struct program *program); /* compute ops of all ranks */
bool program_has_messages(const struct program *program); /* does it spell out sends and receives? */
/* Drops everything but compute ops, in place. */
void program_strip(struct program *program);
bool program_equal(const struct program *a, const struct program *b); /* same shape, same ops in the same order */

/* Is it a right program? Every op on its stage's own rank; every (stage, micro-batch) exactly one F, then BW or B
 * then W; sends and receives, where present, each once, on the right side of their op and never to the same rank;
 * no deadlock (a cycle is named). On failure the sentence says rank, index and reason. */
int program_check(const struct program *program, struct err *err);

/* "F mb 3 stage 1" (direction only where there are two) into buffer; returns buffer. */
const char *op_format(const struct program *program, const struct op *op, char *buffer, size_t size);

#endif
