/* What the parts of the emulator share: fibers.cpp runs blocks, runtime.cpp holds streams and memory. */
#ifndef EMULATOR_EMULATOR_H
#define EMULATOR_EMULATOR_H

#include "cuda_runtime.h"

namespace emulator
{

enum { FAILURE_STATUS = 3 };

struct launch {
    const char *name;
    const void *key;
    dim3 grid, block;
    size_t shared_bytes;
    bool descending; /* lanes take turns from the last to the first */
    std::function<void()> body;
};

const char *launch_problem(const launch &kernel); /* NULL = none */
void run_kernel(const launch &kernel);

uint32_t random_bits();
void *map_memory(size_t bytes);
void async_copies_end(); /* of the thread that ends (primitives.cpp) */

} // namespace emulator

#endif
