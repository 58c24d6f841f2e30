/* NCCL on the emulator: an operation of a stream sends and receives by MPI when its turn comes, and ends when all has
 * arrived. Ranks are processes; their streams run as unkindly as the emulator likes. While the host waits in MPI its
 * streams go on, as those of a GPU would (MPI's profiling interface, at the end). */
#include <mpi.h>
#include <nccl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"

enum { FIRST_TAG = 1000, TAGS_EACH = 1 << 14, OPEN_MOST = 64, PARTS_MOST = 64 };

struct ncclComm {
    int rank, size, tag;
    int *world; /* ranks of MPI_COMM_WORLD */
};

/* A communicator to be made at the end of a group. */
struct opening {
    ncclComm_t comm;
    int creator;
};

struct part {
    int peer; /* of MPI_COMM_WORLD */
    void *data;
    size_t bytes;
    int sends, owned; /* owned: freed at the end */
};

enum kind { MOVES, SUMS };

struct operation {
    int tag, started, n_parts;
    enum kind kind;
    struct part part[PARTS_MOST];
    MPI_Request request[PARTS_MOST];
    ncclDataType_t type;
    ncclRedOp_t reduction;
    const void *own; /* SUMS: this rank's, taken at the start */
    void *to;
    size_t n;
    int rank, size;
};

static int depth, n_open, counter;
static struct opening open_list[OPEN_MOST];
static struct operation *together; /* of a group of sends and receives */
static cudaStream_t together_stream;

static void *copy_of(const void *from, size_t bytes)
{
    void *copy = malloc(bytes + 1);
    if (!copy)
        abort();
    if (from)
        memcpy(copy, from, bytes);
    return copy;
}

static size_t bytes_of(ncclDataType_t type)
{
    return type == ncclFloat32 ? 4 : 2;
}

/* --- operations ------------------------------------------------------------------ */

static void add_part(struct operation *o, int peer, const void *data, size_t bytes, int sends, int owned)
{
    if (o->n_parts == PARTS_MOST)
        abort();
    o->part[o->n_parts++] = (struct part){peer, (void *)(uintptr_t)data, bytes, sends, owned};
}

static void start(struct operation *o)
{
    if (o->kind == SUMS)
        o->own = copy_of(o->own, o->n * bytes_of(o->type));
    for (int i = 0; i < o->n_parts; i++) {
        struct part *p = &o->part[i];
        if (p->sends) {
            p->data = copy_of(p->data, p->bytes);
            p->owned = 1;
            MPI_Isend(p->data, (int)p->bytes, MPI_BYTE, p->peer, o->tag, MPI_COMM_WORLD, &o->request[i]);
        } else {
            MPI_Irecv(p->data, (int)p->bytes, MPI_BYTE, p->peer, o->tag, MPI_COMM_WORLD, &o->request[i]);
        }
    }
    o->started = 1;
}

static float *widened(const void *x, ncclDataType_t type, size_t n)
{
    float *y = copy_of(NULL, n * sizeof *y);
    kernels_ref.convert(NULL, (int64_t)n, type == ncclFloat32 ? ELEMENT_F32 : ELEMENT_BF16, x, ELEMENT_F32, y);
    return y;
}

/* In the order of ranks, so that all have the same bits. */
static void reduce(struct operation *o)
{
    float *sum = NULL;
    int part = 0;
    for (int r = 0; r < o->size; r++) {
        while (r != o->rank && o->part[part].sends)
            part++;
        float *x = widened(r == o->rank ? o->own : o->part[part++].data, o->type, o->n);
        for (size_t i = 0; sum && i < o->n; i++)
            sum[i] = o->reduction == ncclSum ? sum[i] + x[i] : sum[i] > x[i] ? sum[i] : x[i];
        if (sum)
            free(x);
        else
            sum = x;
    }
    kernels_ref.convert(NULL, (int64_t)o->n, ELEMENT_F32, sum, o->type == ncclFloat32 ? ELEMENT_F32 : ELEMENT_BF16,
                        o->to);
    free(sum);
}

static int ready(void *argument)
{
    struct operation *o = argument;
    int done = 0;
    if (!o->started)
        start(o);
    MPI_Testall(o->n_parts, o->request, &done, MPI_STATUSES_IGNORE);
    if (done && o->kind == SUMS)
        reduce(o);
    return done;
}

static void end(void *argument)
{
    struct operation *o = argument;
    for (int i = 0; i < o->n_parts; i++)
        if (o->part[i].owned)
            free(o->part[i].data);
    if (o->kind == SUMS)
        free((void *)(uintptr_t)o->own);
    free(o);
}

static struct operation *new_operation(ncclComm_t comm, enum kind kind)
{
    struct operation *o = calloc(1, sizeof *o);
    if (!o)
        abort();
    o->kind = kind;
    o->tag = comm->tag;
    o->rank = comm->rank;
    o->size = comm->size;
    return o;
}

