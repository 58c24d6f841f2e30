#include "exec/comm_nccl.h"

#include <dlfcn.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cost/base/err.h"
#include "exec/comm_internal.h"
#include "exec/device.h"
#include "exec/world.h"

/* --- the library --------------------------------------------------------------- */

static struct {
    void *handle;
    ncclResult_t (*unique_id)(ncclUniqueId *);
    ncclResult_t (*init)(ncclComm_t *, int, ncclUniqueId, int);
    ncclResult_t (*init_config)(ncclComm_t *, int, ncclUniqueId, int, ncclConfig_t *);
    ncclResult_t (*destroy)(ncclComm_t);
    ncclResult_t (*async_error)(ncclComm_t, ncclResult_t *);
    ncclResult_t (*group_start)(void);
    ncclResult_t (*group_end)(void);
    ncclResult_t (*all_reduce)(const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t);
    ncclResult_t (*all_gather)(const void *, void *, size_t, ncclDataType_t, ncclComm_t, cudaStream_t);
    ncclResult_t (*reduce_scatter)(const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t);
    ncclResult_t (*send)(const void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t);
    ncclResult_t (*receive)(void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t);
    const char *(*error_text)(ncclResult_t);
} nccl;

int comm_nccl_load(struct err *err)
{
    static const struct {
        const char *name;
        void *function; /* where its address goes */
    } symbols[] = {
        {"ncclGetUniqueId", &nccl.unique_id},
        {"ncclCommInitRank", &nccl.init},
        {"ncclCommInitRankConfig", &nccl.init_config},
        {"ncclCommDestroy", &nccl.destroy},
        {"ncclCommGetAsyncError", &nccl.async_error},
        {"ncclGroupStart", &nccl.group_start},
        {"ncclGroupEnd", &nccl.group_end},
        {"ncclAllReduce", &nccl.all_reduce},
        {"ncclAllGather", &nccl.all_gather},
        {"ncclReduceScatter", &nccl.reduce_scatter},
        {"ncclSend", &nccl.send},
        {"ncclRecv", &nccl.receive},
        {"ncclGetErrorString", &nccl.error_text},
    };
    nccl.handle = dlopen("libnccl.so.2", RTLD_NOW);
    if (!nccl.handle)
        nccl.handle = dlopen("/usr/local/cuda/lib64/libnccl.so.2", RTLD_NOW);
    if (!nccl.handle)
        return err_add(err, "several GPUs need NCCL, which is not here: %s", dlerror());
    for (size_t i = 0; i < sizeof symbols / sizeof symbols[0]; i++) {
        void *address = dlsym(nccl.handle, symbols[i].name);
        if (!address)
            return err_add(err, "this NCCL has no %s", symbols[i].name);
        memcpy(symbols[i].function, &address, sizeof address);
    }
    return 0;
}

/* --- what a group has ------------------------------------------------------------ */

/* Messages in one direction between this rank and a neighbour. */
struct link {
    int peer; /* rank in the group */
    bool out;
    int number; /* the same at both ends */
    ncclComm_t comm;
    void *queue;
};
enum {
    LINKS = 4, /* to and from both neighbours */
    /* Blocks of a message's kernel, each of which holds a multiprocessor while it waits for the other end: NCCL's own
     * choice, up to 32, could fill the GPU with kernels that wait, and leave no room for those waited for. */
    LINK_BLOCKS = 8
};

/* One that goes on beside the device's queue; its end is waited for by event. */
struct under_way {
    bool used, message;
    void *event;
};

/* What has not been counted yet: the time of a call, or that the device's queue waited, or both. */
struct timing {
    struct timing *next;
    bool called, waited;
    void *start, *end;
};

struct group {
    struct comm *comm;
    struct group *next; /* of all groups, for polling */
    ncclComm_t nccl;
    void *queue, *before; /* before: recorded in the device's queue when a call begins */
    struct link link[LINKS];
    int n_links;
    struct under_way *under_way;
    int n_under_way;
    struct timing *first, **last, *spare;
    double seconds, waited_s;
};
static struct group *groups;

static void check(const struct comm *comm, ncclResult_t result, const char *call, int line)
{
    char sentence[512];
    if (result == ncclSuccess || result == ncclInProgress)
        return;
    snprintf(sentence, sizeof sentence, "%s at comm_nccl.c:%d: %s", call, line, nccl.error_text(result));
    world_fail(comm->world, sentence);
}
#define NCCL_CHECK(comm, call) check((comm), (call), #call, __LINE__)

