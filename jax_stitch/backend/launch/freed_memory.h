// Memory that a call frees, kept for the next one.
#pragma once
#include <stdlib.h>

#include <atomic>

namespace {

// Just below what glibc takes for the most (DEFAULT_MMAP_THRESHOLD_MAX, 32 MB).
constexpr size_t kLargeBlock = (size_t{32} << 20) - (size_t{64} << 10);
std::atomic<bool> freed_memory_is_kept{false};

// glibc gives the end of its heap back to the system as soon as 128 KB of it are free. XLA allocates a call's results
// anew, and frees them before the next call asks for as much: each of their pages is then touched for the first time at
// every call, which took longer than the kernels. Once a program has freed a large block, as each does that frees an
// array of 30 MB, glibc keeps twice as much (mallopt(3), M_MMAP_THRESHOLD). The block here is never touched. Where the
// user has set these bounds (MALLOC_TRIM_THRESHOLD_, glibc.malloc.trim_threshold), they stay as they are.
void KeepFreedMemory() {
#if defined(__GLIBC__)
  if (freed_memory_is_kept.exchange(true, std::memory_order_relaxed)) return;
  void* volatile block = malloc(kLargeBlock);  // A compiler leaves out a pair that nobody sees.
  free(block);
#endif
}

}  // namespace