static ncclResult_t all_gather(const void *mine, void *all, size_t n, ncclDataType_t type, ncclComm_t comm,
                               cudaStream_t stream)
{
    struct operation *o = new_operation(comm, MOVES);
    size_t bytes = n * bytes_of(type);
    for (int r = 0; r < comm->size; r++) { /* to itself as well */
        add_part(o, comm->world[r], mine, bytes, 1, 0);
        add_part(o, comm->world[r], (char *)all + (size_t)r * bytes, bytes, 0, 0);
    }
    emulator_enqueue_asked(stream, ready, o, end);
    return ncclSuccess;
}

/* x: what goes to rank 0, and `step` bytes further to each next one. */
static void sum_up(const void *x, size_t step, void *to, size_t n, ncclDataType_t type, ncclRedOp_t reduction,
                   ncclComm_t comm, cudaStream_t stream)
{
    struct operation *o = new_operation(comm, SUMS);
    size_t bytes = n * bytes_of(type);
    o->own = (const char *)x + (size_t)comm->rank * step;
    o->to = to;
    o->n = n;
    o->type = type;
    o->reduction = reduction;
    for (int r = 0; r < comm->size; r++)
        if (r != comm->rank) {
            add_part(o, comm->world[r], (const char *)x + (size_t)r * step, bytes, 1, 0);
            add_part(o, comm->world[r], copy_of(NULL, bytes), bytes, 0, 1);
        }
    emulator_enqueue_asked(stream, ready, o, end);
}

static ncclResult_t all_reduce(const void *from, void *to, size_t n, ncclDataType_t type, ncclRedOp_t reduction,
                               ncclComm_t comm, cudaStream_t stream)
{
    sum_up(from, 0, to, n, type, reduction, comm, stream);
    return ncclSuccess;
}

static ncclResult_t reduce_scatter(const void *from, void *to, size_t n, ncclDataType_t type, ncclRedOp_t reduction,
                                   ncclComm_t comm, cudaStream_t stream)
{
    sum_up(from, n * bytes_of(type), to, n, type, reduction, comm, stream);
    return ncclSuccess;
}

static void message(void *data, size_t bytes, int peer, int sends, ncclComm_t comm, cudaStream_t stream)
{
    struct operation *o = together ? together : new_operation(comm, MOVES);
    add_part(o, comm->world[peer], data, bytes, sends, 0);
    if (depth > 0) {
        together = o;
        together_stream = stream;
    } else {
        emulator_enqueue_asked(stream, ready, o, end);
    }
}

static ncclResult_t send_one(const void *from, size_t n, ncclDataType_t type, int peer, ncclComm_t comm,
                             cudaStream_t stream)
{
    message((void *)(uintptr_t)from, n * bytes_of(type), peer, 1, comm, stream);
    return ncclSuccess;
}

static ncclResult_t receive_one(void *to, size_t n, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream)
{
    message(to, n * bytes_of(type), peer, 0, comm, stream);
    return ncclSuccess;
}

/* --- communicators ------------------------------------------------------------------ */

static int world_rank(void)
{
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    return rank;
}

/* Who made it, and the tag of its messages; the two before are those of its opening. */
static ncclResult_t unique_id(ncclUniqueId *ret)
{
    int numbers[2] = {world_rank(), FIRST_TAG + world_rank() * TAGS_EACH + 3 * counter++};
    memset(ret, 0, sizeof *ret);
    memcpy(ret, numbers, sizeof numbers);
    return ncclSuccess;
}

