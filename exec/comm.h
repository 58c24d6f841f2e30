/* Messages within a group of ranks.
 *
 * A comm of one rank sends nothing and needs no MPI. Buffers lie where the comm's device keeps its memory (comm_attach;
 * the host until then), but where it says host; counts are of the given type. All members make the same collective
 * calls in the same order. On a device with queues a call is ordered in the device's queue like a kernel, without
 * making the host wait; on the host it blocks.
 *
 * comm_send, comm_receive and the _start calls go on beside other work: the buffer stays untouched until comm_wait.
 * There are no tags: the messages from one rank to another arrive in the order in which they were sent, and are to be
 * asked for in that order.
 *
 * What fails ends the job through comm_world's `fail`. Counters are per comm, of payload: what a member hands to others
 * and takes from them (an all-reduce as its reduce-scatter and all-gather); over a group, sent = received. */
#ifndef EXEC_COMM_H
#define EXEC_COMM_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/kernels.h"

struct comm;

struct comm_counters {
    int64_t calls, sent_bytes, received_bytes;
    double seconds;  /* of blocking calls, and on a device with queues also of those that go on beside others */
    double waited_s; /* that other work waited for them: blocking calls, and comm_wait */
};

enum comm_reduction { COMM_SUM, COMM_MAX };

int comm_rank(const struct comm *comm);
int comm_size(const struct comm *comm);
struct comm_counters *comm_counters(struct comm *comm);

void comm_all_reduce(struct comm *comm, enum comm_reduction reduction, enum element type, int64_t n, void *x);
/* mine may be its own place in all. */
void comm_all_gather(struct comm *comm, enum element type, int64_t n_each, const void *mine, void *all);
void comm_reduce_scatter(struct comm *comm, enum element type, int64_t n_each, const void *all, void *mine);
/* Blocks in order of rank, without gaps. */
void comm_all_to_all(struct comm *comm, enum element type, const int64_t *send_counts, const void *send,
                     const int64_t *receive_counts, void *receive);

/* Of host memory; they block. */
void comm_all_reduce_doubles(struct comm *comm, enum comm_reduction reduction, int n, double *x);
void comm_broadcast(struct comm *comm, int root, int64_t n, float *x);
void comm_all_to_all_ints(struct comm *comm, int n_each, const int *send, int *receive);
void comm_barrier(struct comm *comm);

/* One message under way; .active tells whether there is one. */
struct comm_request {
    bool active;
    int index; /* of the comm's own table */
    struct comm *comm;
};
struct comm_request comm_send(struct comm *comm, int to, enum element type, int64_t n, const void *x);
struct comm_request comm_receive(struct comm *comm, int from, enum element type, int64_t n, void *x);
/* Collectives that go on beside other work until comm_wait; in the same order on all members, as the others. */
struct comm_request comm_all_reduce_start(struct comm *comm, int64_t n, float *x); /* sums */
struct comm_request comm_reduce_scatter_start(struct comm *comm, int64_t n_each, const float *all, float *mine);
/* mine may be its own place in all. */
struct comm_request comm_all_gather_start(struct comm *comm, enum element type, int64_t n_each, const void *mine,
                                          void *all);
void comm_wait(struct comm_request *request);
bool comm_done(struct comm_request *request); /* has it ended? then it is no longer active */

#endif
