/* Threads of a block as fibers: a stack each, a switch of a few nanoseconds, and a scheduler that has nothing to do but
 * pick a lane that can go on. A fiber lives as long as the process: when its thread ends it waits for the next block. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <map>
#include <utility>
#include <vector>

#include "emulator.h"

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace emulator
{

fiber *current;
uint3 block_index;
dim3 block_dim, grid_dim;

enum {
    THREADS_MOST = 1024,
    WARPS_MOST = THREADS_MOST / 32,
    STACK_BYTES = 128 << 10,
    SHARED_MOST = 227 << 10, /* of one block, sm_90 and later */
    SHARED_PLAIN = 48 << 10, /* without cudaFuncAttributeMaxDynamicSharedMemorySize */
    ARENA_BYTES = 256 << 10,
    BAND = 64, /* bytes before, between and after shared arrays */
};
static const unsigned char band_pattern = 0xa5, poison = 0xff; /* all ones: NaN in every float format */

struct warp_state {
    uint32_t live, ready, at_barrier, meeting;
    uint32_t mask[32];
    together all[32];
    void *argument[32];
};

struct shared_block {
    const void *key;
    unsigned char *at;
    size_t bytes;
};

static struct {
    const launch *kernel;
    warp_state warps[WARPS_MOST];
    int warp_count, live, at_barrier, votes;
    ballot result;
    const char *file;
    int line;
    uint32_t ready_warps;
    std::vector<shared_block> arrays;
    size_t arena_used;
    unsigned char *dynamic;
} block;

static uint64_t progress; /* counts what threads do besides waiting for words in memory */
static fiber fibers[THREADS_MOST];
static void *host_stack;
static unsigned char *arena, *dynamic_end;

[[noreturn]] void fail(const char *sentence)
{
    if (current)
        fprintf(stderr, "kernel %s, block (%u, %u, %u), thread (%u, %u, %u): %s\n", block.kernel->name, block_index.x,
                block_index.y, block_index.z, current->thread.x, current->thread.y, current->thread.z, sentence);
    else
        fprintf(stderr, "emulated device: %s\n", sentence);
    fflush(nullptr);
    _Exit(FAILURE_STATUS);
}

/* -- switching ------------------------------------------------------------------------------------------------------ */

static void fiber_main();

#if defined(__x86_64__)
/* Saves the registers that a function must keep, and the stack's top in *from. */
extern "C" void emulator_switch(void **from, void *to);
__asm__(".text\n.globl emulator_switch\n.type emulator_switch,@function\nemulator_switch:\n"
        "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
        "movq %rsp,(%rdi)\nmovq %rsi,%rsp\n"
        "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\nret\n"
        ".size emulator_switch,.-emulator_switch\n");

static void *stack_new(unsigned char *low, int index)
{
    /* Tops are spread over the sets of the first-level cache, else the same frame of all threads shares one set. */
    uintptr_t top = (uintptr_t)(low + STACK_BYTES) - (uintptr_t)(index * 320 % 4096) / 64 * 64;
    void **sp = (void **)top - 8; /* six registers, the address to return to, and one that keeps calls aligned */
    memset(sp, 0, 8 * sizeof *sp);
    sp[6] = (void *)fiber_main;
    return sp;
}
#else
static void emulator_switch(void **from, void *to)
{
    ucontext_t *save = new ucontext_t; /* kept by the one who comes back */
    *from = save;
    swapcontext(save, (ucontext_t *)to);
    delete save;
}

static void *stack_new(unsigned char *low, int)
{
    ucontext_t *context = new ucontext_t;
    getcontext(context);
    context->uc_stack.ss_sp = low;
    context->uc_stack.ss_size = STACK_BYTES;
    context->uc_link = nullptr;
    makecontext(context, fiber_main, 0);
    return context;
}
#endif

static void switch_to(fiber *next)
{
    fiber *from = current;
    if (next == from)
        return;
    current = next;
    emulator_switch(&from->stack, next->stack);
}

/* -- who goes on ------------------------------------------------------------------------------------------------------ */

static void stuck()
{
    for (int w = 0; w < block.warp_count; w++)
        if (block.warps[w].meeting)
            fail("a warp operation waits for lanes that never come (they wait elsewhere)");
    char sentence[256];
    snprintf(sentence, sizeof sentence, "only %d of %d threads reach the barrier at %s:%d", block.at_barrier,
             block.live, block.file, block.line);
    fail(sentence);
}

