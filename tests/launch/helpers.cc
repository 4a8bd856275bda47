// A loop whose sweeps are divided, called by as many threads as come, at any moment or never: prints how often it was called, how often its result
// was not that of one thread, and how often somebody helped.
#include "stitch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <atomic>
#include <chrono>
#include <random>
#include <thread>
#include <vector>

constexpr int kPlaces = 96, kSteps = 40;
static std::atomic<long> helped{0};

ST_PART part(const int32_t block, const float* ST_RESTRICT in, float* ST_RESTRICT out, char* const own_shared_, void* const meeting_) {
  using index = int32_t;
  ST_HELPED_TEAM(PIECES, 3)
  const index row = 0;
  (void)row;
  float* carried = reinterpret_cast<float*>(shared);
  float* next_carried = carried + kPlaces;
  float* const kept = next_carried + kPlaces;
  ST_EACH_ITEM(1, kPlaces) { carried[j] = in[j]; }
  for (index step = 0; step < kSteps; ++step) {
    ST_EACH_CHUNK_DIVIDED(1, kPlaces, 32) {
      ST_TILE(float, sum, 32, 0.0f)
      ST_STEPS(8) { ST_LANES { ST_T(sum) = ST_T(sum) + carried[(j + q * 11) % kPlaces] * in[q]; } }
      ST_LANES { kept[j] = ST_T(sum); }
      if (!leads_) helped.fetch_add(1, std::memory_order_relaxed);
    }
    ST_EACH_SPLIT_DIVIDED(1, kPlaces, 4) {
      ST_SPLIT(float, parts, 4, 0.0f)
      ST_SPLIT_STEPS(12, 4) { ST_S(parts) += kept[(j + q * 7) % kPlaces]; }
      ST_COMBINE(st::Sum<float>, parts, 4)
      ST_FIRST_PART { next_carried[j] = parts * 0.1f + carried[j]; }
    }
    ST_EACH_ITEM_DIVIDED(4, kPlaces / 4) { kept[run * (kPlaces / 4) + j] = next_carried[(run * 31 + j * 5) % kPlaces]; }
    ST_EACH_ITEM(1, kPlaces) { next_carried[j] += 0.01f * kept[kPlaces - 1 - j]; }
    ST_EACH_ITEM(1, kPlaces) { out[step * kPlaces + j] = next_carried[j]; }
    ST_SWAP(float, carried, next_carried)
  }
}

static void kernel(void** buffers, int64_t first_block, int64_t last_block) {
  char* const shared = st::shared_memory(3 * kPlaces * sizeof(float));
  for (int64_t block = first_block; block < last_block; ++block) {
    part(block, static_cast<const float*>(buffers[0]), static_cast<float*>(buffers[1]), shared, ST_MEETING(2));
  }
}

constexpr int kThreads = PIECES + 1;  // One more than there are pieces.
static float in[kPlaces], out[kSteps * kPlaces], expected[kSteps * kPlaces];
alignas(64) static char area[512];
static std::atomic<int> call{0}, done{0};
static long calls = 0, wrong = 0;

static void check() {
  ++calls;
  wrong += memcmp(out, expected, sizeof out) != 0;
  memset(out, 0, sizeof out);
  memset(area, 0, sizeof area);
}

static void wait(int microseconds) {
  const auto start = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - start < std::chrono::microseconds(microseconds)) {
  }
}

int main(int, char** arguments) {
  for (int i = 0; i < kPlaces; ++i) in[i] = 0.01f * ((i * 37) % 50) - 0.2f;
  static void* alone[] = {in, out, nullptr};
  static void* together[] = {in, out, area};
  kernel(alone, 0, 1);
  memcpy(expected, out, sizeof out);
  memset(out, 0, sizeof out);
  // One thread: all blocks, in order and not, with nobody to meet and with an area for it.
  for (void** buffers : {alone, together}) {
    kernel(buffers, 0, PIECES), check();
    for (int block = PIECES - 1; block >= 0; --block) kernel(buffers, block, block + 1);
    check();
  }
  std::vector<std::thread> threads;
  for (int n = 1; n < kThreads; ++n) {
    threads.emplace_back([=] {
      std::mt19937 random(n);
      for (int k = 1;; ++k) {
        while (call.load() < k) std::this_thread::yield();
        if (call.load() > k) return;
        const unsigned late = random() % 120;
        if (late < 80) wait(late);
        if (late < 100) kernel(together, n, n + 1);
        done.fetch_add(1);
      }
    });
  }
  const auto start = std::chrono::steady_clock::now();
  int k = 0;
  while (std::chrono::steady_clock::now() - start < std::chrono::seconds(atoi(arguments[1]))) {
    done = 0;
    call = ++k;
    if (k % 3) wait(k % 40);
    kernel(together, 0, 1);
    while (done.load() < kThreads - 1) std::this_thread::yield();
    check();
  }
  call = k + 2;
  for (auto& thread : threads) thread.join();
  printf("%ld %ld %ld", calls, wrong, helped.load());
}
