/* The language side of CUDA for g++: kernels run on fibers (fibers.cpp), one per thread of a block, blocks one after
 * another in a shuffled order. A thread runs until it meets a barrier or an operation of its warp; which one goes on is
 * picked by the seeded generator. Found and reported: a barrier or a warp operation that not all threads reach, a lane
 * that reads from one that is not there, shared memory written outside its bounds, and (compiled with
 * -fsanitize=alignment -fsanitize-undefined-trap-on-error) an address that is not aligned. Shared memory starts as
 * NaN. */
#ifndef EMULATOR_CUDA_RUNTIME_H
#define EMULATOR_CUDA_RUNTIME_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include <functional>
#include <tuple>
#include <type_traits>

#include "cuda_runtime_api.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__    __attribute__((noinline))
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) alignas(n)

struct int2 {
    int x, y;
};
struct int4 {
    int x, y, z, w;
};
struct uint2 {
    unsigned x, y;
};
struct uint3 {
    unsigned x, y, z;
};
struct float2 {
    float x, y;
};
struct float3 {
    float x, y, z;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
static inline int2 make_int2(int x, int y)
{
    return int2{x, y};
}
static inline int4 make_int4(int x, int y, int z, int w)
{
    return int4{x, y, z, w};
}
static inline uint2 make_uint2(unsigned x, unsigned y)
{
    return uint2{x, y};
}
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w)
{
    return uint4{x, y, z, w};
}
static inline float2 make_float2(float x, float y)
{
    return float2{x, y};
}
static inline float4 make_float4(float x, float y, float z, float w)
{
    return float4{x, y, z, w};
}

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned width = 1, unsigned height = 1, unsigned depth = 1) : x(width), y(height), z(depth) {}
};

namespace emulator
{

struct fiber {
    void *stack;
    uint3 thread;
    int lane, warp;
};
extern fiber *current;
extern uint3 block_index;
extern dim3 block_dim, grid_dim;

[[noreturn]] void fail(const char *sentence);

/* All threads of the block; `vote` is summed and counted over them. */
struct ballot {
    int count, voters;
};
ballot barrier(const char *file, int line, int vote);

/* All lanes of the mask that have not ended: the last to come calls `all` with every lane's argument. */
typedef void (*together)(uint32_t lanes, void **argument);
void meet(uint32_t mask, together all, void *argument);

void yield(); /* another thread's turn, for loops that wait for a word in memory */

void *shared_array(const void *key, size_t bytes);
void *dynamic_shared();
void check_pointer(const char *kernel, int argument, const void *pointer);
void queue_kernel(cudaStream_t stream, const char *name, const void *key, dim3 grid, dim3 block, size_t shared_bytes,
                  std::function<void()> body);
cudaError_t allow_dynamic_shared(const void *kernel, int bytes);

template <class T> struct exchange {
    T value, result;
    int source;
    bool inside; /* the width; else a lane keeps its own */
};

template <class T> void exchange_all(uint32_t lanes, void **argument)
{
    for (int lane = 0; lane < 32; lane++) {
        if (!(lanes >> lane & 1))
            continue;
        exchange<T> *e = static_cast<exchange<T> *>(argument[lane]);
        if (!(lanes >> e->source & 1))
            fail("a shuffle reads from a lane that does not take part");
        e->result = static_cast<exchange<T> *>(argument[e->source])->value;
    }
}

template <class T> T exchange_value(uint32_t mask, T value, int source)
{
    exchange<T> e = {value, value, source, true};
    meet(mask, exchange_all<T>, &e);
    return e.result;
}

struct vote {
    int value;
    uint32_t result;
};
void ballot_all(uint32_t lanes, void **argument);
void nothing_all(uint32_t lanes, void **argument);

template <class T> void check_argument(const char *kernel, int number, const T &value)
{
    if constexpr (std::is_pointer_v<T>)
        check_pointer(kernel, number, static_cast<const void *>(value));
    else
        (void)kernel, (void)number, (void)value;
}

} // namespace emulator

#define threadIdx (emulator::current->thread)
#define blockIdx  (emulator::block_index)
#define blockDim  (emulator::block_dim)
#define gridDim   (emulator::grid_dim)
static const int warpSize = 32;

#define __syncthreads()           ((void)emulator::barrier(__FILE__, __LINE__, 0))
#define __syncthreads_or(vote)    (emulator::barrier(__FILE__, __LINE__, (vote) != 0).count > 0)
#define __syncthreads_count(vote) (emulator::barrier(__FILE__, __LINE__, (vote) != 0).count)
static inline int syncthreads_and(emulator::ballot b)
{
    return b.count == b.voters;
}
#define __syncthreads_and(vote) syncthreads_and(emulator::barrier(__FILE__, __LINE__, (vote) != 0))

static inline void __syncwarp(uint32_t mask = 0xffffffffu)
{
    emulator::meet(mask, emulator::nothing_all, nullptr);
}