static void set_ready(int warp, uint32_t lanes)
{
    block.warps[warp].ready |= lanes;
    block.ready_warps |= block.warps[warp].ready ? 1u << warp : 0;
}

/* The next lane of this warp, or of a warp that the generator picks. */
static fiber *pick()
{
    int w = current ? current->warp : 0;
    uint32_t lanes = block.warps[w].ready;
    if (!lanes) {
        uint32_t warps = block.ready_warps;
        if (!warps)
            return nullptr;
        int turn = (int)(random_bits() % 32);
        uint32_t turned = warps >> turn | (turn ? warps << (32 - turn) : 0);
        w = (__builtin_ctz(turned) + turn) % 32;
        lanes = block.warps[w].ready;
    }
    int lane = block.kernel->descending ? 31 - __builtin_clz(lanes) : __builtin_ctz(lanes);
    return &fibers[w * 32 + lane];
}

static void rest(int warp, int lane)
{
    block.warps[warp].ready &= ~(1u << lane);
    if (!block.warps[warp].ready)
        block.ready_warps &= ~(1u << warp);
}

static void yield_turn()
{
    progress++;
    fiber *next = pick();
    if (!next)
        stuck();
    switch_to(next);
}

/* For who waits for a word in memory: another thread's turn, of any warp. */
void yield()
{
    static int in_a_row;
    static uint64_t last_progress;
    in_a_row = last_progress == progress ? in_a_row + 1 : 0;
    last_progress = progress;
    if (in_a_row > 100 * THREADS_MOST)
        fail("waits for ever for a word in memory");
    int self = current->warp * 32 + current->lane, threads = 32 * block.warp_count;
    for (int i = 1 + (int)(random_bits() % 32) * 32 % threads; i <= threads; i++) {
        int other = (self + i) % threads;
        if (block.warps[other / 32].ready >> other % 32 & 1) {
            switch_to(&fibers[other]);
            return;
        }
    }
}

/* -- meeting -------------------------------------------------------------------------------------------------------- */

/* Runs the operation that `lane` waits in when all its lanes are there. */
static bool complete(int w, int lane)
{
    warp_state *warp = &block.warps[w];
    uint32_t lanes = warp->mask[lane] & warp->live;
    if ((warp->meeting & lanes) != lanes)
        return false;
    for (uint32_t rest = lanes; rest; rest &= rest - 1) {
        int other = __builtin_ctz(rest);
        if (warp->all[other] != warp->all[lane] || warp->mask[other] != warp->mask[lane])
            fail("the lanes of a warp meet in different operations, or with different masks");
    }
    warp->all[lane](lanes, warp->argument);
    warp->meeting &= ~lanes;
    set_ready(w, lanes);
    return true;
}

void meet(uint32_t mask, together all, void *argument)
{
    int w = current->warp, lane = current->lane;
    warp_state *warp = &block.warps[w];
    if (!(mask >> lane & 1))
        fail("a lane is not in the mask of its own warp operation");
    warp->mask[lane] = mask;
    warp->all[lane] = all;
    warp->argument[lane] = argument;
    warp->meeting |= 1u << lane;
    if (complete(w, lane))
        return;
    rest(w, lane);
    yield_turn();
}

void nothing_all(uint32_t, void **) {}

void ballot_all(uint32_t lanes, void **argument)
{
    uint32_t result = 0;
    for (int lane = 0; lane < 32; lane++)
        if (lanes >> lane & 1)
            result |= (uint32_t)(static_cast<vote *>(argument[lane])->value != 0) << lane;
    for (int lane = 0; lane < 32; lane++)
        if (lanes >> lane & 1)
            static_cast<vote *>(argument[lane])->result = result;
}

static void open_barrier()
{
    block.result = ballot{block.votes, block.at_barrier};
    block.at_barrier = block.votes = 0;
    for (int w = 0; w < block.warp_count; w++) {
        uint32_t lanes = block.warps[w].at_barrier;
        block.warps[w].at_barrier = 0;
        set_ready(w, lanes);
    }
}

