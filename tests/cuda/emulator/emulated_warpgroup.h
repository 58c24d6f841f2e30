/* kernels/cuda/warpgroup.cuh on the CPU. A product runs when its group is waited for, or as soon as it is committed, as
 * the generator has it: what is read too early, or overwritten while it is in use, shows as a wrong result. */
#ifndef EMULATOR_EMULATED_WARPGROUP_H
#define EMULATOR_EMULATED_WARPGROUP_H

#include "cuda_runtime.h"

namespace emulator
{

enum { DYNAMIC_SHARED_START = 1024 }; /* its address in the window of shared memory */

/* One lane's part. a: registers, or NULL and a's descriptor. */
struct warpgroup_lane {
    float *d;
    const uint32_t *a;
    uint64_t a_shared, b_shared;
    int n;
    bool accumulate;
};
void warpgroup_issue(uint32_t lanes, void **argument);
void warpgroup_commit_all(uint32_t lanes, void **argument);
void warpgroup_wait_all(uint32_t lanes, void **argument);

} // namespace emulator

static inline uint32_t shared_address(const void *shared)
{
    return (uint32_t)((const char *)shared - (const char *)emulator::dynamic_shared()) + emulator::DYNAMIC_SHARED_START;
}

template <int N> void warpgroup_product(float (&d)[1][N / 8][4], uint64_t a, uint64_t b, bool accumulate)
{
    emulator::warpgroup_lane lane = {d[0][0], nullptr, a, b, N, accumulate};
    emulator::meet(0xffffffffu, emulator::warpgroup_issue, &lane);
}
template <int N> void warpgroup_product(float (&d)[1][N / 8][4], const uint32_t (&a)[4], uint64_t b)
{
    emulator::warpgroup_lane lane = {d[0][0], a, 0, b, N, true};
    emulator::meet(0xffffffffu, emulator::warpgroup_issue, &lane);
}
static inline void warpgroup_begin()
{
    emulator::meet(0xffffffffu, emulator::nothing_all, nullptr);
}
static inline void warpgroup_commit()
{
    emulator::meet(0xffffffffu, emulator::warpgroup_commit_all, nullptr);
}
template <int groups_left> void warpgroup_wait()
{
    int left = groups_left;
    emulator::meet(0xffffffffu, emulator::warpgroup_wait_all, &left);
}
template <int N> void warpgroup_hold(float (&)[1][N][4]) {}
template <int K> void warpgroup_hold(uint32_t (&)[1][K][4]) {}
static inline void warpgroup_wait_after(float x, uint32_t word)
{
    memcpy((char *)emulator::dynamic_shared() + word - emulator::DYNAMIC_SHARED_START, &x, sizeof x);
}
static inline void shared_for_warpgroups() {}

#endif
