// `backend/runtime/arrivals.h` with a thread of the host for each block, for test_arrivals.py.
#include <sched.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

struct Index {
  unsigned x;
};
static thread_local Index blockIdx, gridDim, threadIdx;
static thread_local bool shared_last;

#define ST_FN static inline
#define ST_HAS_CLOCK
#define ST_PATIENCE 1000000000ull
#define ST_ARRIVED
#define __shared__ thread_local static
#define __syncthreads()
#define __threadfence() std::atomic_thread_fence(std::memory_order_seq_cst)
#define __nanosleep(n) sched_yield()

using Word = unsigned long long;
struct GaveUp {};
namespace st {
static Word now() { return std::chrono::steady_clock::now().time_since_epoch().count(); }
static void gave_up() { throw GaveUp(); }
}  // namespace st
static Word atomicAdd(Word* place, Word value) {
  const Word before = __atomic_fetch_add(place, value, __ATOMIC_SEQ_CST);
  sched_yield();  // others come between this and what is done about it
  return before;
}
static Word atomicExch(Word* place, Word value) { return __atomic_exchange_n(place, value, __ATOMIC_SEQ_CST); }
static Word atomicCAS(Word* place, Word expected, Word value) {
  __atomic_compare_exchange_n(place, &expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  return expected;
}

#include "arrivals.h"

namespace {

struct Launch {
  Word* word;
  int blocks, barriers;
  bool last;
  std::vector<std::atomic<int>> came;
  std::atomic<int> faults{0}, lasts{0};

  Launch(Word* word, int blocks, int barriers, bool last)
      : word(word), blocks(blocks), barriers(barriers), last(last), came(barriers + 1) {}

  void run(unsigned number) {
    try {
      block(number);
    } catch (const GaveUp&) {
      ++faults;
    }
  }

  void block(unsigned number) {
    blockIdx.x = number, gridDim.x = blocks, threadIdx.x = 0;
    if (number % 2 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));  // who does not wait is seen
    for (int k = 0; k < barriers; ++k) {
      ++came[k];
      st::grid_barrier(word);
      faults += came[k] != blocks;
    }
    if (!last) return st::leave_grid(word);
    ++came[barriers];
    if (st::is_last_block(word)) {
      faults += came[barriers] != blocks;
      ++lasts;
    }
  }
};

}  // namespace

// Launches at the same time, each with a word of its own; returns how often something was not as it has to be.
extern "C" int launches(int count, int blocks, int barriers, int last, Word* words) {
  std::vector<Launch*> all;
  std::vector<std::thread> threads;
  for (int k = 0; k < count; ++k) all.push_back(new Launch(words + k, blocks, barriers, last));
  for (Launch* launch : all)
    for (int b = blocks; b-- > 0;) threads.emplace_back([launch, b] { launch->run(b); });
  for (std::thread& thread : threads) thread.join();
  int faults = 0;
  for (Launch* launch : all) {
    faults += launch->faults + (last && launch->lasts != 1);
    delete launch;
  }
  return faults;
}

// At which arrival the bit turns over, where block `first` comes first and the others in order.
extern "C" int turns(int blocks, int first) {
  Word word = ~0ull;
  gridDim.x = blocks;
  for (int k = 0; k < blocks; ++k) {
    blockIdx.x = k == 0 ? first : k <= first ? k - 1 : k;
    const Word before = st::counted(&word);
    if (st::turned(before, before + st::share())) return k + 1;
  }
  return 0;
}
