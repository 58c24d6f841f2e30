/* MPI (the one place that includes mpi.h): all that concerns host memory. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cost/base/err.h"
#include "exec/comm_internal.h"
#include "exec/world.h"

enum { PIECE = 1 << 28 }; /* elements per MPI call: counts are int */

struct comm_mpi {
    MPI_Comm group;
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

/* --- elements ---------------------------------------------------------------- */

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

/* --- collectives --------------------------------------------------------------- */

static void mpi_all_reduce(struct comm *comm, enum comm_reduction reduction, enum element type, int64_t n, void *x)
{
    for (int64_t at = 0; at < n; at += PIECE) {
        int count = (int)(n - at < PIECE ? n - at : PIECE);
        MPI_CHECK(comm, MPI_Allreduce(MPI_IN_PLACE, element_at(type, x, at), count, mpi_type(type),
                                      mpi_op(reduction, type), comm->mpi->group));
    }
}

static void mpi_all_gather(struct comm *comm, enum element type, int64_t n_each, const void *mine, void *all)
{
    const void *from = mine == element_at(type, all, comm->rank * n_each) ? MPI_IN_PLACE : mine;
    MPI_CHECK(comm,
              MPI_Allgather(from, (int)n_each, mpi_type(type), all, (int)n_each, mpi_type(type), comm->mpi->group));
}

static void mpi_reduce_scatter(struct comm *comm, enum element type, int64_t n_each, const void *all, void *mine)
{
    int *shares = comm->mpi->shares;
    for (int i = 0; i < comm->size; i++)
        shares[i] = (int)n_each;
    MPI_CHECK(comm, MPI_Reduce_scatter(all, mine, shares, mpi_type(type), mpi_op(COMM_SUM, type), comm->mpi->group));
}

static void mpi_all_to_all(struct comm *comm, enum element type, const int64_t *send_counts, const void *send,
                           const int64_t *receive_counts, void *receive)
{
    int *table = malloc((size_t)comm->size * 4 * sizeof *table), sent = 0, received = 0;
    if (!table)
        abort();
    int *n_send = table, *at_send = n_send + comm->size, *n_receive = at_send + comm->size,
        *at_receive = n_receive + comm->size;
    for (int i = 0; i < comm->size; i++) {
        n_send[i] = (int)send_counts[i];
        at_send[i] = sent;
        n_receive[i] = (int)receive_counts[i];
        at_receive[i] = received;
        sent += n_send[i];
        received += n_receive[i];
    }
    MPI_CHECK(comm, MPI_Alltoallv(send, n_send, at_send, mpi_type(type), receive, n_receive, at_receive, mpi_type(type),
                                  comm->mpi->group));
    free(table);
}

/* --- under way ------------------------------------------------------------------- */

static int free_slot(struct comm_mpi *mpi)
{
    for (int i = 0; i < mpi->n_requests; i++)
        if (mpi->requests[i] == MPI_REQUEST_NULL)
            return i;
    int n = mpi->n_requests > 0 ? 2 * mpi->n_requests : 64;
    mpi->requests = realloc(mpi->requests, (size_t)n * sizeof *mpi->requests);
    if (!mpi->requests)
        abort();
    for (int i = mpi->n_requests; i < n; i++)
        mpi->requests[i] = MPI_REQUEST_NULL;
    int first = mpi->n_requests;
    mpi->n_requests = n;
    return first;
}

static int mpi_send(struct comm *comm, int to, enum element type, int64_t n, const void *x)
{
    int slot = free_slot(comm->mpi);
    MPI_CHECK(comm, MPI_Isend(x, (int)n, mpi_type(type), to, 0, comm->mpi->group, &comm->mpi->requests[slot]));
    return slot;
}

static int mpi_receive(struct comm *comm, int from, enum element type, int64_t n, void *x)
{
    int slot = free_slot(comm->mpi);
    MPI_CHECK(comm, MPI_Irecv(x, (int)n, mpi_type(type), from, 0, comm->mpi->group, &comm->mpi->requests[slot]));
    return slot;
}

static int mpi_all_reduce_start(struct comm *comm, int64_t n, float *x)
{
    int slot = free_slot(comm->mpi);
    MPI_CHECK(comm, MPI_Iallreduce(MPI_IN_PLACE, x, (int)n, MPI_FLOAT, MPI_SUM, comm->mpi->group,
                                   &comm->mpi->requests[slot]));
    return slot;
}

static int mpi_reduce_scatter_start(struct comm *comm, int64_t n_each, const float *all, float *mine)
{
    int slot = free_slot(comm->mpi);
    MPI_CHECK(comm, MPI_Ireduce_scatter_block(all, mine, (int)n_each, MPI_FLOAT, MPI_SUM, comm->mpi->group,
                                              &comm->mpi->requests[slot]));
    return slot;
}

static int mpi_all_gather_start(struct comm *comm, enum element type, int64_t n_each, const void *mine, void *all)
{
    int slot = free_slot(comm->mpi);
    const void *from = mine == element_at(type, all, comm->rank * n_each) ? MPI_IN_PLACE : mine;
    MPI_CHECK(comm, MPI_Iallgather(from, (int)n_each, mpi_type(type), all, (int)n_each, mpi_type(type), comm->mpi->group,
                                   &comm->mpi->requests[slot]));
    return slot;
}

static void mpi_wait(struct comm *comm, int slot)
{
    MPI_CHECK(comm, MPI_Wait(&comm->mpi->requests[slot], MPI_STATUS_IGNORE));
}

static bool mpi_done(struct comm *comm, int slot)
{
    int done = 0;
    MPI_CHECK(comm, MPI_Test(&comm->mpi->requests[slot], &done, MPI_STATUS_IGNORE));
    return done != 0;
}

const struct comm_transport comm_mpi = {
    .waits = true,
    .all_reduce = mpi_all_reduce,
    .all_gather = mpi_all_gather,
    .reduce_scatter = mpi_reduce_scatter,
    .all_to_all = mpi_all_to_all,
    .send = mpi_send,
    .receive = mpi_receive,
    .all_reduce_start = mpi_all_reduce_start,
    .reduce_scatter_start = mpi_reduce_scatter_start,
    .all_gather_start = mpi_all_gather_start,
    .wait = mpi_wait,
    .done = mpi_done,
};

/* --- what is always of host memory ----------------------------------------------- */

void comm_mpi_all_reduce_doubles(struct comm *comm, enum comm_reduction reduction, int n, double *x)
{
    MPI_CHECK(comm, MPI_Allreduce(MPI_IN_PLACE, x, n, MPI_DOUBLE, reduction == COMM_MAX ? MPI_MAX : MPI_SUM,
                                  comm->mpi->group));
}

void comm_mpi_broadcast(struct comm *comm, int root, size_t bytes, void *x)
{
    for (size_t at = 0; at < bytes; at += PIECE) {
        size_t n = bytes - at < PIECE ? bytes - at : PIECE;
        MPI_CHECK(comm, MPI_Bcast((char *)x + at, (int)n, MPI_BYTE, root, comm->mpi->group));
    }
}

void comm_mpi_all_gather(struct comm *comm, size_t bytes_each, const void *mine, void *all)
{
    MPI_CHECK(comm, MPI_Allgather(mine, (int)bytes_each, MPI_BYTE, all, (int)bytes_each, MPI_BYTE, comm->mpi->group));
}

void comm_mpi_all_to_all_ints(struct comm *comm, int n_each, const int *send, int *receive)
{
    MPI_CHECK(comm, MPI_Alltoall(send, n_each, MPI_INT, receive, n_each, MPI_INT, comm->mpi->group));
}

void comm_mpi_barrier(struct comm *comm)
{
    MPI_CHECK(comm, MPI_Barrier(comm->mpi->group));
}

/* --- life ------------------------------------------------------------------------- */

struct comm_mpi *comm_mpi_new(struct comm *comm, int colour, int key)
{
    struct comm_mpi *mpi = calloc(1, sizeof *mpi);
    if (!mpi)
        abort();
    MPI_CHECK(comm, MPI_Comm_split(MPI_COMM_WORLD, colour, key, &mpi->group));
    MPI_CHECK(comm, MPI_Comm_set_errhandler(mpi->group, MPI_ERRORS_RETURN));
    MPI_CHECK(comm, MPI_Comm_rank(mpi->group, &comm->rank));
    MPI_CHECK(comm, MPI_Comm_size(mpi->group, &comm->size));
    mpi->shares = calloc((size_t)comm->size, sizeof *mpi->shares);
    if (!mpi->shares)
        abort();
    return mpi;
}

void comm_mpi_free(struct comm_mpi *mpi)
{
    if (!mpi)
        return;
    MPI_Comm_free(&mpi->group);
    free(mpi->requests);
    free(mpi->shares);
    free(mpi);
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
