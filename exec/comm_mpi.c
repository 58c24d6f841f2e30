/* comm.h on MPI (the one place that includes mpi.h). */
#include "exec/comm.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cost/base/err.h"
#include "exec/comm_internal.h"
#include "exec/device.h"
#include "exec/world.h"

enum { PIECE = 1 << 28 }; /* elements per MPI call: counts are int */

struct comm {
    MPI_Comm mpi;
    int rank, size;
    struct world *world;
    struct comm_counters counters;
    MPI_Request *requests; /* MPI_REQUEST_NULL where free */
    int n_requests;
    int *shares; /* [size] of a reduce-scatter: Open MPI is much faster with MPI_Reduce_scatter than with _block */
};

static void check(struct comm *comm, int code, const char *call, int line)
{
    if (code == MPI_SUCCESS)
        return;
    char text[MPI_MAX_ERROR_STRING], sentence[MPI_MAX_ERROR_STRING + 128];
    int length = 0;
    MPI_Error_string(code, text, &length);
    snprintf(sentence, sizeof sentence, "%s at comm_mpi.c:%d: %s", call, line, text);
    world_fail(comm->world, sentence);
}
#define MPI_CHECK(comm, call) check((comm), (call), #call, __LINE__)

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
    return &comm->counters;
}

static double begin(struct comm *comm, int64_t sent, int64_t received)
{
    comm->counters.calls++;
    comm->counters.sent_bytes += sent;
    comm->counters.received_bytes += received;
    return device_now_s();
}

static void end(struct comm *comm, double start_s)
{
    comm->counters.seconds += device_now_s() - start_s;
}

static MPI_Datatype mpi_type(enum element type)
{
    return type == ELEMENT_F32 ? MPI_FLOAT : MPI_UINT16_T;
}

