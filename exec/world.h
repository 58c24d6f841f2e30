/* Who is who: every rank's coordinates and the groups it talks in, from the plan's rank order (cost/plan.h).
 *
 * world_start once per process; world_build per plan. A world of one rank (world_alone) takes part in nothing, also
 * while others wait: the reference run of `check`. */
#ifndef EXEC_WORLD_H
#define EXEC_WORLD_H

struct comm;
struct err;
struct model;
struct plan;

enum world_group {
    WORLD_ALL,
    WORLD_TP,
    WORLD_CP,
    WORLD_DP_CP,     /* ranks that hold the same dense parameters */
    WORLD_EP,        /* ep x etp: where tokens go to their experts; index = ep * etp + etp's */
    WORLD_EXPERT_DP, /* ranks that hold the same experts */
    WORLD_PP,
    WORLD_KV,   /* tp ranks that hold a copy of the same key/value head */
    WORLD_PAIR, /* pipeline ranks that hold copies of the same parameters: tied embedding, DualPipe; [0] counts them */
    WORLD_GROUPS
};
extern const char *const world_group_names[]; /* "all", "tp", ... NULL */

struct world {
    int rank, size;
    int local_rank, local_size;  /* among the ranks on this host */
    int tp, cp, dp, pp, ep, etp; /* this rank's index in each */
    int pair_size;               /* 2 where WORLD_PAIR holds more than this rank */
    struct comm *comm[WORLD_GROUPS];
};

int world_start(struct world *world, int *argc, char ***argv, struct err *err);
/* All ranks together. The plan's world must be world->size. */
void world_build(struct world *world, const struct plan *plan, const struct model *model);
/* Buffers of all its comms are the device's from now on; the device outlives it. */
struct device;
void world_attach(struct world *world, struct device *device);
void world_alone(struct world *ret);
void world_release(struct world *world); /* its comms */
void world_stop(void);

/* One message to standard error - rank, host, cause - and the end of all ranks with exit code 4. */
void world_fail(const struct world *world, const char *sentence) __attribute__((noreturn));

#endif