/* The job is ended without ncclCommAbort: that waits for the other ranks, which may not come. */
static void poll_one(const struct comm *comm, ncclComm_t one)
{
    ncclResult_t state = ncclSuccess;
    char sentence[256];
    if (!one || (nccl.async_error(one, &state) == ncclSuccess && (state == ncclSuccess || state == ncclInProgress)))
        return;
    snprintf(sentence, sizeof sentence, "NCCL lost another rank: %s", nccl.error_text(state));
    world_fail(comm->world, sentence);
}

static void poll_all(void *context)
{
    (void)context;
    for (struct group *g = groups; g; g = g->next) {
        poll_one(g->comm, g->nccl);
        for (int i = 0; i < g->n_links; i++)
            poll_one(g->comm, g->link[i].comm);
    }
}

static struct group *group_of(struct comm *comm)
{
    return comm->state;
}

static ncclDataType_t nccl_type(enum element type)
{
    return type == ELEMENT_F32 ? ncclFloat32 : ncclBfloat16;
}

/* --- times ------------------------------------------------------------------------ */

static struct timing *new_timing(struct group *g)
{
    struct device *device = g->comm->device;
    struct timing *t = g->spare;
    if (t) {
        g->spare = t->next;
    } else {
        t = calloc(1, sizeof *t);
        if (!t)
            abort();
        t->start = device->event_new(device);
        t->end = device->event_new(device);
    }
    t->next = NULL;
    t->called = true;
    t->waited = false;
    *g->last = t;
    g->last = &t->next;
    return t;
}

/* Counts what has ended; all: waits for what has not. */
static void count(struct group *g, bool all)
{
    struct device *device = g->comm->device;
    while (g->first && (all || device->event_done(device, g->first->end))) {
        struct timing *t = g->first;
        double gap_s = device->event_gap_s(device, t->start, t->end);
        g->seconds += t->called ? gap_s : 0;
        g->waited_s += t->waited ? gap_s : 0;
        g->first = t->next;
        if (!g->first)
            g->last = &g->first;
        t->next = g->spare;
        g->spare = t;
    }
}

static void nccl_take_seconds(struct comm *comm, double *seconds, double *waited_s)
{
    struct group *g = group_of(comm);
    count(g, true);
    *seconds += g->seconds;
    *waited_s += g->waited_s;
    g->seconds = g->waited_s = 0;
}

/* --- collectives -------------------------------------------------------------------- */

/* What the queue gets now comes after all that the device's queue holds. */
static void follow(struct group *g, void *queue)
{
    struct device *device = g->comm->device;
    device->event_record(device, g->before, device->queue);
    device->queue_wait(device, queue, g->before);
}

static void make_communicator(struct group *g)
{
    ncclUniqueId id;
    memset(&id, 0, sizeof id);
    if (g->comm->rank == 0)
        NCCL_CHECK(g->comm, nccl.unique_id(&id));
    comm_mpi_broadcast(g->comm, 0, sizeof id, &id);
    NCCL_CHECK(g->comm, nccl.init(&g->nccl, g->comm->size, id, g->comm->rank));
}

static struct timing *begin(struct comm *comm)
{
    struct group *g = group_of(comm);
    if (!g->nccl)
        make_communicator(g);
    count(g, false);
    struct timing *t = new_timing(g);
    follow(g, g->queue);
    comm->device->event_record(comm->device, t->start, g->queue);
    return t;
}

/* The device's queue goes on after the call. */
static void end(struct comm *comm, struct timing *t)
{
    struct device *device = comm->device;
    t->waited = true;
    device->event_record(device, t->end, group_of(comm)->queue);
    device->queue_wait(device, device->queue, t->end);
}

/* The device's queue goes on; returns the slot that is waited for. */
static int note(struct comm *comm, void *queue, bool message)
{
    struct group *g = group_of(comm);
    struct device *device = comm->device;
    int i = 0;
    while (i < g->n_under_way && g->under_way[i].used)
        i++;
    if (i == g->n_under_way) {
        g->under_way = realloc(g->under_way, (size_t)++g->n_under_way * sizeof *g->under_way);
        if (!g->under_way)
            abort();
        g->under_way[i].event = device->event_new(device);
    }
    g->under_way[i].used = true;
    g->under_way[i].message = message;
    device->event_record(device, g->under_way[i].event, queue);
    return i;
}

static void nccl_all_reduce(struct comm *comm, enum comm_reduction reduction, enum element type, int64_t n, void *x)
{
    struct timing *t = begin(comm);
    struct group *g = group_of(comm);
    NCCL_CHECK(comm, nccl.all_reduce(x, x, (size_t)n, nccl_type(type), reduction == COMM_MAX ? ncclMax : ncclSum,
                                     g->nccl, g->queue));
    end(comm, t);
}

