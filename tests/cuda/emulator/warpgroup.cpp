/* Products of warpgroups (PTX ISA 8.0, "wgmma.mma_async": register fragments, matrix descriptor, strides). Of the
 * layouts only the 128-byte swizzle. Each warp makes its own 16 of the 64 rows. */
#include "emulated_warpgroup.h"

#include <deque>
#include <vector>

#include "emulator.h"

namespace emulator
{

struct product {
    warpgroup_lane lane[32];
    int warp;
    uint64_t group;
};

static struct {
    std::deque<product> pending;
    uint64_t committed;
} per_warp[32];

static uint64_t field(uint64_t descriptor, int first)
{
    return (descriptor >> first & 0x3fff) << 4;
}

static void check_descriptor(uint64_t descriptor)
{
    if (descriptor >> 62 != 1 || (descriptor >> 49 & 7) != 0)
        fail("wgmma: only operands with the 128-byte swizzle and without a base offset");
}

/* The element at a byte offset from the descriptor's start, as if nothing was permuted. */
static float element(uint64_t descriptor, uint64_t offset)
{
    uint64_t address = field(descriptor, 0) + offset;
    uint16_t bits;
    address ^= (address >> 7 & 7) << 4;
    memcpy(&bits, (const char *)dynamic_shared() + address - DYNAMIC_SHARED_START, sizeof bits);
    return __uint_as_float((uint32_t)bits << 16);
}

static float by_rows(uint64_t descriptor, int row, int k)
{
    return element(descriptor, (uint64_t)(row / 8) * field(descriptor, 32) + (uint64_t)(row % 8 * 128 + k * 2));
}

static float by_columns(uint64_t descriptor, int k, int column)
{
    return element(descriptor, (uint64_t)(column / 64) * field(descriptor, 16) +
                                   (uint64_t)(k / 8) * field(descriptor, 32) +
                                   (uint64_t)(k % 8 * 128 + column % 64 * 2));
}

static void load_a(const product &p, float (&a)[16][16])
{
    for (int row = 0; row < 16; row++)
        for (int k = 0; k < 16; k++) {
            const uint32_t *held = p.lane[row % 8 * 4 + k % 8 / 2].a;
            uint32_t pair = held ? held[k / 8 * 2 + row / 8] : 0;
            a[row][k] = held ? __uint_as_float(k % 2 ? pair & 0xffff0000u : pair << 16)
                             : by_rows(p.lane[0].a_shared, p.warp % 4 * 16 + row, k);
        }
}

static void run(const product &p)
{
    float a[16][16];
    uint64_t b = p.lane[0].b_shared;
    load_a(p, a);
    for (int column = 0; column < p.lane[0].n; column++) {
        float part[16];
        for (int k = 0; k < 16; k++)
            part[k] = p.lane[0].a ? by_columns(b, k, column) : by_rows(b, column, k);
        for (int row = 0; row < 16; row++) {
            float *d = &p.lane[row % 8 * 4 + column % 8 / 2].d[column / 8 * 4 + row / 8 * 2 + column % 2];
            float sum = p.lane[0].accumulate ? *d : 0;
            for (int k = 0; k < 16; k++)
                sum += a[row][k] * part[k];
            *d = sum;
        }
    }
}

static void run_before(int warp, uint64_t group)
{
    std::deque<product> &pending = per_warp[warp].pending;
    for (; !pending.empty() && pending.front().group < group; pending.pop_front())
        run(pending.front());
}

void warpgroup_issue(uint32_t lanes, void **argument)
{
    product p;
    if (lanes != 0xffffffffu)
        fail("wgmma needs all lanes");
    for (int lane = 0; lane < 32; lane++) {
        p.lane[lane] = *static_cast<warpgroup_lane *>(argument[lane]);
        if (p.lane[lane].a_shared != p.lane[0].a_shared || p.lane[lane].b_shared != p.lane[0].b_shared)
            fail("wgmma: the lanes name different operands");
    }
    check_descriptor(p.lane[0].b_shared);
    if (!p.lane[0].a)
        check_descriptor(p.lane[0].a_shared);
    p.warp = current->warp;
    p.group = per_warp[p.warp].committed;
    per_warp[p.warp].pending.push_back(p);
}

void warpgroup_commit_all(uint32_t, void **)
{
    uint64_t groups = ++per_warp[current->warp].committed;
    if (random_bits() % 2)
        run_before(current->warp, groups);
}

void warpgroup_wait_all(uint32_t, void **argument)
{
    run_before(current->warp, per_warp[current->warp].committed - (uint64_t) * static_cast<int *>(argument[0]));
}

} // namespace emulator
