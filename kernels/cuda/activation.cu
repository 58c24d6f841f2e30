/* Activations, plain and gated (formulas: ref/pointwise.c). A thread has eight elements of a row. */
#include "kernels/cuda/cuda_kernels.h"

#include "kernels/cuda/cuda_common.cuh"

static __device__ __forceinline__ float sigmoid(float x)
{
    return __fdividef(1, 1 + __expf(-x)); /* an infinity below gives 0 */
}

/* act(x), and its derivative. tanh(u) = 2 sigmoid(2u) - 1, so 0.5 (1 + tanh(u)) = sigmoid(2u). NaN stays. */
template <enum activation KIND> static __device__ __forceinline__ float activate(float x, float *ret_slope)
{
    const float two_sqrt_2_over_pi = 1.5957691216f, cubic = 0.044715f, sqrt_half = 0.70710678119f,
                density = 0.39894228040f;
    float near = x < -30 ? -30 : x > 30 ? 30 : x, s;
    if (KIND == ACTIVATION_SILU) {
        s = sigmoid(x);
        *ret_slope = s * (1 + x * (1 - s));
    } else if (KIND == ACTIVATION_GELU_TANH) {
        s = sigmoid(two_sqrt_2_over_pi * (near + cubic * near * near * near));
        *ret_slope = s + near * s * (1 - s) * two_sqrt_2_over_pi * (1 + 3 * cubic * near * near);
    } else if (KIND == ACTIVATION_GELU) {
        s = 0.5f * erfcf(-near * sqrt_half);
        *ret_slope = s + near * density * __expf(-0.5f * near * near);
    } else {
        s = x > 0;
        *ret_slope = s;
        return x > 0 ? x : 0;
    }
    return x * s;
}

template <enum activation KIND, bool ALIGNED>
static __global__ void __launch_bounds__(THREADS)
    activation_forward_kernel(bool gated, int rows, int columns, const element_t *x, element_t *y)
{
    int c = tile_vector() * VECTOR, left = columns - c;
    if (left <= 0)
        return;
    for (int r = tile_row(); r < rows; r += tile_step()) {
        const element_t *in = x + (int64_t)r * (gated ? 2 : 1) * columns + c;
        float gate[VECTOR], up[VECTOR] = {1, 1, 1, 1, 1, 1, 1, 1}, slope;
        unpack(load_vector<ALIGNED>(in, left), gate);
        if (gated)
            unpack(load_vector<ALIGNED>(in + columns, left), up);
        for (int i = 0; i < VECTOR; i++)
            gate[i] = activate<KIND>(gate[i], &slope) * up[i];
        store_vector<ALIGNED>(y + (int64_t)r * columns + c, left, pack(gate));
    }
}

template <enum activation KIND, bool ALIGNED>
static __global__ void __launch_bounds__(THREADS)
    activation_backward_kernel(bool gated, int rows, int columns, const element_t *x, const element_t *dy,
                               element_t *dx)
{
    int c = tile_vector() * VECTOR, left = columns - c;
    if (left <= 0)
        return;
    for (int r = tile_row(); r < rows; r += tile_step()) {
        int64_t at = (int64_t)r * (gated ? 2 : 1) * columns + c;
        float gate[VECTOR], up[VECTOR] = {1, 1, 1, 1, 1, 1, 1, 1}, gradient[VECTOR], slope;
        unpack(load_vector<ALIGNED>(dy + (int64_t)r * columns + c, left), gradient);
        unpack(load_vector<ALIGNED>(x + at, left), gate);
        if (gated)
            unpack(load_vector<ALIGNED>(x + at + columns, left), up);
        for (int i = 0; i < VECTOR; i++) {
            float value = activate<KIND>(gate[i], &slope);
            gate[i] = gradient[i] * slope * up[i];
            up[i] = gradient[i] * value;
        }
        store_vector<ALIGNED>(dx + at, left, pack(gate));
        if (gated)
            store_vector<ALIGNED>(dx + at + columns, left, pack(up));
    }
}

struct activation_rows {
    bool gated;
    int rows, columns;
    const element_t *x, *dy; /* dy NULL: forward, into y */
    element_t *y;
};

template <enum activation KIND, bool ALIGNED>
static void launch_activation(cudaStream_t stream, const activation_rows &a)
{
    tiling t = tile_rows(a.rows, divide_up<int>(a.columns, VECTOR));
    if (a.dy)
        LAUNCH((activation_backward_kernel<KIND, ALIGNED>), t.grid, t.block, 0, stream, a.gated, a.rows, a.columns, a.x,
               a.dy, a.y);
    else
        LAUNCH((activation_forward_kernel<KIND, ALIGNED>), t.grid, t.block, 0, stream, a.gated, a.rows, a.columns, a.x,
               a.y);
}

template <bool ALIGNED> static void launch_kind(cudaStream_t stream, enum activation kind, const activation_rows &a)
{
    switch (kind) {
    case ACTIVATION_SILU:
        launch_activation<ACTIVATION_SILU, ALIGNED>(stream, a);
        break;
    case ACTIVATION_GELU_TANH:
        launch_activation<ACTIVATION_GELU_TANH, ALIGNED>(stream, a);
        break;
    case ACTIVATION_GELU:
        launch_activation<ACTIVATION_GELU, ALIGNED>(stream, a);
        break;
    default:
        launch_activation<ACTIVATION_RELU, ALIGNED>(stream, a);
        break;
    }
}

static void run_activation(void *queue, enum activation kind, const activation_rows &a)
{
    if (a.rows == 0 || a.columns == 0)
        return;
    if (is_aligned(a.x, a.columns) && is_aligned(a.dy, 0) && is_aligned(a.y, 0))
        launch_kind<true>(stream_of(queue), kind, a);
    else
        launch_kind<false>(stream_of(queue), kind, a);
    check_launch("activation");
}

void cuda_activation_forward(void *queue, enum activation kind, bool gated, int rows, int columns, const void *x,
                             void *y)
{
    run_activation(
        queue, kind,
        activation_rows{gated, rows, columns, static_cast<const element_t *>(x), nullptr, static_cast<element_t *>(y)});
}

void cuda_activation_backward(void *queue, enum activation kind, bool gated, int rows, int columns, const void *x,
                              const void *dy, void *dx)
{
    run_activation(queue, kind,
                   activation_rows{gated, rows, columns, static_cast<const element_t *>(x),
                                   static_cast<const element_t *>(dy), static_cast<element_t *>(dx)});
}