ballot barrier(const char *file, int line, int vote)
{
    if (block.at_barrier > 0 && (block.line != line || strcmp(block.file, file) != 0)) {
        char sentence[256];
        snprintf(sentence, sizeof sentence, "waits at %s:%d while others wait at %s:%d", file, line, block.file,
                 block.line);
        fail(sentence);
    }
    block.file = file;
    block.line = line;
    block.votes += vote;
    block.at_barrier++;
    block.warps[current->warp].at_barrier |= 1u << current->lane;
    rest(current->warp, current->lane);
    if (block.at_barrier == block.live)
        open_barrier();
    yield_turn();
    return block.result;
}

/* -- a block -------------------------------------------------------------------------------------------------------- */

static void thread_end()
{
    int w = current->warp, lane = current->lane;
    warp_state *warp = &block.warps[w];
    async_copies_end();
    progress++;
    warp->live &= ~(1u << lane);
    rest(w, lane);
    block.live--;
    if (warp->meeting)
        complete(w, __builtin_ctz(warp->meeting));
    if (block.live > 0 && block.at_barrier == block.live)
        open_barrier();
    fiber *next = pick();
    if (next) {
        switch_to(next);
    } else {
        if (block.live > 0)
            stuck();
        fiber *self = current;
        current = nullptr;
        emulator_switch(&self->stack, host_stack);
    }
}

static void fiber_main()
{
    for (;;) {
        block.kernel->body();
        thread_end();
    }
}

static void fault(int number, siginfo_t *info, void *)
{
    unsigned char *at = (unsigned char *)info->si_addr;
    signal(number, SIG_DFL);
    if (number == SIGILL) /* the trap of -fsanitize=alignment */
        fail("an address that is not a multiple of its access' size");
    if (current && at >= dynamic_end && at < dynamic_end + ARENA_BYTES)
        fail("dynamic shared memory is used beyond its end");
    fail("an address outside all memory, or more local memory than the emulator's stack of a thread");
}

static void set_up()
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), step = STACK_BYTES + page;
    unsigned char *stacks = (unsigned char *)map_memory(THREADS_MOST * step);
    for (int i = 0; i < THREADS_MOST; i++) {
        mprotect(stacks + (size_t)i * step, page, PROT_NONE);
        fibers[i].stack = stack_new(stacks + (size_t)i * step + page, i);
        fibers[i].lane = i % 32;
        fibers[i].warp = i / 32;
    }
    arena = (unsigned char *)map_memory(ARENA_BYTES);
    dynamic_end = (unsigned char *)map_memory(2 * ARENA_BYTES) + ARENA_BYTES;
    mprotect(dynamic_end, ARENA_BYTES, PROT_NONE);
    stack_t stack = {};
    stack.ss_size = 64 << 10;
    stack.ss_sp = map_memory(stack.ss_size);
    sigaltstack(&stack, nullptr);
    struct sigaction action = {};
    action.sa_sigaction = fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGSEGV, &action, nullptr);
    sigaction(SIGILL, &action, nullptr);
}

void *dynamic_shared()
{
    return block.dynamic;
}

/* The first thread that comes to the declaration makes the array, the others find it. */
void *shared_array(const void *key, size_t bytes)
{
    for (const shared_block &array : block.arrays)
        if (array.key == key)
            return array.at;
    size_t rounded = (bytes + BAND - 1) / BAND * BAND;
    if (block.arena_used + rounded + 2 * BAND > ARENA_BYTES)
        fail("more shared arrays than a block may have");
    unsigned char *at = arena + block.arena_used + BAND;
    memset(at - BAND, band_pattern, rounded + 2 * BAND);
    memset(at, poison, bytes);
    block.arrays.push_back({key, at, bytes});
    block.arena_used += rounded + BAND;
    return at;
}

static bool is_band(const unsigned char *from, const unsigned char *end)
{
    for (; from < end; from++)
        if (*from != band_pattern)
            return false;
    return true;
}

static unsigned char *dynamic_start(size_t bytes)
{
    size_t rounded = (bytes + 1023) / 1024 * 1024; /* as aligned as any kernel may ask for */
    unsigned char *at = dynamic_end - rounded;
    memset(at - BAND, band_pattern, rounded + BAND);
    memset(at, poison, bytes);
    return at;
}

