// CUDA's vocabulary as the checking mode has it: what stands before a kernel's text in place of NVIDIA's own declarations, so that the CUDA
// side of the runtime headers runs on a CPU. Elements are computed by the host's side of scalar.h, since the GPU's holds assembly.
//
// Loads and stores are not here: the compiler's instrumentation (-fsanitize=thread, without its library) calls the checker before each.
#pragma once
#include <math.h>  // CUDA has its functions without one

#include "scalar.h"

#define __CUDACC__
#define __device__
#define __global__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __align__(n) __attribute__((aligned(n)))
// Each block has its own copy, which the checker puts in place when the block runs.
#define __shared__ static __attribute__((section("st_shared")))
#define ST_DYNAMIC_SHARED(name) char* const name = st_check_shared();
#define ST_CHECKED static inline __attribute__((always_inline))
// Not a part of the code that calls it, whose accesses are looked at.
#define ST_UNCHECKED static __attribute__((noinline, unused, no_sanitize("thread")))

extern "C" {
unsigned st_check_thread();
unsigned st_check_block();
unsigned st_check_blocks();
unsigned st_check_threads();
char* st_check_shared();
void st_check_barrier();
void st_check_wait();
void st_check_cluster_barrier();
// What is at the same place of shared memory in another block of the cluster.
char* st_check_peer(char* own, unsigned rank);
void st_check_arrived();
void st_check_atomic(void* data, int bytes, void* place, void* frame);
// The value of lane `from` of the calling thread's warp, for the lanes of `mask`, which all call it together.
uint32_t st_check_shuffle(uint32_t mask, uint32_t value, uint32_t from);
uint32_t st_check_ballot(uint32_t mask, bool value);
void st_check_together(uint32_t mask);
extern char __start_st_shared[] __attribute__((weak, visibility("hidden")));
extern char __stop_st_shared[] __attribute__((weak, visibility("hidden")));
char* st_check_static_shared(int64_t* bytes) {
  *bytes = __stop_st_shared - __start_st_shared;
  return __start_st_shared;
}
}

namespace st_checked {
struct Index {
  unsigned x, y, z;
};
ST_CHECKED Index index(unsigned x) { return {x, 0, 0}; }
ST_CHECKED Index extent(unsigned x) { return {x, 1, 1}; }
}  // namespace st_checked

#define threadIdx st_checked::index(st_check_thread())
#define blockIdx st_checked::index(st_check_block())
#define gridDim st_checked::extent(st_check_blocks())
#define blockDim st_checked::extent(st_check_threads())

#define __syncthreads() st_check_barrier()
#define __syncwarp(...) st_check_together(0xffffffffu)
#define __threadfence() asm volatile("" ::: "memory")
#define __threadfence_block() asm volatile("" ::: "memory")
#define __nanosleep(n) st_check_wait()
#define ST_HAS_CLUSTERS
#define ST_HAS_CLOCK
#define ST_ARRIVED st_check_arrived();
#define __ballot_sync(mask, value) st_check_ballot(mask, value)
#define __any_sync(mask, value) (st_check_ballot(mask, value) != 0)

namespace st_checked {

// Values of up to 32 bits by their bits.
template <class T> ST_CHECKED uint32_t bits(T value) {
  static_assert(sizeof(T) == 4, "shuffles are of 32 bits");
  return st::bitcast<uint32_t>(value);
}

ST_CHECKED uint32_t lane() { return st_check_thread() % 32; }

}  // namespace st_checked

#define __shfl_sync(mask, value, from) \
  st::bitcast<decltype(+(value))>(st_check_shuffle(mask, st_checked::bits(+(value)), (from)))
#define __shfl_xor_sync(mask, value, by) __shfl_sync(mask, value, st_checked::lane() ^ unsigned(by))
#define __shfl_up_sync(mask, value, by) \
  __shfl_sync(mask, value, st_checked::lane() >= unsigned(by) ? st_checked::lane() - unsigned(by) : st_checked::lane())
#define __shfl_down_sync(mask, value, by) \
  __shfl_sync(mask, value, st_checked::lane() + unsigned(by) < 32 ? st_checked::lane() + unsigned(by) : st_checked::lane())

namespace st {
ST_CHECKED unsigned long long now() { return 0; }  // Who waits for ever is found as such.
ST_CHECKED void gave_up() {}
ST_CHECKED void cluster_barrier() { st_check_cluster_barrier(); }
template <class T> ST_CHECKED T* of_peer(T* own, unsigned rank) {
  return reinterpret_cast<T*>(st_check_peer(reinterpret_cast<char*>(own), rank));
}
}  // namespace st

// One operation on memory that no other thread can come between.
#define ST_ATOMIC_ACCESS_ st_check_atomic(place, sizeof(T), __builtin_return_address(0), __builtin_frame_address(0));
#define ST_ATOMIC_(NAME, RESULT)                                       \
  template <class T> ST_UNCHECKED T NAME(T* place, st::same<T> value) { \
    ST_ATOMIC_ACCESS_                                                   \
    const T before = *place;                                           \
    *place = RESULT;                                                   \
    return before;                                                     \
  }
ST_ATOMIC_(atomicAdd, before + value)
ST_ATOMIC_(atomicMax, before < value ? value : before)
ST_ATOMIC_(atomicMin, value < before ? value : before)
ST_ATOMIC_(atomicAnd, before & value)
ST_ATOMIC_(atomicOr, before | value)
ST_ATOMIC_(atomicXor, before ^ value)
ST_ATOMIC_(atomicExch, value)
#undef ST_ATOMIC_

template <class T> ST_UNCHECKED T atomicCAS(T* place, st::same<T> expected, st::same<T> value) {
  ST_ATOMIC_ACCESS_
  const T before = *place;
  if (before == expected) *place = value;
  return before;
}
#undef ST_ATOMIC_ACCESS_
