/* A program that was built without NCCL. */
#include "cost/base/err.h"
#include "exec/comm_nccl.h"

int comm_nccl_load(struct err *err)
{
    return err_add(err, "this planexec was built without NCCL; --share-gpu sends by way of the host");
}

void comm_nccl_attach(struct comm *comm, bool links, bool now)
{
    (void)comm;
    (void)links;
    (void)now;
}
