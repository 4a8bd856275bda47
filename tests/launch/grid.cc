// Grids of all small sizes, run by as many threads as they have shares: prints how often blocks ran that should run
// once; then in which order a thread takes blocks, of its own share and of one whose thread stays at the first of it.
#include "grid.h"

#include <stdio.h>

#include <thread>
#include <vector>

std::atomic<int> ran[64];

void Count(void**, int64_t first, int64_t last) {
  for (int64_t i = first; i < last; ++i) ran[i].fetch_add(1);
}

int main() {
  long wrong = 0, grids = 0;
  for (int round = 0; round < 20; ++round) {
    for (int64_t blocks = 2; blocks <= 40; ++blocks) {
      for (int64_t shares = 2; shares <= 4 && shares <= blocks; ++shares, ++grids) {
        for (auto& count : ran) count = 0;
        Grid* const grid = new Grid(Count, nullptr, 7, blocks, shares);
        std::vector<std::thread> helpers;
        for (int64_t i = 1; i < shares; ++i) {
          helpers.emplace_back([grid] {
            grid->Help();
            grid->Leave();
          });
        }
        grid->Help();
        grid->Wait();
        for (int i = 0; i < 64; ++i) wrong += ran[i] != (i >= 7 && i < 7 + blocks);
        grid->Leave();
        for (auto& helper : helpers) helper.join();
      }
    }
  }
  // One thread is at its first block as long as the other one runs: that takes its own share forwards, this one's back.
  static std::vector<int64_t> order;
  static std::atomic<bool> started, done;
  Grid* const grid = new Grid(
      [](void**, int64_t first, int64_t) {
        if (!started.exchange(true)) {
          while (!done) std::this_thread::yield();
        } else {
          order.push_back(first);
          done = order.size() == 7;
        }
      },
      nullptr, 0, 8, 2);
  std::thread slow([grid] {
    grid->Help();
    grid->Leave();
  });
  while (!started) std::this_thread::yield();
  grid->Help();
  grid->Wait();
  slow.join();
  grid->Leave();
  printf("%ld %ld", grids, wrong);
  for (const int64_t block : order) printf(" %ld", static_cast<long>(block % 4));
  printf("\n");
}