static float widened(uint16_t x)
{
    float value;
    uint32_t bits = (uint32_t)x << 16;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* MPI knows no bfloat16: elements travel as words of 16 bits, and are added in fp32 and rounded by the reference. */
static void add_bf16(void *in, void *inout, int *n, MPI_Datatype *type)
{
    const uint16_t *x = in;
    uint16_t *y = inout;
    (void)type;
    for (int i = 0; i < *n; i++) {
        float sum = widened(x[i]) + widened(y[i]);
        kernels_ref.convert(NULL, 1, ELEMENT_F32, &sum, ELEMENT_BF16, &y[i]);
    }
}

static void max_bf16(void *in, void *inout, int *n, MPI_Datatype *type)
{
    const uint16_t *x = in;
    uint16_t *y = inout;
    (void)type;
    for (int i = 0; i < *n; i++)
        y[i] = widened(x[i]) > widened(y[i]) ? x[i] : y[i];
}

static MPI_Op mpi_op(enum comm_reduction reduction, enum element type)
{
    static MPI_Op bf16[2] = {MPI_OP_NULL, MPI_OP_NULL};
    if (type == ELEMENT_F32)
        return reduction == COMM_MAX ? MPI_MAX : MPI_SUM;
    if (bf16[reduction] == MPI_OP_NULL)
        MPI_Op_create(reduction == COMM_MAX ? max_bf16 : add_bf16, 1, &bf16[reduction]);
    return bf16[reduction];
}

void comm_all_reduce(struct comm *comm, enum comm_reduction reduction, enum element type, int64_t n, void *x)
{
    if (comm->size == 1)
        return;
    int64_t bytes = 2 * (int64_t)element_bytes(type) * n * (comm->size - 1) / comm->size;
    double start_s = begin(comm, bytes, bytes);
    for (int64_t at = 0; at < n; at += PIECE) {
        int count = (int)(n - at < PIECE ? n - at : PIECE);
        MPI_CHECK(comm, MPI_Allreduce(MPI_IN_PLACE, element_at(type, x, at), count, mpi_type(type),
                                      mpi_op(reduction, type), comm->mpi));
    }
    end(comm, start_s);
}

void comm_all_reduce_doubles(struct comm *comm, enum comm_reduction reduction, int n, double *x)
{
    if (comm->size == 1)
        return;
    int64_t bytes = 2 * 8 * (int64_t)n * (comm->size - 1) / comm->size;
    double start_s = begin(comm, bytes, bytes);
    MPI_CHECK(comm, MPI_Allreduce(MPI_IN_PLACE, x, n, MPI_DOUBLE, mpi_op(reduction, ELEMENT_F32), comm->mpi));
    end(comm, start_s);
}

void comm_all_gather(struct comm *comm, enum element type, int64_t n_each, const void *mine, void *all)
{
    if (comm->size == 1) {
        if (all != mine)
            memcpy(all, mine, (size_t)n_each * element_bytes(type));
        return;
    }
    int64_t bytes = (int64_t)element_bytes(type) * n_each * (comm->size - 1);
    double start_s = begin(comm, bytes, bytes);
    const void *from = mine == element_at(type, all, comm->rank * n_each) ? MPI_IN_PLACE : mine;
    MPI_CHECK(comm, MPI_Allgather(from, (int)n_each, mpi_type(type), all, (int)n_each, mpi_type(type), comm->mpi));
    end(comm, start_s);
}

static const int *equal_shares(struct comm *comm, int64_t n_each)
{
    for (int i = 0; i < comm->size; i++)
        comm->shares[i] = (int)n_each;
    return comm->shares;
}

void comm_reduce_scatter(struct comm *comm, enum element type, int64_t n_each, const void *all, void *mine)
{
    if (comm->size == 1) {
        if (all != mine)
            memcpy(mine, all, (size_t)n_each * element_bytes(type));
        return;
    }
    int64_t bytes = (int64_t)element_bytes(type) * n_each * (comm->size - 1);
    double start_s = begin(comm, bytes, bytes);
    MPI_CHECK(comm, MPI_Reduce_scatter(all, mine, equal_shares(comm, n_each), mpi_type(type), mpi_op(COMM_SUM, type),
                                       comm->mpi));
    end(comm, start_s);
}

/* Counted like a ring: every member but the last hands the whole on. */
void comm_broadcast(struct comm *comm, int root, int64_t n, float *x)
{
    if (comm->size == 1)
        return;
    int place = (comm->rank - root + comm->size) % comm->size;
    double start_s = begin(comm, place < comm->size - 1 ? 4 * n : 0, place > 0 ? 4 * n : 0);
    MPI_CHECK(comm, MPI_Bcast(x, (int)n, MPI_FLOAT, root, comm->mpi));
    end(comm, start_s);
}

void comm_all_to_all(struct comm *comm, enum element type, const int64_t *send_counts, const void *send,
                     const int64_t *receive_counts, void *receive)
{
    if (comm->size == 1) {
        memcpy(receive, send, (size_t)send_counts[0] * element_bytes(type));
        return;
    }
    int *table = malloc((size_t)comm->size * 4 * sizeof *table);
    if (!table)
        abort();
    int *n_send = table, *at_send = n_send + comm->size, *n_receive = at_send + comm->size,
        *at_receive = n_receive + comm->size;
    int64_t sent = 0, received = 0;
    for (int i = 0; i < comm->size; i++) {
        n_send[i] = (int)send_counts[i];
        at_send[i] = (int)sent;
        n_receive[i] = (int)receive_counts[i];
        at_receive[i] = (int)received;
        sent += send_counts[i];
        received += receive_counts[i];
    }
    int64_t each = (int64_t)element_bytes(type);
    double start_s =
        begin(comm, each * (sent - send_counts[comm->rank]), each * (received - receive_counts[comm->rank]));
    MPI_CHECK(comm, MPI_Alltoallv(send, n_send, at_send, mpi_type(type), receive, n_receive, at_receive, mpi_type(type),
                                  comm->mpi));
    end(comm, start_s);
    free(table);
}

void comm_all_to_all_ints(struct comm *comm, int n_each, const int *send, int *receive)
{
    if (comm->size == 1) {
        memcpy(receive, send, (size_t)n_each * sizeof *receive);
        return;
    }
    int64_t bytes = 4 * (int64_t)n_each * (comm->size - 1);
    double start_s = begin(comm, bytes, bytes);
    MPI_CHECK(comm, MPI_Alltoall(send, n_each, MPI_INT, receive, n_each, MPI_INT, comm->mpi));
    end(comm, start_s);
}

void comm_barrier(struct comm *comm)
{
    if (comm->size > 1)
        MPI_CHECK(comm, MPI_Barrier(comm->mpi));
}

/* --- point to point -------------------------------------------------------- */

static int free_slot(struct comm *comm)
{
    for (int i = 0; i < comm->n_requests; i++)
        if (comm->requests[i] == MPI_REQUEST_NULL)
            return i;
    int n = comm->n_requests > 0 ? 2 * comm->n_requests : 64;
    comm->requests = realloc(comm->requests, (size_t)n * sizeof *comm->requests);
    if (!comm->requests)
        abort();
    for (int i = comm->n_requests; i < n; i++)
        comm->requests[i] = MPI_REQUEST_NULL;
    int first = comm->n_requests;
    comm->n_requests = n;
    return first;
}

struct comm_request comm_send(struct comm *comm, int to, enum element type, int64_t n, const void *x)
{
    struct comm_request request = {true, free_slot(comm), comm};
    begin(comm, (int64_t)element_bytes(type) * n, 0);
    MPI_CHECK(comm, MPI_Isend(x, (int)n, mpi_type(type), to, 0, comm->mpi, &comm->requests[request.index]));
    return request;
}

struct comm_request comm_receive(struct comm *comm, int from, enum element type, int64_t n, void *x)
{
    struct comm_request request = {true, free_slot(comm), comm};
    begin(comm, 0, (int64_t)element_bytes(type) * n);
    MPI_CHECK(comm, MPI_Irecv(x, (int)n, mpi_type(type), from, 0, comm->mpi, &comm->requests[request.index]));
    return request;
}

struct comm_request comm_all_reduce_start(struct comm *comm, int64_t n, float *x)
{
    struct comm_request request = {comm->size > 1, 0, comm};
    if (comm->size == 1)
        return request;
    int64_t bytes = 2 * 4 * n * (comm->size - 1) / comm->size;
    request.index = free_slot(comm);
    begin(comm, bytes, bytes);
    MPI_CHECK(comm,
              MPI_Iallreduce(MPI_IN_PLACE, x, (int)n, MPI_FLOAT, MPI_SUM, comm->mpi, &comm->requests[request.index]));
    return request;
}

struct comm_request comm_reduce_scatter_start(struct comm *comm, int64_t n_each, const float *all, float *mine)
{
    struct comm_request request = {comm->size > 1, 0, comm};
    if (comm->size == 1) {
        memcpy(mine, all, (size_t)n_each * sizeof *mine);
        return request;
    }
    int64_t bytes = 4 * n_each * (comm->size - 1);
    request.index = free_slot(comm);
    begin(comm, bytes, bytes);
    MPI_CHECK(comm, MPI_Ireduce_scatter_block(all, mine, (int)n_each, MPI_FLOAT, MPI_SUM, comm->mpi,
                                              &comm->requests[request.index]));
    return request;
}

void comm_wait(struct comm_request *request)
{
    if (!request->active)
        return;
    double start_s = device_now_s();
    MPI_CHECK(request->comm, MPI_Wait(&request->comm->requests[request->index], MPI_STATUS_IGNORE));
    request->active = false;
    end(request->comm, start_s);
}

bool comm_done(struct comm_request *request)
{
    int done = 1;
    if (request->active)
        MPI_CHECK(request->comm, MPI_Test(&request->comm->requests[request->index], &done, MPI_STATUS_IGNORE));
    if (done)
        request->active = false;
    return done != 0;
}

/* --- life ------------------------------------------------------------------ */

struct comm *comm_new(struct world *world, int size, int colour, int key)
{
    struct comm *comm = calloc(1, sizeof *comm);
    if (!comm)
        abort();
    comm->world = world;
    comm->size = size;
    comm->mpi = MPI_COMM_NULL;
    if (size > 1) {
        MPI_CHECK(comm, MPI_Comm_split(MPI_COMM_WORLD, colour, key, &comm->mpi));
        MPI_CHECK(comm, MPI_Comm_set_errhandler(comm->mpi, MPI_ERRORS_RETURN));
        MPI_CHECK(comm, MPI_Comm_rank(comm->mpi, &comm->rank));
        MPI_CHECK(comm, MPI_Comm_size(comm->mpi, &comm->size));
    }
    comm->shares = calloc((size_t)comm->size, sizeof *comm->shares);
    if (!comm->shares)
        abort();
    return comm;
}

void comm_free(struct comm *comm)
{
    if (!comm)
        return;
    if (comm->mpi != MPI_COMM_NULL)
        MPI_Comm_free(&comm->mpi);
    free(comm->requests);
    free(comm->shares);
    free(comm);
}

int comm_start(int *argc, char ***argv, int *ret_rank, int *ret_size, int *ret_local_rank, int *ret_local_size,
               struct err *err)
{
    if (MPI_Init(argc, argv) != MPI_SUCCESS)
        return err_add(err, "MPI does not start");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm node;
    if (MPI_Comm_rank(MPI_COMM_WORLD, ret_rank) != MPI_SUCCESS ||
        MPI_Comm_size(MPI_COMM_WORLD, ret_size) != MPI_SUCCESS ||
        MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, *ret_rank, MPI_INFO_NULL, &node) != MPI_SUCCESS)
        return err_add(err, "MPI does not say who is there");
    MPI_Comm_rank(node, ret_local_rank);
    MPI_Comm_size(node, ret_local_size);
    MPI_Comm_free(&node);
    return 0;
}

void comm_stop(void)
{
    MPI_Finalize();
}

void comm_abort(int code)
{
    MPI_Abort(MPI_COMM_WORLD, code);
    exit(code);
}

const char *comm_host(void)
{
    static char host[MPI_MAX_PROCESSOR_NAME];
    int length = 0;
    if (MPI_Get_processor_name(host, &length) != MPI_SUCCESS)
        strcpy(host, "?");
    return host;
}
