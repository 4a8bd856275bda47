// The blocks of a kernel, shared out among threads.
#pragma once
#include <pthread.h>
#include <stdint.h>

#include <atomic>

#include "registry.h"
#include "waits.h"

namespace {

// A piece of a share is one in so many of the blocks that are left of it: few of a large grid, and single blocks in the
// end, so that threads that are late or disturbed are evened out to a block.
constexpr int64_t kPiecesOfRest = 4;
// Rounds of the caller's busy wait for the other threads' last pieces, a few microseconds, before it sleeps.
constexpr int kSpins = 2000;

int64_t Least(int64_t a, int64_t b) { return a < b ? a : b; }

// A number for each thread that ever ran blocks.
int64_t ThreadOrdinal() {
  static std::atomic<int64_t> count{0};
  thread_local const int64_t ordinal = count.fetch_add(1, std::memory_order_relaxed);
  return ordinal;
}

// The most blocks that one grid has.
constexpr int64_t kMostBlocks = INT32_MAX;

// The blocks of one call. Each thread has a share of its own, the same at every call where no other has taken that
// first, so that what one call left in a core's cache the next finds there; it takes its share in pieces, then helps
// with the others'. Helpers that the pool runs late, or never, take none: the caller alone can finish, so a call from
// inside a busy pool cannot deadlock. A helper may start after the call has returned; it then touches nothing but the
// counters, so the last of all that were asked for frees the grid.
class Grid {
 public:
  Grid(Kernel kernel, void** buffers, int64_t first, int64_t blocks, int64_t shares)
      : kernel_(kernel), buffers_(buffers), first_(first), blocks_(blocks), count_(shares), shares_(new Share[shares]) {
    for (int64_t i = 0; i < shares; ++i) {
      shares_[i].rest = Blocks{blocks * i / shares, blocks * (i + 1) / shares}.Packed();
    }
    holders_ = shares;
    pthread_mutex_init(&mutex_, nullptr);
    pthread_cond_init(&finished_, nullptr);
  }

  // Runs pieces until none is left: from the start of the thread's own share, from the end of others', since threads
  // at neighbouring blocks have each other's lines of memory fetched and take half as long again.
  void Help() {
    const int64_t own = Claim();
    for (int64_t i = 0; i < count_; ++i) {
      Share& share = shares_[(own + i) % count_];
      for (Blocks piece = Take(share, i == 0); piece.first < piece.end; piece = Take(share, i == 0)) {
        kernel_(buffers_, first_ + piece.first, first_ + piece.end);
        const int64_t count = piece.end - piece.first;
        if (done_.fetch_add(count, std::memory_order_acq_rel) + count == blocks_) {
          pthread_mutex_lock(&mutex_);
          pthread_cond_signal(&finished_);
          pthread_mutex_unlock(&mutex_);
        }
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
  // From the grid's first block on.
  struct Blocks {
    int64_t first, end;

    uint64_t Packed() const { return static_cast<uint64_t>(first) << 32 | static_cast<uint64_t>(end); }
  };

  struct alignas(64) Share {
    std::atomic<uint64_t> rest;  // Blocks, packed: both ends of what is left change as one.
    std::atomic<bool> is_owned{false};
  };

  // The number of a share that no other thread has: there are as many shares as threads that were asked for.
  int64_t Claim() {
    int64_t number = ThreadOrdinal() % count_;
    while (shares_[number].is_owned.exchange(true, std::memory_order_relaxed)) number = (number + 1) % count_;
    return number;
  }

  // A piece of what is left of a share, at its start or its end; empty where nothing is.
  static Blocks Take(Share& share, bool at_start) {
    uint64_t packed = share.rest.load(std::memory_order_relaxed);
    while (true) {
      const Blocks rest = {static_cast<int64_t>(packed >> 32), static_cast<int64_t>(packed & UINT32_MAX)};
      if (rest.first == rest.end) return rest;
      const int64_t count = (rest.end - rest.first + kPiecesOfRest - 1) / kPiecesOfRest;
      const Blocks piece = at_start ? Blocks{rest.first, rest.first + count} : Blocks{rest.end - count, rest.end};
      const Blocks left = at_start ? Blocks{piece.end, rest.end} : Blocks{rest.first, piece.first};
      if (share.rest.compare_exchange_weak(packed, left.Packed(), std::memory_order_relaxed)) return piece;
    }
  }

  ~Grid() {
    pthread_cond_destroy(&finished_);
    pthread_mutex_destroy(&mutex_);
    delete[] shares_;
  }

  bool Done() const { return done_.load(std::memory_order_acquire) == blocks_; }

  const Kernel kernel_;
  void** const buffers_;
  const int64_t first_, blocks_, count_;
  Share* const shares_;
  alignas(64) std::atomic<int64_t> done_{0};
  std::atomic<int64_t> holders_;
  pthread_mutex_t mutex_;
  pthread_cond_t finished_;
};

}  // namespace
