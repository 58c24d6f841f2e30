/* Cases of matrix products and attention. */
#include <math.h>
#include <stdlib.h>

#include "tests/kernels/cases.h"
#include "tests/kernels/compare.h"

/* Two products in a call; results as elements and as floats. */
static void check_product(int m, int n, int k, bool transpose_a, bool transpose_b, bool accumulate)
{
    int gap = 8, stride_a = (transpose_a ? m : k) + gap, stride_b = (transpose_b ? k : n) + gap, stride_c = n + gap;
    start_case("gemm %d x %d x %d, transpose %d %d, accumulate %d", m, n, k, transpose_a, transpose_b, accumulate);
    int a = elements((int64_t)(transpose_a ? k : m) * stride_a, 1);
    int b = elements((int64_t)(transpose_b ? n : k) * stride_b, 1);
    int c = elements((int64_t)m * stride_c, 1), wide = floats((int64_t)m * stride_c, 1);
    FOR_SIDES
    {
        struct gemm gemm[2];
        for (int i = 0; i < 2; i++)
            gemm[i] = (struct gemm){.transpose_a = transpose_a,
                                    .transpose_b = transpose_b,
                                    .accumulate = accumulate,
                                    .m = m,
                                    .n = n,
                                    .k = k,
                                    .a = at(side, a),
                                    .stride_a = stride_a,
                                    .b = at(side, b),
                                    .stride_b = stride_b,
                                    .c = at(side, i == 0 ? c : wide),
                                    .stride_c = stride_c,
                                    .c_type = i == 0 ? table(side)->type : ELEMENT_F32};
        table(side)->gemm(queue(side), 1, &gemm[0]);
        table(side)->gemm(queue(side), 1, &gemm[1]);
    }
    same(c, k + 1);
    same(wide, k + 1);
    end_case();
}

void check_products(void)
{
    static const int sizes[][3] = {{1, 1, 1}, {3, 5, 7}, {17, 33, 65}, {64, 64, 64}, {129, 31, 257}};
    for (int i = 0; i < (int)(sizeof sizes / sizeof sizes[0]); i++)
        for (int layout = 0; layout < 8; layout++)
            check_product(sizes[i][0], sizes[i][1], sizes[i][2], layout & 1, layout & 2, layout & 4);
}

/* -- attention ------------------------------------------------------------------------------------------------------ */

struct attention_case {
    int batch, heads, kv_heads, head_dim, queries, keys, first_key, window;
};

struct attention_buffers {
    int position_q, position_k, q, k, v, o, lse, dout, dq, dk, dv;
};

/* Keys [first, end) of the case as one block. */
static struct attention block_of(const struct attention_case *c, const struct attention_buffers *b, int side, int first,
                                 int end)
{
    int step_q = c->heads * c->head_dim, step_kv = c->kv_heads * c->head_dim;
    int64_t skipped = (int64_t)first * c->batch * step_kv;
    return (struct attention){.batch = c->batch,
                              .heads = c->heads,
                              .kv_heads = c->kv_heads,
                              .head_dim = c->head_dim,
                              .queries = c->queries,
                              .keys = end - first,
                              .position_q = at(side, b->position_q),
                              .position_k = at_item(side, b->position_k, first),
                              .window = c->window,
                              .scale = 0.3f,
                              .q = at(side, b->q),
                              .k = at_item(side, b->k, skipped),
                              .v = at_item(side, b->v, skipped),
                              .stride_q = step_q,
                              .stride_kv = step_kv,
                              .stride_o = step_q,
                              .o = at(side, b->o),
                              .lse = at(side, b->lse),
                              .merge = first > 0};
}

static struct attention_gradient gradient_of(const struct attention_case *c, const struct attention_buffers *b,
                                             int side, int first, int end)
{
    int64_t skipped = (int64_t)first * c->batch * c->kv_heads * c->head_dim;
    return (struct attention_gradient){block_of(c, b, side, first, end), at(side, b->dout), at(side, b->dq),
                                       at_item(side, b->dk, skipped), at_item(side, b->dv, skipped)};
}

/* Two blocks of keys, the second merged into the first, some rows seeing nothing of one of them. Of elements in bf16,
 * the probabilities and score gradients are rounded before the products, and o in between: 4 roundings. */
static void check_attention(const struct attention_case *c)
{
    enum { ROUNDINGS = 4 };
    int *q = calloc((size_t)c->queries, sizeof *q), *k = calloc((size_t)c->keys, sizeof *k);
    int64_t n_q = (int64_t)c->queries * c->batch * c->heads * c->head_dim;
    int64_t n_kv = (int64_t)c->keys * c->batch * c->kv_heads * c->head_dim;
    int64_t n_lse = (int64_t)c->batch * c->heads * c->queries;
    for (int i = 0; i < c->queries; i++)
        q[i] = c->keys + i;
    for (int i = 0; i < c->keys; i++)
        k[i] = c->first_key + 2 * i;
    start_case("attention %d x %d (%d) x %d, %d queries, %d keys from %d, window %d", c->batch, c->heads, c->kv_heads,
               c->head_dim, c->queries, c->keys, c->first_key, c->window);
    struct attention_buffers b = {ints(c->queries, q), ints(c->keys, k),    elements(n_q, 2),    elements(n_kv, 2),
                                  elements(n_kv, 2),   elements_unset(n_q), floats_unset(n_lse), elements(n_q, 1),
                                  floats(n_q, 1),      floats(n_kv, 1),     floats(n_kv, 1)};
    FOR_SIDES
    {
        int half = c->keys / 2;
        struct attention early = block_of(c, &b, side, 0, half), late = block_of(c, &b, side, half, c->keys);
        struct attention_gradient d_early = gradient_of(c, &b, side, 0, half);
        struct attention_gradient d_late = gradient_of(c, &b, side, half, c->keys);
        table(side)->attention_forward(queue(side), &early);
        table(side)->attention_forward(queue(side), &late);
        table(side)->attention_backward(queue(side), &d_early);
        table(side)->attention_backward(queue(side), &d_late);
    }
    same_rounded(b.o, c->keys * c->head_dim, ROUNDINGS);
    same(b.lse, c->keys * c->head_dim);
    same_rounded(b.dq, c->keys * c->head_dim, ROUNDINGS);
    same_rounded(b.dk, c->queries * c->head_dim, ROUNDINGS);
    same_rounded(b.dv, c->queries * c->head_dim, ROUNDINGS);
    end_case();
    free(q);
    free(k);
}

void check_attentions(void)
{
    /* The narrow heads are for tables of fp32 only: tensor cores take 64, 96, 128, 192. */
    static const struct attention_case narrow[] = {{1, 1, 1, 8, 5, 7, 0, 0},
                                                   {2, 4, 2, 16, 65, 66, 0, 0},
                                                   {1, 6, 1, 12, 130, 64, 0, 9},
                                                   {3, 2, 2, 32, 64, 128, 60, 0}};
    static const struct attention_case wide[] = {{1, 2, 1, 64, 33, 200, 100, 64},
                                                 {2, 2, 2, 128, 70, 66, 0, 0},
                                                 {1, 3, 1, 96, 17, 40, 10, 0},
                                                 {1, 1, 1, 192, 20, 30, 0, 5}};
    for (int i = 0; i < 4 && !is_bf16(); i++)
        check_attention(&narrow[i]);
    for (int i = 0; i < 4; i++)
        check_attention(&wide[i]);
}
