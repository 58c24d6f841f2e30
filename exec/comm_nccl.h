/* NCCL as a transport (comm_internal.h): every rank has a GPU of its own.
 *
 * Each group has a communicator and a queue; collectives of one group follow one another, those of several groups and
 * the kernels run beside one another as far as events allow: a call waits for what the device's queue holds before it,
 * and what the device's queue holds after it waits for the call (comm_wait, where it goes on beside).
 *
 * Messages go over links: communicators of two ranks, one for each direction, each with its queue, so that a receive
 * that waits for its sender holds up nothing else. NCCL matches the messages of a link in the order in which both ends
 * ask for them, which is why comm.h has no tags. A group's links are those between neighbours of the ring of its ranks;
 * that is all that pipelines and ring attention use.
 *
 * While the host waits for the device, the communicators are asked for errors (device.h, poll): a rank that is lost
 * ends the job with a sentence. */
#ifndef EXEC_COMM_NCCL_H
#define EXEC_COMM_NCCL_H

#include <stdbool.h>

struct comm;
struct err;

/* Loads the library. 0, or -1 with a sentence. */
int comm_nccl_load(struct err *err);
/* All members; after comm_attach. links: messages will be sent. now: the communicator is made at once, not when the
 * first collective asks for it. */
void comm_nccl_attach(struct comm *comm, bool links, bool now);

#endif
