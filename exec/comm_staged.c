/* A device's memory by way of the host: down, through MPI, up again. For ranks that share a GPU, which NCCL refuses;
 * right, not fast. */
#include <stdlib.h>

#include "exec/comm_internal.h"
#include "exec/device.h"

/* A message or collective under way: its host memory, and where what it brings goes. */
struct staged {
    bool used;
    int slot; /* of comm_mpi */
    char *host;
    void *to; /* NULL = nowhere */
    char *from;
    size_t bytes;
};

struct staging {
    struct staged *staged;
    int n;
};

static char *host_memory(size_t bytes)
{
    char *memory = malloc(bytes + 1);
    if (!memory)
        abort();
    return memory;
}

static char *host_copy(struct comm *comm, const void *from, size_t bytes)
{
    char *host = host_memory(bytes);
    comm->device->download(comm->device, host, from, bytes);
    return host;
}

/* And gives the host memory back. */
static void put(struct comm *comm, char *host, void *to, const char *from, size_t bytes)
{
    comm->device->upload(comm->device, to, from, bytes);
    free(host);
}

static void staged_all_reduce(struct comm *comm, enum comm_reduction reduction, enum element type, int64_t n, void *x)
{
    size_t bytes = (size_t)n * element_bytes(type);
    char *host = host_copy(comm, x, bytes);
    comm_mpi.all_reduce(comm, reduction, type, n, host);
    put(comm, host, x, host, bytes);
}

static void staged_all_gather(struct comm *comm, enum element type, int64_t n_each, const void *mine, void *all)
{
    size_t bytes = (size_t)n_each * element_bytes(type);
    char *host = host_memory(bytes * (size_t)comm->size), *place = host + bytes * (size_t)comm->rank;
    comm->device->download(comm->device, place, mine, bytes);
    comm_mpi.all_gather(comm, type, n_each, place, host);
    put(comm, host, all, host, bytes * (size_t)comm->size);
}

static void staged_reduce_scatter(struct comm *comm, enum element type, int64_t n_each, const void *all, void *mine)
{
    size_t bytes = (size_t)n_each * element_bytes(type), whole = bytes * (size_t)comm->size;
    char *host = host_memory(whole + bytes);
    comm->device->download(comm->device, host, all, whole);
    comm_mpi.reduce_scatter(comm, type, n_each, host, host + whole);
    put(comm, host, mine, host + whole, bytes);
}

static size_t total_bytes(const struct comm *comm, enum element type, const int64_t *counts)
{
    int64_t n = 0;
    for (int i = 0; i < comm->size; i++)
        n += counts[i];
    return (size_t)n * element_bytes(type);
}

static void staged_all_to_all(struct comm *comm, enum element type, const int64_t *send_counts, const void *send,
                              const int64_t *receive_counts, void *receive)
{
    size_t out = total_bytes(comm, type, send_counts), in = total_bytes(comm, type, receive_counts);
    char *sent = host_copy(comm, send, out), *received = host_memory(in);
    comm_mpi.all_to_all(comm, type, send_counts, sent, receive_counts, received);
    put(comm, received, receive, received, in);
    free(sent);
}

/* --- under way ------------------------------------------------------------------- */

static int note(struct comm *comm, const struct staged *staged)
{
    struct staging *s = comm->state;
    if (!s)
        s = comm->state = calloc(1, sizeof *s);
    int i = 0;
    while (s && i < s->n && s->staged[i].used)
        i++;
    if (s && i == s->n)
        s->staged = realloc(s->staged, (size_t)++s->n * sizeof *s->staged);
    if (!s || !s->staged)
        abort();
    s->staged[i] = *staged;
    s->staged[i].used = true;
    return i;
}

static int staged_send(struct comm *comm, int to, enum element type, int64_t n, const void *x)
{
    struct staged staged = {.host = host_copy(comm, x, (size_t)n * element_bytes(type))};
    staged.slot = comm_mpi.send(comm, to, type, n, staged.host);
    return note(comm, &staged);
}

static int staged_receive(struct comm *comm, int from, enum element type, int64_t n, void *x)
{
    struct staged staged = {.to = x, .bytes = (size_t)n * element_bytes(type)};
    staged.host = staged.from = host_memory(staged.bytes);
    staged.slot = comm_mpi.receive(comm, from, type, n, staged.host);
    return note(comm, &staged);
}

static int staged_all_reduce_start(struct comm *comm, int64_t n, float *x)
{
    struct staged staged = {.to = x, .bytes = (size_t)n * sizeof *x};
    staged.host = staged.from = host_copy(comm, x, staged.bytes);
    staged.slot = comm_mpi.all_reduce_start(comm, n, (float *)(void *)staged.host);
    return note(comm, &staged);
}

static int staged_reduce_scatter_start(struct comm *comm, int64_t n_each, const float *all, float *mine)
{
    struct staged staged = {.to = mine, .bytes = (size_t)n_each * sizeof *mine};
    size_t whole = staged.bytes * (size_t)comm->size;
    staged.host = host_memory(whole + staged.bytes);
    staged.from = staged.host + whole;
    comm->device->download(comm->device, staged.host, all, whole);
    staged.slot = comm_mpi.reduce_scatter_start(comm, n_each, (const float *)(const void *)staged.host,
                                                (float *)(void *)staged.from);
    return note(comm, &staged);
}

static int staged_all_gather_start(struct comm *comm, enum element type, int64_t n_each, const void *mine, void *all)
{
    size_t bytes = (size_t)n_each * element_bytes(type);
    struct staged staged = {.to = all, .bytes = bytes * (size_t)comm->size};
    staged.host = staged.from = host_memory(staged.bytes);
    char *place = staged.host + bytes * (size_t)comm->rank;
    comm->device->download(comm->device, place, mine, bytes);
    staged.slot = comm_mpi.all_gather_start(comm, type, n_each, place, staged.host);
    return note(comm, &staged);
}

static void arrived(struct comm *comm, struct staged *staged)
{
    if (staged->to)
        put(comm, staged->host, staged->to, staged->from, staged->bytes);
    else
        free(staged->host);
    staged->used = false;
}

static void staged_wait(struct comm *comm, int slot)
{
    struct staged *staged = &((struct staging *)comm->state)->staged[slot];
    comm_mpi.wait(comm, staged->slot);
    arrived(comm, staged);
}

static bool staged_done(struct comm *comm, int slot)
{
    struct staged *staged = &((struct staging *)comm->state)->staged[slot];
    if (!comm_mpi.done(comm, staged->slot))
        return false;
    arrived(comm, staged);
    return true;
}

static void staged_release(struct comm *comm)
{
    struct staging *s = comm->state;
    if (s)
        free(s->staged);
    free(s);
}

const struct comm_transport comm_staged = {
    .waits = true,
    .all_reduce = staged_all_reduce,
    .all_gather = staged_all_gather,
    .reduce_scatter = staged_reduce_scatter,
    .all_to_all = staged_all_to_all,
    .send = staged_send,
    .receive = staged_receive,
    .all_reduce_start = staged_all_reduce_start,
    .reduce_scatter_start = staged_reduce_scatter_start,
    .all_gather_start = staged_all_gather_start,
    .wait = staged_wait,
    .done = staged_done,
    .release = staged_release,
};
