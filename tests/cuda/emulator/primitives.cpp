/* Warp-wide matrix instructions and asynchronous copies (PTX ISA 8.0, "mma.m16n8k16", "ldmatrix", "cp.async"). */
#include "emulated_primitives.h"

#include <vector>

#include "emulator.h"

namespace emulator
{

static float element(uint32_t pair, int which)
{
    return __uint_as_float(which ? pair & 0xffff0000u : pair << 16);
}

/* Lane = 4 group + place. a: rows group, group + 8 (registers 0, 1 and 2, 3), columns 2 place + {0, 1} (+ 8 in 2, 3);
 * b: the same with k in place of the column and n = group; d: row group (0, 1), group + 8 (2, 3), columns 2 place. */
void mma_all(uint32_t lanes, void **argument)
{
    if (lanes != 0xffffffffu)
        fail("mma needs all lanes");
    float a[16][16], b[16][8], d[16][8];
    auto each = [&](auto visit) {
        for (int lane = 0; lane < 32; lane++)
            visit(static_cast<mma_lane *>(argument[lane]), lane / 4, 2 * (lane % 4));
    };
    each([&](mma_lane *l, int group, int place) {
        for (int i = 0; i < 8; i++)
            a[group + 8 * (i / 2 % 2)][place + 8 * (i / 4) + i % 2] = element(l->a[i / 2], i % 2);
        for (int i = 0; i < 4; i++)
            b[place + 8 * (i / 2) + i % 2][group] = element(l->b[i / 2], i % 2);
        for (int i = 0; i < 4; i++)
            d[group + 8 * (i / 2)][place + i % 2] = l->d[i];
    });
    for (int i = 0; i < 16; i++)
        for (int l = 0; l < 16; l++)
            for (int j = 0; j < 8; j++)
                d[i][j] += a[i][l] * b[l][j];
    each([&](mma_lane *l, int group, int place) {
        for (int i = 0; i < 4; i++)
            l->d[i] = d[group + 8 * (i / 2)][place + i % 2];
    });
}

/* Lanes 8 m .. 8 m + 7 hold the addresses of the rows of matrix m (8 x 8 elements of 16 bits). */
void matrix_all(uint32_t lanes, void **argument)
{
    if (lanes != 0xffffffffu)
        fail("ldmatrix needs all lanes");
    const matrix_lane *first = static_cast<matrix_lane *>(argument[0]);
    for (int m = 0; m < first->matrices; m++) {
        uint16_t matrix[8][8];
        for (int r = 0; r < 8; r++) {
            const void *row = static_cast<matrix_lane *>(argument[8 * m + r])->row;
            if ((uintptr_t)row % 16 != 0)
                fail("ldmatrix needs rows that start at a multiple of 16 bytes");
            memcpy(matrix[r], row, sizeof matrix[r]);
        }
        for (int lane = 0; lane < 32; lane++) {
            int r = lane / 4, c = 2 * (lane % 4);
            uint32_t low = first->transposed ? matrix[c][r] : matrix[r][c];
            uint32_t high = first->transposed ? matrix[c + 1][r] : matrix[r][c + 1];
            static_cast<matrix_lane *>(argument[lane])->to[m] = low | high << 16;
        }
    }
}

/* -- asynchronous copies, per thread ---------------------------------------------------------------------------------- */

struct copy {
    void *to;
    const void *from;
    int bytes;
    bool valid;
    int group;
};
struct copies {
    std::vector<copy> pending;
    int groups = 0; /* committed so far */
};
static copies per_thread[1024];

static copies &own()
{
    return per_thread[current->warp * 32 + current->lane];
}

void async_copy(void *to, const void *from, int bytes, bool valid)
{
    if ((uintptr_t)to % (unsigned)bytes != 0 || (valid && (uintptr_t)from % (unsigned)bytes != 0))
        fail("cp.async needs aligned addresses");
    own().pending.push_back({to, from, bytes, valid, own().groups});
}

void async_commit()
{
    own().groups++;
}

static void land(copies &c, int before_group)
{
    size_t kept = 0;
    for (const copy &one : c.pending) {
        if (one.group >= before_group)
            c.pending[kept++] = one;
        else if (one.valid)
            memcpy(one.to, one.from, (size_t)one.bytes);
        else
            memset(one.to, 0, (size_t)one.bytes);
    }
    c.pending.resize(kept);
}

void async_wait(int groups_left)
{
    land(own(), own().groups - groups_left);
}

void async_copies_end()
{
    copies &c = own();
    if (!c.pending.empty())
        fail("a thread ends with asynchronous copies that it never waited for");
    c.groups = 0;
}

} // namespace emulator
