/* Between comm.c, which counts and chooses, and the transports that carry: MPI for host memory, MPI by way of the host
 * for a device's memory (comm_staged.c), NCCL (comm_nccl.c). */
#ifndef EXEC_COMM_INTERNAL_H
#define EXEC_COMM_INTERNAL_H

#include <stddef.h>

#include "exec/comm.h"

struct comm_mpi;
struct device;
struct err;
struct world;

/* Of a group of at least two. Sizes, types and order as in comm.h; send .. all_gather_start return a slot, which
 * wait, or done when it says true, frees. */
struct comm_transport {
    bool waits; /* a call has ended when it returns: its time is the host's */
    void (*all_reduce)(struct comm *comm, enum comm_reduction reduction, enum element type, int64_t n, void *x);
    void (*all_gather)(struct comm *comm, enum element type, int64_t n_each, const void *mine, void *all);
    void (*reduce_scatter)(struct comm *comm, enum element type, int64_t n_each, const void *all, void *mine);
    void (*all_to_all)(struct comm *comm, enum element type, const int64_t *send_counts, const void *send,
                       const int64_t *receive_counts, void *receive);
    int (*send)(struct comm *comm, int to, enum element type, int64_t n, const void *x);
    int (*receive)(struct comm *comm, int from, enum element type, int64_t n, void *x);
    int (*all_reduce_start)(struct comm *comm, int64_t n, float *x);
    int (*reduce_scatter_start)(struct comm *comm, int64_t n_each, const float *all, float *mine);
    int (*all_gather_start)(struct comm *comm, enum element type, int64_t n_each, const void *mine, void *all);
    void (*wait)(struct comm *comm, int slot);
    bool (*done)(struct comm *comm, int slot);
    /* Adds those of the calls since the last time; NULL where waits. */
    void (*take_seconds)(struct comm *comm, double *seconds, double *waited_s);
    void (*release)(struct comm *comm);
};

struct comm {
    int rank, size;
    struct world *world;
    struct comm_counters counters;
    struct device *device; /* NULL = host memory */
    const struct comm_transport *transport;
    void *state;          /* the transport's */
    struct comm_mpi *mpi; /* NULL in a group of one */
};

extern const struct comm_transport comm_mpi, comm_staged;

/* Members share `colour`, and are ordered by `key`; a group of one is made without talking. */
struct comm *comm_new(struct world *world, int size, int colour, int key);
void comm_free(struct comm *comm);
/* From now on buffers are the device's. Staged, unless NCCL was attached (comm_nccl.h). */
void comm_attach(struct comm *comm, struct device *device);

/* MPI itself, of host memory. 0, or -1 with a sentence. */
int comm_start(int *argc, char ***argv, int *ret_rank, int *ret_size, int *ret_local_rank, int *ret_local_size,
               struct err *err);
void comm_stop(void);
void comm_abort(int code) __attribute__((noreturn));
const char *comm_host(void);
struct comm_mpi *comm_mpi_new(struct comm *comm, int colour, int key); /* sets rank and size */
void comm_mpi_free(struct comm_mpi *mpi);
void comm_mpi_all_reduce_doubles(struct comm *comm, enum comm_reduction reduction, int n, double *x);
void comm_mpi_broadcast(struct comm *comm, int root, size_t bytes, void *x);
void comm_mpi_all_gather(struct comm *comm, size_t bytes_each, const void *mine, void *all);
void comm_mpi_all_to_all_ints(struct comm *comm, int n_each, const int *send, int *receive);
void comm_mpi_barrier(struct comm *comm);

#endif
