/* kernels/cuda/primitives.cuh on the CPU: the same lanes hold the same elements as the PTX ISA says. */
#ifndef EMULATOR_EMULATED_PRIMITIVES_H
#define EMULATOR_EMULATED_PRIMITIVES_H

#include "cuda_bf16.h"

namespace emulator
{

struct mma_lane {
    float *d;
    const uint32_t *a, *b;
};
void mma_all(uint32_t lanes, void **argument);

struct matrix_lane {
    const void *row;
    uint32_t *to;
    int matrices;
    bool transposed;
};
void matrix_all(uint32_t lanes, void **argument);

/* Land only when the thread waits for them: what is read before is what was there. */
void async_copy(void *to, const void *from, int bytes, bool valid);
void async_commit();
void async_wait(int groups_left);

inline void load_matrix(uint32_t *to, int matrices, bool transposed, const void *row)
{
    matrix_lane lane = {row, to, matrices, transposed};
    meet(0xffffffffu, matrix_all, &lane);
}

} // namespace emulator

static inline void mma_16816(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    emulator::mma_lane lane = {d, a, b};
    emulator::meet(0xffffffffu, emulator::mma_all, &lane);
}

static inline void ldmatrix_x1(uint32_t (&r)[1], const void *row)
{
    emulator::load_matrix(r, 1, false, row);
}
static inline void ldmatrix_x2(uint32_t (&r)[2], const void *row)
{
    emulator::load_matrix(r, 2, false, row);
}
static inline void ldmatrix_x4(uint32_t (&r)[4], const void *row)
{
    emulator::load_matrix(r, 4, false, row);
}
static inline void ldmatrix_x1_trans(uint32_t (&r)[1], const void *row)
{
    emulator::load_matrix(r, 1, true, row);
}
static inline void ldmatrix_x2_trans(uint32_t (&r)[2], const void *row)
{
    emulator::load_matrix(r, 2, true, row);
}
static inline void ldmatrix_x4_trans(uint32_t (&r)[4], const void *row)
{
    emulator::load_matrix(r, 4, true, row);
}

static inline void cp_async_16(void *shared, const void *global)
{
    emulator::async_copy(shared, global, 16, true);
}
static inline void cp_async_16(void *shared, const void *global, bool valid)
{
    emulator::async_copy(shared, global, 16, valid);
}
static inline void cp_async_commit()
{
    emulator::async_commit();
}
template <int groups_left> static inline void cp_async_wait()
{
    emulator::async_wait(groups_left);
}

static inline float exp2_approx(float x)
{
    return exp2f(x);
}

#endif