/* Members tell the creator who they are, which tells all of them. */
static void open_all(void)
{
    MPI_Request *request = calloc(OPEN_MOST * 66, sizeof *request);
    int(*told)[2] = calloc(OPEN_MOST, sizeof *told), n = 0;
    for (int i = 0; i < n_open; i++) {
        told[i][0] = open_list[i].comm->rank;
        told[i][1] = world_rank();
        MPI_Isend(told[i], 2, MPI_INT, open_list[i].creator, open_list[i].comm->tag + 1, MPI_COMM_WORLD, &request[n++]);
    }
    for (int i = 0; i < n_open; i++) {
        ncclComm_t c = open_list[i].comm;
        for (int m = 0; open_list[i].creator == world_rank() && m < c->size; m++) {
            int who[2];
            MPI_Recv(who, 2, MPI_INT, MPI_ANY_SOURCE, c->tag + 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            c->world[who[0]] = who[1];
        }
        for (int m = 0; open_list[i].creator == world_rank() && m < c->size; m++)
            if (c->world[m] != world_rank())
                MPI_Isend(c->world, c->size, MPI_INT, c->world[m], c->tag + 2, MPI_COMM_WORLD, &request[n++]);
    }
    for (int i = 0; i < n_open; i++)
        if (open_list[i].creator != world_rank())
            MPI_Recv(open_list[i].comm->world, open_list[i].comm->size, MPI_INT, open_list[i].creator,
                     open_list[i].comm->tag + 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Waitall(n, request, MPI_STATUSES_IGNORE);
    free(request);
    free(told);
    n_open = 0;
}

static ncclResult_t init(ncclComm_t *ret, int size, ncclUniqueId id, int rank)
{
    int numbers[2];
    ncclComm_t comm = calloc(1, sizeof *comm);
    if (!comm || n_open == OPEN_MOST)
        abort();
    memcpy(numbers, &id, sizeof numbers);
    *comm = (struct ncclComm){rank, size, numbers[1], calloc((size_t)size, sizeof(int))};
    open_list[n_open++] = (struct opening){comm, numbers[0]};
    *ret = comm;
    if (depth == 0)
        open_all();
    return ncclSuccess;
}

static ncclResult_t init_config(ncclComm_t *ret, int size, ncclUniqueId id, int rank, ncclConfig_t *config)
{
    (void)config;
    return init(ret, size, id, rank);
}

static ncclResult_t destroy(ncclComm_t comm)
{
    free(comm->world);
    free(comm);
    return ncclSuccess;
}

static ncclResult_t async_error(ncclComm_t comm, ncclResult_t *ret)
{
    (void)comm;
    *ret = ncclSuccess;
    return ncclSuccess;
}

static ncclResult_t group_start(void)
{
    depth++;
    return ncclSuccess;
}

static ncclResult_t group_end(void)
{
    depth--;
    if (n_open > 0)
        open_all();
    if (together)
        emulator_enqueue_asked(together_stream, ready, together, end);
    together = NULL;
    return ncclSuccess;
}

static const char *error_text(ncclResult_t result)
{
    return result == ncclSuccess ? "no error" : "an error";
}

/* --- in place of the library ------------------------------------------------------------ */

void *nccl_emulated_open(const char *file, int mode);
void *nccl_emulated_symbol(void *restrict handle, const char *restrict name);

void *nccl_emulated_open(const char *file, int mode)
{
    (void)mode;
    return (void *)(uintptr_t)file;
}

void *nccl_emulated_symbol(void *restrict handle, const char *restrict name)
{
    static const struct {
        const char *name;
        void (*function)(void);
    } symbols[] = {
        {"ncclGetUniqueId", (void (*)(void))unique_id},
        {"ncclCommInitRank", (void (*)(void))init},
        {"ncclCommInitRankConfig", (void (*)(void))init_config},
        {"ncclCommDestroy", (void (*)(void))destroy},
        {"ncclCommGetAsyncError", (void (*)(void))async_error},
        {"ncclGroupStart", (void (*)(void))group_start},
        {"ncclGroupEnd", (void (*)(void))group_end},
        {"ncclAllReduce", (void (*)(void))all_reduce},
        {"ncclAllGather", (void (*)(void))all_gather},
        {"ncclReduceScatter", (void (*)(void))reduce_scatter},
        {"ncclSend", (void (*)(void))send_one},
        {"ncclRecv", (void (*)(void))receive_one},
        {"ncclGetErrorString", (void (*)(void))error_text},
    };
    (void)handle;
    for (size_t i = 0; i < sizeof symbols / sizeof symbols[0]; i++)
        if (strcmp(symbols[i].name, name) == 0) {
            void *address;
            memcpy(&address, &symbols[i].function, sizeof address);
            return address;
        }
    return NULL;
}

/* --- the host waits in MPI ---------------------------------------------------------------- */

static int wait_for(MPI_Request *request)
{
    int done = 0, code = MPI_SUCCESS;
    while (!done && code == MPI_SUCCESS) {
        emulator_progress();
        code = PMPI_Test(request, &done, MPI_STATUS_IGNORE);
    }
    return code;
}

int MPI_Barrier(MPI_Comm comm)
{
    MPI_Request request;
    PMPI_Ibarrier(comm, &request);
    return wait_for(&request);
}

int MPI_Allreduce(const void *from, void *to, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
    MPI_Request request;
    PMPI_Iallreduce(from, to, n, type, op, comm, &request);
    return wait_for(&request);
}

int MPI_Bcast(void *x, int n, MPI_Datatype type, int root, MPI_Comm comm)
{
    MPI_Request request;
    PMPI_Ibcast(x, n, type, root, comm, &request);
    return wait_for(&request);
}

int MPI_Alltoall(const void *from, int n_from, MPI_Datatype type_from, void *to, int n_to, MPI_Datatype type_to,
                 MPI_Comm comm)
{
    MPI_Request request;
    PMPI_Ialltoall(from, n_from, type_from, to, n_to, type_to, comm, &request);
    return wait_for(&request);
}
