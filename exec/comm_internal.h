/* Between world.c and comm_mpi.c: comms are made by the first, used by the second. */
#ifndef EXEC_COMM_INTERNAL_H
#define EXEC_COMM_INTERNAL_H

struct comm;
struct world;

/* Members share `colour`, and are ordered by `key`; a group of one is made without talking. */
struct comm *comm_new(struct world *world, int size, int colour, int key);
void comm_free(struct comm *comm);
/* MPI itself. 0, or -1 with a sentence. */
struct err;
int comm_start(int *argc, char ***argv, int *ret_rank, int *ret_size, int *ret_local_rank, int *ret_local_size,
               struct err *err);
void comm_stop(void);
void comm_abort(int code) __attribute__((noreturn));
const char *comm_host(void);

#endif
