// CUDA's execution model on a CPU: the threads of a block are fibers that run in random order between barriers, so that
// a missing __syncthreads shows as a wrong result, and one that not all threads reach as a message. Blocks that wait for
// each other are threads of the operating system.
#include "scalar.h"  // the host's: the GPU's holds assembly
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include <thread>
#include <vector>
#define __CUDACC__
#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static thread_local

namespace cuda {

enum State { READY, AT_BLOCK_BARRIER, AT_WARP_BARRIER, DONE };

struct Fiber {
  ucontext_t context;
  State state;
  int word;
};

constexpr int kThreads = 1024, kStack = 1 << 16;
static thread_local struct {
  Fiber fibers[kThreads];
  char* stacks = nullptr;
  char* shared = nullptr;
  ucontext_t scheduler;
  int running = 0;
  uint32_t random = 12345;
} block;
static thread_local void (*body)();

struct Index {
  unsigned x;
};
static thread_local Index thread_index, block_index;
static Index grid_size;

static uint32_t random() { return block.random = block.random * 1664525u + 1013904223u, block.random >> 8; }

static void wait(State state) {
  Fiber& self = block.fibers[block.running];
  self.state = state;
  swapcontext(&self.context, &block.scheduler);
}

static void run_fiber() {
  body();
  wait(DONE);
}

static int count(State state, int first, int last) {
  int found = 0;
  for (int t = first; t < last; ++t) found += block.fibers[t].state == state;
  return found;
}

static void let_go(int first, int last) {
  for (int t = first; t < last; ++t) block.fibers[t].state = READY;
}

// Runs a warp as far as it gets without the others, so that it is far ahead of them or far behind.
static void run_warp(int first) {
  const int last = first + 32;
  for (;;) {
    int order[32], ready = 0;
    for (int t = first; t < last; ++t) {
      if (block.fibers[t].state == READY) order[ready++] = t;
    }
    if (ready == 0) {
      if (count(AT_WARP_BARRIER, first, last) < 32) return;
      let_go(first, last);
      continue;
    }
    for (; ready > 0; --ready) {
      const int k = int(random() % unsigned(ready)), t = order[k];
      order[k] = order[ready - 1];
      block.running = t;
      thread_index.x = unsigned(t);
      swapcontext(&block.scheduler, &block.fibers[t].context);
    }
  }
}

static char* shared() { return block.shared; }

// Runs `kernel` as block `number` of `threads` threads; what it finds in shared memory is arbitrary.
static void run_block(void (*kernel)(), int64_t number, int threads, size_t shared_bytes) {
  if (block.stacks == nullptr) block.stacks = static_cast<char*>(malloc(size_t(kThreads) * kStack));
  block.shared = static_cast<char*>(aligned_alloc(64, (shared_bytes + 127) / 64 * 64));
  for (size_t i = 0; i < shared_bytes; ++i) block.shared[i] = char(random());
  body = kernel;
  block_index.x = unsigned(number);
  for (int t = 0; t < threads; ++t) {
    Fiber& f = block.fibers[t];
    getcontext(&f.context);
    f.context.uc_stack = {block.stacks + size_t(t) * kStack, 0, kStack};
    f.context.uc_link = nullptr;
    f.state = READY;
    makecontext(&f.context, run_fiber, 0);
  }
  while (count(DONE, 0, threads) < threads) {
    if (count(READY, 0, threads) == 0) {
      if (count(AT_BLOCK_BARRIER, 0, threads) < threads) {
        fprintf(stderr, "a barrier that not all threads of block %lld reach\n", (long long)number);
        break;
      }
      let_go(0, threads);
    }
    run_warp(int(random() % unsigned(threads / 32)) * 32);
  }
  free(block.shared);
}

// Runs all `blocks` blocks of a launch side by side.
template <class Kernel> static void run_grid(Kernel kernel, int64_t blocks, int threads, size_t shared_bytes) {
  grid_size.x = unsigned(blocks);
  std::vector<std::thread> running;
  for (int64_t b = 0; b < blocks; ++b) {
    running.emplace_back([=] {
      block.random += uint32_t(b);
      kernel(b, threads, shared_bytes);
      free(block.stacks);
    });
  }
  for (auto& r : running) r.join();
}

}  // namespace cuda

#define threadIdx cuda::thread_index
#define blockIdx cuda::block_index
#define gridDim cuda::grid_size

static unsigned long long atomicAdd(unsigned long long* place, unsigned long long n) {
  return __atomic_fetch_add(place, n, __ATOMIC_RELAXED);
}
// Of the threads of one block, which take turns.
template <class T> static T atomicAdd(T* place, T n) {
  const T before = *place;
  *place = before + n;
  return before;
}
static void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
static void __nanosleep(unsigned) { std::this_thread::yield(); }

static void __syncthreads() { cuda::wait(cuda::AT_BLOCK_BARRIER); }

static int __shfl_xor_sync(unsigned, int value, int mask) {
  const int self = cuda::block.running;
  cuda::block.fibers[self].word = value;
  cuda::wait(cuda::AT_WARP_BARRIER);
  const int found = cuda::block.fibers[self ^ mask].word;
  cuda::wait(cuda::AT_WARP_BARRIER);  // Before anyone writes the next word.
  return found;
}
