// The blocks of a kernel, shared out among threads.
#pragma once
#include <pthread.h>
#include <stdint.h>

#include <atomic>

#include "registry.h"

namespace {

// A piece of a share is one in so many of the blocks that are left of it: few of a large grid, and single blocks in the
// end, so that threads that are late or disturbed are evened out to a block.
constexpr int64_t kPiecesOfRest = 4;
// Rounds of the caller's busy wait for the other threads' last pieces, a few microseconds, before it sleeps.
constexpr int kSpins = 2000;

int64_t Least(int64_t a, int64_t b) { return a < b ? a : b; }

void Pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// A number for each thread that ever ran blocks.
int64_t ThreadOrdinal() {
  static std::atomic<int64_t> count{0};
  thread_local const int64_t ordinal = count.fetch_add(1, std::memory_order_relaxed);
  return ordinal;
}

// The blocks of one call. Each thread has a share of its own, the same at every call, so that what one call left in
// a core's cache the next finds there; it takes its share in pieces, then helps with the others'. Helpers that the
// pool runs late, or never, take none: the caller alone can finish, so a call from inside a busy pool cannot
// deadlock. A helper may start after the call has returned; it then touches nothing but the counters, so the last of
// all that were asked for frees the grid.
class Grid {
 public:
  Grid(Kernel kernel, void** buffers, int64_t first, int64_t blocks, int64_t shares)
      : kernel_(kernel), buffers_(buffers), blocks_(blocks), count_(shares), shares_(new Share[shares]) {
    for (int64_t i = 0; i < shares; ++i) {
      shares_[i].next = first + blocks * i / shares;
      shares_[i].end = first + blocks * (i + 1) / shares;
    }
    holders_ = shares;
    pthread_mutex_init(&mutex_, nullptr);
    pthread_cond_init(&finished_, nullptr);
  }

  // Runs pieces until none is left.
  void Help() {
    const int64_t own = ThreadOrdinal();
    for (int64_t i = 0; i < count_; ++i) {
      Share& share = shares_[(own + i) % count_];
      int64_t first = share.next.load(std::memory_order_relaxed);
      while (first < share.end) {
        const int64_t last = first + (share.end - first + kPiecesOfRest - 1) / kPiecesOfRest;
        if (!share.next.compare_exchange_weak(first, last, std::memory_order_relaxed)) continue;
        kernel_(buffers_, first, last);
        if (done_.fetch_add(last - first, std::memory_order_acq_rel) + (last - first) == blocks_) {
          pthread_mutex_lock(&mutex_);
          pthread_cond_signal(&finished_);
          pthread_mutex_unlock(&mutex_);
        }
        first = share.next.load(std::memory_order_relaxed);
      }
    }
  }

  // Returns once every block has run; their writes are then visible.
  void Wait() {
    for (int i = 0; i < kSpins; ++i) {
      if (Done()) return;
      Pause();
    }
    pthread_mutex_lock(&mutex_);
    while (!Done()) pthread_cond_wait(&finished_, &mutex_);
    pthread_mutex_unlock(&mutex_);
  }

  // One of as many as there are shares has no more use for it.
  void Leave() {
    if (holders_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

 private:
  struct alignas(64) Share {
    std::atomic<int64_t> next;
    int64_t end;
  };

  ~Grid() {
    pthread_cond_destroy(&finished_);
    pthread_mutex_destroy(&mutex_);
    delete[] shares_;
  }

  bool Done() const { return done_.load(std::memory_order_acquire) == blocks_; }

  const Kernel kernel_;
  void** const buffers_;
  const int64_t blocks_, count_;
  Share* const shares_;
  alignas(64) std::atomic<int64_t> done_{0};
  std::atomic<int64_t> holders_;
  pthread_mutex_t mutex_;
  pthread_cond_t finished_;
};

}  // namespace
