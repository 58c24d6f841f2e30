#include "exec/comm.h"

#include <stdlib.h>
#include <string.h>

#include "cost/base/clock.h"
#include "exec/comm_internal.h"
#include "exec/device.h"

int comm_rank(const struct comm *comm)
{
    return comm->rank;
}

int comm_size(const struct comm *comm)
{
    return comm->size;
}

struct comm_counters *comm_counters(struct comm *comm)
{
    if (comm->size > 1 && comm->transport->take_seconds)
        comm->transport->take_seconds(comm, &comm->counters.seconds, &comm->counters.waited_s);
    return &comm->counters;
}

static double begin(struct comm *comm, int64_t sent, int64_t received)
{
    comm->counters.calls++;
    comm->counters.sent_bytes += sent;
    comm->counters.received_bytes += received;
    return clock_s();
}

static void count_seconds(struct comm *comm, double start_s)
{
    double seconds = clock_s() - start_s;
    comm->counters.seconds += seconds;
    comm->counters.waited_s += seconds;
}

static void end(struct comm *comm, double start_s)
{
    if (comm->transport->waits)
        count_seconds(comm, start_s);
}

/* What a group of one does instead of sending. */
static void keep(struct comm *comm, enum element type, int64_t n, const void *from, void *to)
{
    size_t bytes = (size_t)n * element_bytes(type);
    if (from == to || bytes == 0)
        return;
    if (comm->device)
        comm->device->copy(comm->device, to, from, bytes);
    else
        memcpy(to, from, bytes);
}

/* Sent, and received, by each member of an all-reduce (as its two halves), and of one half. */
static int64_t both_bytes(const struct comm *comm, int64_t element, int64_t n)
{
    return 2 * element * n * (comm->size - 1) / comm->size;
}

static int64_t half_bytes(const struct comm *comm, enum element type, int64_t n_each)
{
    return (int64_t)element_bytes(type) * n_each * (comm->size - 1);
}

void comm_all_reduce(struct comm *comm, enum comm_reduction reduction, enum element type, int64_t n, void *x)
{
    if (comm->size == 1)
        return;
    int64_t bytes = both_bytes(comm, (int64_t)element_bytes(type), n);
    double start_s = begin(comm, bytes, bytes);
    comm->transport->all_reduce(comm, reduction, type, n, x);
    end(comm, start_s);
}

void comm_all_gather(struct comm *comm, enum element type, int64_t n_each, const void *mine, void *all)
{
    if (comm->size == 1) {
        keep(comm, type, n_each, mine, all);
        return;
    }
    int64_t bytes = half_bytes(comm, type, n_each);
    double start_s = begin(comm, bytes, bytes);
    comm->transport->all_gather(comm, type, n_each, mine, all);
    end(comm, start_s);
}

void comm_reduce_scatter(struct comm *comm, enum element type, int64_t n_each, const void *all, void *mine)
{
    if (comm->size == 1) {
        keep(comm, type, n_each, all, mine);
        return;
    }
    int64_t bytes = half_bytes(comm, type, n_each);
    double start_s = begin(comm, bytes, bytes);
    comm->transport->reduce_scatter(comm, type, n_each, all, mine);
    end(comm, start_s);
}

/* What goes to others. */
static int64_t others_bytes(const struct comm *comm, enum element type, const int64_t *counts)
{
    int64_t n = -counts[comm->rank];
    for (int i = 0; i < comm->size; i++)
        n += counts[i];
    return n * (int64_t)element_bytes(type);
}

void comm_all_to_all(struct comm *comm, enum element type, const int64_t *send_counts, const void *send,
                     const int64_t *receive_counts, void *receive)
{
    if (comm->size == 1) {
        keep(comm, type, send_counts[0], send, receive);
        return;
    }
    double start_s = begin(comm, others_bytes(comm, type, send_counts), others_bytes(comm, type, receive_counts));
    comm->transport->all_to_all(comm, type, send_counts, send, receive_counts, receive);
    end(comm, start_s);
}

/* --- host memory ------------------------------------------------------------- */

void comm_all_reduce_doubles(struct comm *comm, enum comm_reduction reduction, int n, double *x)
{
    if (comm->size == 1)
        return;
    int64_t bytes = both_bytes(comm, 8, n);
    double start_s = begin(comm, bytes, bytes);
    comm_mpi_all_reduce_doubles(comm, reduction, n, x);
    count_seconds(comm, start_s);
}

