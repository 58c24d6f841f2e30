/* Device 'cuda' in a program that was built without CUDA. */
#include "cost/base/err.h"
#include "exec/device_cuda.h"

int device_cuda_open(struct device *ret, const struct device_cuda_options *options, struct err *err)
{
    (void)ret;
    (void)options;
    return err_add(err, "this planexec was built without device 'cuda'");
}

void device_cuda_close(struct device *device)
{
    (void)device;
}

void device_cuda_facts(const struct device *device, struct device_cuda_facts *ret)
{
    (void)device;
    *ret = (struct device_cuda_facts){0};
}