static void nccl_all_gather(struct comm *comm, enum element type, int64_t n_each, const void *mine, void *all)
{
    struct timing *t = begin(comm);
    struct group *g = group_of(comm);
    NCCL_CHECK(comm, nccl.all_gather(mine, all, (size_t)n_each, nccl_type(type), g->nccl, g->queue));
    end(comm, t);
}

static void nccl_reduce_scatter(struct comm *comm, enum element type, int64_t n_each, const void *all, void *mine)
{
    struct timing *t = begin(comm);
    struct group *g = group_of(comm);
    NCCL_CHECK(comm, nccl.reduce_scatter(all, mine, (size_t)n_each, nccl_type(type), ncclSum, g->nccl, g->queue));
    end(comm, t);
}

static void nccl_all_to_all(struct comm *comm, enum element type, const int64_t *send_counts, const void *send,
                            const int64_t *receive_counts, void *receive)
{
    struct timing *t = begin(comm);
    struct group *g = group_of(comm);
    int64_t sent = 0, received = 0;
    NCCL_CHECK(comm, nccl.group_start());
    for (int i = 0; i < comm->size; i++) {
        if (send_counts[i] > 0)
            NCCL_CHECK(comm, nccl.send(element_at(type, send, sent), (size_t)send_counts[i], nccl_type(type), i,
                                       g->nccl, g->queue));
        if (receive_counts[i] > 0)
            NCCL_CHECK(comm, nccl.receive(element_at(type, receive, received), (size_t)receive_counts[i],
                                          nccl_type(type), i, g->nccl, g->queue));
        sent += send_counts[i];
        received += receive_counts[i];
    }
    NCCL_CHECK(comm, nccl.group_end());
    end(comm, t);
}

static int nccl_all_reduce_start(struct comm *comm, int64_t n, float *x)
{
    struct timing *t = begin(comm);
    struct group *g = group_of(comm);
    NCCL_CHECK(comm, nccl.all_reduce(x, x, (size_t)n, ncclFloat32, ncclSum, g->nccl, g->queue));
    comm->device->event_record(comm->device, t->end, g->queue);
    return note(comm, g->queue, false);
}

static int nccl_reduce_scatter_start(struct comm *comm, int64_t n_each, const float *all, float *mine)
{
    struct timing *t = begin(comm);
    struct group *g = group_of(comm);
    NCCL_CHECK(comm, nccl.reduce_scatter(all, mine, (size_t)n_each, ncclFloat32, ncclSum, g->nccl, g->queue));
    comm->device->event_record(comm->device, t->end, g->queue);
    return note(comm, g->queue, false);
}

static int nccl_all_gather_start(struct comm *comm, enum element type, int64_t n_each, const void *mine, void *all)
{
    struct timing *t = begin(comm);
    struct group *g = group_of(comm);
    NCCL_CHECK(comm, nccl.all_gather(mine, all, (size_t)n_each, nccl_type(type), g->nccl, g->queue));
    comm->device->event_record(comm->device, t->end, g->queue);
    return note(comm, g->queue, false);
}

/* --- messages ------------------------------------------------------------------------ */

static struct link *link_to(struct comm *comm, int peer, bool out)
{
    struct group *g = group_of(comm);
    for (int i = 0; i < g->n_links; i++)
        if (g->link[i].peer == peer && g->link[i].out == out)
            return &g->link[i];
    world_fail(comm->world, "a message between ranks that are no neighbours");
    return NULL;
}

/* In a link's communicator the sender is rank 0. */
static int nccl_send(struct comm *comm, int to, enum element type, int64_t n, const void *x)
{
    struct link *link = link_to(comm, to, true);
    follow(group_of(comm), link->queue);
    NCCL_CHECK(comm, nccl.send(x, (size_t)n, nccl_type(type), 1, link->comm, link->queue));
    return note(comm, link->queue, true);
}

/* The buffer may still be in use by what the device's queue holds. */
static int nccl_receive(struct comm *comm, int from, enum element type, int64_t n, void *x)
{
    struct link *link = link_to(comm, from, false);
    follow(group_of(comm), link->queue);
    NCCL_CHECK(comm, nccl.receive(x, (size_t)n, nccl_type(type), 0, link->comm, link->queue));
    return note(comm, link->queue, true);
}