/* Counted like a ring: every member but the last hands the whole on. */
void comm_broadcast(struct comm *comm, int root, int64_t n, float *x)
{
    if (comm->size == 1)
        return;
    int place = (comm->rank - root + comm->size) % comm->size;
    double start_s = begin(comm, place < comm->size - 1 ? 4 * n : 0, place > 0 ? 4 * n : 0);
    comm_mpi_broadcast(comm, root, (size_t)n * sizeof *x, x);
    count_seconds(comm, start_s);
}

void comm_all_to_all_ints(struct comm *comm, int n_each, const int *send, int *receive)
{
    if (comm->size == 1) {
        memcpy(receive, send, (size_t)n_each * sizeof *receive);
        return;
    }
    int64_t bytes = 4 * (int64_t)n_each * (comm->size - 1);
    double start_s = begin(comm, bytes, bytes);
    comm_mpi_all_to_all_ints(comm, n_each, send, receive);
    count_seconds(comm, start_s);
}

void comm_barrier(struct comm *comm)
{
    if (comm->size > 1)
        comm_mpi_barrier(comm);
}

/* --- under way ---------------------------------------------------------------- */

struct comm_request comm_send(struct comm *comm, int to, enum element type, int64_t n, const void *x)
{
    begin(comm, (int64_t)element_bytes(type) * n, 0);
    return (struct comm_request){true, comm->transport->send(comm, to, type, n, x), comm};
}

struct comm_request comm_receive(struct comm *comm, int from, enum element type, int64_t n, void *x)
{
    begin(comm, 0, (int64_t)element_bytes(type) * n);
    return (struct comm_request){true, comm->transport->receive(comm, from, type, n, x), comm};
}

struct comm_request comm_all_reduce_start(struct comm *comm, int64_t n, float *x)
{
    int64_t bytes = both_bytes(comm, sizeof *x, n);
    if (comm->size == 1)
        return (struct comm_request){.comm = comm};
    begin(comm, bytes, bytes);
    return (struct comm_request){true, comm->transport->all_reduce_start(comm, n, x), comm};
}

struct comm_request comm_reduce_scatter_start(struct comm *comm, int64_t n_each, const float *all, float *mine)
{
    int64_t bytes = half_bytes(comm, ELEMENT_F32, n_each);
    if (comm->size == 1) {
        keep(comm, ELEMENT_F32, n_each, all, mine);
        return (struct comm_request){.comm = comm};
    }
    begin(comm, bytes, bytes);
    return (struct comm_request){true, comm->transport->reduce_scatter_start(comm, n_each, all, mine), comm};
}

struct comm_request comm_all_gather_start(struct comm *comm, enum element type, int64_t n_each, const void *mine,
                                          void *all)
{
    if (comm->size == 1) {
        keep(comm, type, n_each, mine, all);
        return (struct comm_request){.comm = comm};
    }
    int64_t bytes = half_bytes(comm, type, n_each);
    begin(comm, bytes, bytes);
    return (struct comm_request){true, comm->transport->all_gather_start(comm, type, n_each, mine, all), comm};
}

void comm_wait(struct comm_request *request)
{
    if (!request->active)
        return;
    double start_s = clock_s();
    request->comm->transport->wait(request->comm, request->index);
    request->active = false;
    end(request->comm, start_s);
}

bool comm_done(struct comm_request *request)
{
    if (request->active && request->comm->transport->done(request->comm, request->index))
        request->active = false;
    return !request->active;
}

/* --- life ---------------------------------------------------------------------- */

struct comm *comm_new(struct world *world, int size, int colour, int key)
{
    struct comm *comm = calloc(1, sizeof *comm);
    if (!comm)
        abort();
    comm->world = world;
    comm->size = size;
    comm->transport = &comm_mpi;
    if (size > 1)
        comm->mpi = comm_mpi_new(comm, colour, key);
    return comm;
}

void comm_attach(struct comm *comm, struct device *device)
{
    comm->device = device;
    comm->transport = &comm_staged;
}

void comm_free(struct comm *comm)
{
    if (!comm)
        return;
    if (comm->transport->release)
        comm->transport->release(comm);
    comm_mpi_free(comm->mpi);
    free(comm);
}