template <class T> T __shfl_sync(uint32_t mask, T value, int source, int width = 32)
{
    int lane = emulator::current->lane;
    return emulator::exchange_value(mask, value, (lane & ~(width - 1)) | (source & (width - 1)));
}
template <class T> T __shfl_xor_sync(uint32_t mask, T value, int with, int width = 32)
{
    int lane = emulator::current->lane, source = lane ^ with;
    return emulator::exchange_value(mask, value, (source ^ lane) & ~(width - 1) ? lane : source);
}
template <class T> T __shfl_down_sync(uint32_t mask, T value, unsigned by, int width = 32)
{
    int lane = emulator::current->lane, source = (lane & (width - 1)) + (int)by;
    return emulator::exchange_value(mask, value, source < width ? lane + (int)by : lane);
}
template <class T> T __shfl_up_sync(uint32_t mask, T value, unsigned by, int width = 32)
{
    int lane = emulator::current->lane, source = (lane & (width - 1)) - (int)by;
    return emulator::exchange_value(mask, value, source >= 0 ? lane - (int)by : lane);
}
static inline uint32_t __ballot_sync(uint32_t mask, int predicate)
{
    emulator::vote v = {predicate, 0};
    emulator::meet(mask, emulator::ballot_all, &v);
    return v.result;
}
static inline int __any_sync(uint32_t mask, int predicate)
{
    return __ballot_sync(mask, predicate) != 0;
}
static inline int __all_sync(uint32_t mask, int predicate)
{
    return __ballot_sync(mask, !predicate) == 0;
}

/* Fibers take turns only where they wait, so a plain addition is atomic. */
template <class T> T atomicAdd(T *at, T value)
{
    T before = *at;
    *at = before + value;
    return before;
}
template <class T> T atomicMax(T *at, T value)
{
    T before = *at;
    *at = before > value ? before : value;
    return before;
}
template <class T> T atomicMin(T *at, T value)
{
    T before = *at;
    *at = before < value ? before : value;
    return before;
}
static inline void __threadfence() {}
static inline void __threadfence_block() {}

template <class T> T __ldg(const T *at)
{
    return *at;
}
template <class T> T __ldcs(const T *at)
{
    return *at;
}
template <class T> T __ldcg(const T *at)
{
    return *at;
}
template <class T> void __stcs(T *at, T value)
{
    *at = value;
}
template <class T> void __stcg(T *at, T value)
{
    *at = value;
}

#define __expf expf /* the C library has functions of these names */
#define __logf logf
static inline float __fdividef(float x, float y)
{
    return x / y;
}
static inline float __frcp_rn(float x)
{
    return 1 / x;
}
static inline float __fmaf_rn(float x, float y, float z)
{
    return fmaf(x, y, z);
}
static inline float rsqrtf(float x)
{
    return 1 / sqrtf(x);
}
static inline float __frsqrt_rn(float x)
{
    return 1 / sqrtf(x);
}
static inline int __popc(uint32_t x)
{
    return __builtin_popcount(x);
}
static inline int __ffs(uint32_t x)
{
    return __builtin_ffs((int)x);
}
static inline int __clz(int x)
{
    return x ? __builtin_clz((unsigned)x) : 32;
}

template <class To, class From> To emulator_bits(From value)
{
    static_assert(sizeof(To) == sizeof(From), "the same size");
    To to;
    memcpy(&to, &value, sizeof to);
    return to;
}
static inline float __uint_as_float(unsigned x)
{
    return emulator_bits<float>(x);
}
static inline float __int_as_float(int x)
{
    return emulator_bits<float>(x);
}
static inline unsigned __float_as_uint(float x)
{
    return emulator_bits<unsigned>(x);
}
static inline int __float_as_int(float x)
{
    return emulator_bits<int>(x);
}

static inline int min(int a, int b)
{
    return a < b ? a : b;
}
static inline int max(int a, int b)
{
    return a > b ? a : b;
}
static inline unsigned min(unsigned a, unsigned b)
{
    return a < b ? a : b;
}
static inline unsigned max(unsigned a, unsigned b)
{
    return a > b ? a : b;
}
static inline int64_t min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}
static inline int64_t max(int64_t a, int64_t b)
{
    return a > b ? a : b;
}
static inline float min(float a, float b)
{
    return fminf(a, b);
}
static inline float max(float a, float b)
{
    return fmaxf(a, b);
}

template <class... P> cudaError_t cudaFuncSetAttribute(void (*kernel)(P...), cudaFuncAttribute, int bytes)
{
    return emulator::allow_dynamic_shared((const void *)kernel, bytes);
}

template <class... P, class... A>
void emulator_launch(const char *name, void (*kernel)(P...), dim3 grid, dim3 block, size_t shared_bytes,
                     cudaStream_t stream, A... arguments)
{
    std::tuple<std::decay_t<P>...> copy(static_cast<P>(arguments)...);
    int number = 0;
    std::apply([&](const auto &...one) { (emulator::check_argument(name, ++number, one), ...); }, copy);
    emulator::queue_kernel(stream, name, (const void *)kernel, grid, block, shared_bytes,
                           [kernel, copy] { std::apply(kernel, copy); });
}

#endif