static void check_shared(size_t dynamic_bytes)
{
    current = &fibers[0]; /* for the message */
    bool holds = is_band(block.dynamic - BAND, block.dynamic) && is_band(block.dynamic + dynamic_bytes, dynamic_end);
    for (const shared_block &array : block.arrays)
        holds = holds && is_band(array.at - BAND, array.at) &&
                is_band(array.at + array.bytes, array.at + (array.bytes + 2 * BAND - 1) / BAND * BAND);
    if (!holds)
        fail("something was written outside of shared memory (found at the block's end)");
    size_t static_bytes = 0;
    for (const shared_block &array : block.arrays)
        static_bytes += array.bytes;
    if (static_bytes > SHARED_PLAIN)
        fail("more than 48 KiB of static shared memory");
    current = nullptr;
}

static void run_block(const launch &kernel)
{
    int threads = (int)(kernel.block.x * kernel.block.y * kernel.block.z);
    block.kernel = &kernel;
    block.warp_count = (threads + 31) / 32;
    block.live = threads;
    block.at_barrier = block.votes = 0;
    block.ready_warps = 0;
    block.arrays.clear();
    block.arena_used = 0;
    block.dynamic = dynamic_start(kernel.shared_bytes);
    for (int w = 0; w < block.warp_count; w++) {
        int lanes = threads - 32 * w;
        uint32_t all = lanes >= 32 ? 0xffffffffu : (1u << lanes) - 1;
        block.warps[w].live = all;
        block.warps[w].ready = block.warps[w].at_barrier = block.warps[w].meeting = 0;
        set_ready(w, all);
    }
    fiber *first = pick();
    current = first;
    emulator_switch(&host_stack, first->stack);
    check_shared(kernel.shared_bytes);
}

void run_kernel(const launch &kernel)
{
    static bool ready;
    if (!ready)
        set_up();
    ready = true;
    block_dim = kernel.block;
    grid_dim = kernel.grid;
    uint3 thread = {0, 0, 0};
    for (unsigned i = 0; i < kernel.block.x * kernel.block.y * kernel.block.z; i++) {
        fibers[i].thread = thread;
        if (++thread.x == kernel.block.x) {
            thread.x = 0;
            if (++thread.y == kernel.block.y) {
                thread.y = 0;
                thread.z++;
            }
        }
    }
    uint64_t blocks = (uint64_t)kernel.grid.x * kernel.grid.y * kernel.grid.z, first = random_bits() % blocks;
    uint64_t step = 1 + random_bits() % blocks; /* any step without a common divisor visits all */
    auto divisor = [](uint64_t a, uint64_t b) {
        for (; b; std::swap(a, b))
            a %= b;
        return a;
    };
    while (divisor(step, blocks) != 1)
        step++;
    for (uint64_t i = 0; i < blocks; i++) {
        uint64_t at = (first + i * step) % blocks;
        block_index.x = (unsigned)(at % kernel.grid.x);
        block_index.y = (unsigned)(at / kernel.grid.x % kernel.grid.y);
        block_index.z = (unsigned)(at / kernel.grid.x / kernel.grid.y);
        run_block(kernel);
    }
}

/* -- limits --------------------------------------------------------------------------------------------------------- */

static std::map<const void *, int> &allowed()
{
    static std::map<const void *, int> bytes;
    return bytes;
}

cudaError_t allow_dynamic_shared(const void *kernel, int bytes)
{
    if (bytes > SHARED_MOST)
        return cudaErrorInvalidValue;
    allowed()[kernel] = bytes;
    return cudaSuccess;
}

const char *launch_problem(const launch &kernel)
{
    uint64_t threads = (uint64_t)kernel.block.x * kernel.block.y * kernel.block.z;
    auto limit = allowed().find(kernel.key);
    if (threads == 0 || threads > THREADS_MOST || kernel.block.z > 64)
        return "a block needs 1 to 1024 threads";
    if (kernel.grid.x == 0 || kernel.grid.y == 0 || kernel.grid.z == 0 || kernel.grid.x > 0x7fffffffu ||
        kernel.grid.y > 65535 || kernel.grid.z > 65535)
        return "a grid needs 1 to 2^31 - 1, 65535, 65535 blocks";
    if (kernel.shared_bytes > (size_t)(limit != allowed().end() ? limit->second : SHARED_PLAIN))
        return "more dynamic shared memory than is allowed for the kernel";
    return nullptr;
}

} // namespace emulator