static void nccl_wait(struct comm *comm, int slot)
{
    struct group *g = group_of(comm);
    struct under_way *one = &g->under_way[slot];
    struct device *device = comm->device;
    count(g, false);
    struct timing *t = new_timing(g);
    t->called = one->message; /* a message's own time is not known: it begins when the other end does */
    t->waited = true;
    device->event_record(device, t->start, device->queue);
    device->queue_wait(device, device->queue, one->event);
    device->event_record(device, t->end, device->queue);
    one->used = false;
}

static bool nccl_done(struct comm *comm, int slot)
{
    struct under_way *one = &group_of(comm)->under_way[slot];
    if (!comm->device->event_done(comm->device, one->event))
        return false;
    one->used = false;
    return true;
}

/* --- life ----------------------------------------------------------------------------- */

/* In the order of their numbers: to destroy one may wait for its other end, which must not wait for another here. */
static void free_links(struct group *g)
{
    struct device *device = g->comm->device;
    for (int number = 0; number < 2 * g->comm->size; number++)
        for (int i = 0; i < g->n_links; i++)
            if (g->link[i].number == number) {
                nccl.destroy(g->link[i].comm);
                device->queue_free(device, g->link[i].queue);
            }
}

static void nccl_release(struct comm *comm)
{
    struct group *g = group_of(comm), **at = &groups;
    struct device *device = comm->device;
    count(g, true);
    while (*at != g)
        at = &(*at)->next;
    *at = g->next;
    free_links(g);
    if (g->nccl)
        nccl.destroy(g->nccl);
    for (int i = 0; i < g->n_under_way; i++)
        device->event_free(device, g->under_way[i].event);
    for (struct timing *t = g->spare, *next; t; t = next) {
        next = t->next;
        device->event_free(device, t->start);
        device->event_free(device, t->end);
        free(t);
    }
    device->event_free(device, g->before);
    device->queue_free(device, g->queue);
    free(g->under_way);
    free(g);
}

static const struct comm_transport comm_nccl = {
    .all_reduce = nccl_all_reduce,
    .all_gather = nccl_all_gather,
    .reduce_scatter = nccl_reduce_scatter,
    .all_to_all = nccl_all_to_all,
    .send = nccl_send,
    .receive = nccl_receive,
    .all_reduce_start = nccl_all_reduce_start,
    .reduce_scatter_start = nccl_reduce_scatter_start,
    .all_gather_start = nccl_all_gather_start,
    .wait = nccl_wait,
    .done = nccl_done,
    .take_seconds = nccl_take_seconds,
    .release = nccl_release,
};

/* second: the sender's other one. */
static void add_link(struct group *g, int peer, bool out, int second)
{
    struct link *link = &g->link[g->n_links++];
    link->peer = peer;
    link->out = out;
    link->number = 2 * (out ? g->comm->rank : peer) + second;
    link->queue = g->comm->device->queue_new(g->comm->device);
}

/* Every rank makes the ids of its two outgoing links: to the next rank and to the one before; with two ranks these are
 * one. All inits of a rank are one group, so that their order among ranks does not matter. */
static void make_links(struct group *g)
{
    struct comm *comm = g->comm;
    int size = comm->size, next = (comm->rank + 1) % size, before = (comm->rank + size - 1) % size;
    ncclUniqueId mine[2], *all = calloc((size_t)size, sizeof mine);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    if (!all)
        abort();
    config.maxCTAs = LINK_BLOCKS;
    for (int i = 0; i < 2; i++)
        NCCL_CHECK(comm, nccl.unique_id(&mine[i]));
    comm_mpi_all_gather(comm, sizeof mine, mine, all);
    add_link(g, next, true, 0);
    add_link(g, before, false, 0);
    if (size > 2) {
        add_link(g, before, true, 1);
        add_link(g, next, false, 1);
    }
    NCCL_CHECK(comm, nccl.group_start());
    for (int i = 0; i < g->n_links; i++) {
        struct link *link = &g->link[i];
        NCCL_CHECK(comm, nccl.init_config(&link->comm, 2, all[link->number], link->out ? 0 : 1, &config));
    }
    NCCL_CHECK(comm, nccl.group_end());
    free(all);
}

void comm_nccl_attach(struct comm *comm, bool links, bool now)
{
    if (comm->size == 1)
        return;
    struct device *device = comm->device;
    struct group *g = calloc(1, sizeof *g);
    if (!g)
        abort();
    g->comm = comm;
    g->last = &g->first;
    g->queue = device->queue_new(device);
    g->before = device->event_new(device);
    g->next = groups;
    groups = g;
    comm->state = g;
    comm->transport = &comm_nccl;
    device->poll = poll_all;
    if (links)
        make_links(g);
    if (now)
        make_communicator(g);
}
