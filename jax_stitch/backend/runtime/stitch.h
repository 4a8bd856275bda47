// The runtime that generated kernels are written against: one text for CUDA, where a block's threads run side by side, and for a host compiler,
// where they are loops that it vectorises.
//
// A part of a kernel lays its rows over blocks. A block holds TR rows at a time, TL lanes work on each, and the lanes go over the places of the row:
//
//   ST_SPLIT_LANES(rows, period, TR, TL) or ST_SPLIT_ROWS(...)   which of lane and row is the fastest thread coordinate
//   ST_EACH_TURN(n) { ST_GROUP(turn, n) ... }            the block's turns, at most n, and the rows that it does at each
//   ST_EACH_ROW { ... }                                  per row (`row`), outside any place
//   ST_EACH_PLACE(j, n) { ... };                         per place `j` of the row, shared out over the lanes
//   ST_EACH_IN_RUNS(j, n, P) { ... };                    the same, as place `run * P + j`
//   ST_EACH_TILE(j, n) { ... } ST_AFTER_EACH_TILE { ... };   the same, and what is done after each place; on the host, after a place of each lane
//   ST_SPLIT_ROW_VECTORS(..., V)                         as ST_SPLIT_ROWS, but a thread has V neighbouring rows (vector.h)
//
// These are heads of statements: loops and conditions that name what stands above, whose braces the kernel has. Where a host's loop
// takes its body as a lambda, the statement ends in a semicolon, which says nothing on CUDA.
// With rows fastest the place loop is outside and ST_EACH_ROW inside it, so that the innermost host loop always runs over neighbours.
// Values: ST_ACC is an accumulator per thread, ST_ROW_VALUE one value per row, ST_REGISTERS values kept at a thread's own places, ST_SHARED an
// array in shared memory. Between a write and a read by another thread stands ST_SYNC.
#pragma once
#include "scalar.h"

#define ST_RESTRICT __restrict__
// A pointer to an input that an output is written over, or to that output: they may be equal, and what one thread reads by the one it
// overwrites by the other afterwards. No other pointer is to that memory.
#define ST_IN_PLACE
#define ST_PRAGMA_(text) _Pragma(#text)

// The head of a statement that has a name for a value, or several of one type.
#define ST_WITH_(...) if ([[maybe_unused]] const __VA_ARGS__; true)

#ifdef __CUDACC__

// The block's shared memory of the size that the launch says (the checking mode has its own).
#ifndef ST_DYNAMIC_SHARED
#define ST_DYNAMIC_SHARED(name) extern __shared__ __align__(16) char name[];
#endif

// A pointer to what another phase of the same kernel has written: no licence to read it through the cache of constants.
#define ST_CROSSING
#define ST_PART ST_FN void
#define ST_SPACED(S) constexpr index spaced_##S = S;
#define ST_APART
// Several iterations of a loop in one: what a thread does for a row, and what is done once for all rows.
#define ST_UNROLL_ROWS(n) ST_PRAGMA_(unroll n)
#define ST_UNROLL_ALONE(n) ST_PRAGMA_(unroll n)
#define ST_MEMBER static __device__ __forceinline__
#define ST_TABLE static __device__ const
// Of a row's TL lanes a block has TB: all, where no cluster takes the row (cluster.h). A thread has RV rows, mostly one: `r_` is the
// first of them in the block, and `w_` the one at hand, counted from there.
#define ST_SPLIT_(ROWS, PERIOD, TR, TL, CL, RV, FAST, LANE, ROW)          \
  constexpr int TR_ = TR, TL_ = TL, CL_ = CL, TB_ = TL_ / CL_, RV_ = RV, w_ = 0; \
  constexpr index rows_ = PERIOD, batches_ = (ROWS) / (PERIOD), groups_ = (rows_ + TR_ - 1) / TR_; \
  constexpr bool LANES_ = FAST; const int lane_ = TL_ == 1 ? 0 : int(LANE), r_ = TR_ == RV_ ? 0 : int(ROW); \
  (void)rows_, (void)TR_, (void)TL_, (void)CL_, (void)TB_, (void)RV_, (void)w_, (void)LANES_, (void)lane_, (void)r_;
#define ST_SPLIT_LANES(ROWS, PERIOD, TR, TL) \
  ST_SPLIT_(ROWS, PERIOD, TR, TL, 1, 1, true, threadIdx.x % (TL), threadIdx.x / (TL))
#define ST_SPLIT_ROWS(ROWS, PERIOD, TR, TL) ST_SPLIT_ROW_VECTORS(ROWS, PERIOD, TR, TL, 1)
#define ST_SPLIT_ROW_VECTORS(ROWS, PERIOD, TR, TL, V) \
  ST_SPLIT_(ROWS, PERIOD, TR, TL, 1, V, false, threadIdx.x / ((TR) / (V)), threadIdx.x % ((TR) / (V)) * (V))
// Their number is known before the first, and no turn asks whether it is the last: several turns' loads are under way at a time.
#define ST_EACH_TURN(N)                                                                              \
  for (index turn_ = 0, left_ = batches_ * groups_ - block * index(N), turns_ = left_ < index(N) ? left_ : index(N); turn_ < turns_; ++turn_)
// `row0_` is the group's first row, within its batch of rows.
#define ST_GROUP(TURN, N)                                                                            \
  const index group_ = block * index(N) + (TURN), batch = batches_ == 1 ? 0 : group_ / groups_,      \
              row0_ = (group_ - batch * groups_) * TR_;                                              \
  (void)batch;
#define ST_HAS_ROW_ (rows_ % TR_ == 0 || row0_ + r_ < rows_)
#define ST_EACH_ROW if (ST_HAS_ROW_) ST_WITH_(index row = row0_ + r_)
#define ST_EACH_ROW_INSIDE ST_EACH_ROW
#define ST_ONE_ROW if (r_ == 0)
#define ST_EACH_ROW_ALONE ST_EACH_ROW
#define ST_EACH_ROW_FROM(LOW, HIGH) ST_EACH_ROW if (row >= (LOW) && row < (HIGH))
// Where in shared memory a thread has what it alone reads; a block of a cluster has room for its own lanes' places.
#define ST_AT_PLACE_(j, n) \
  ST_WITH_(index p_ = CL_ > 1 ? j / TL_ * TB_ + index(threadIdx.x) : LANES_ ? r_ * index(n) + j : j * TR_ + r_)
#define ST_EACH_PLACE(j, n) for (index j = lane_; j < (n); j += TL_) ST_AT_PLACE_(j, n)
#define ST_IN_RUNS_(j, n, P) ST_WITH_(index run = at_ / (P), j = at_ % (P), p_ = r_ * index(n) + at_)
#define ST_EACH_IN_RUNS(j, n, P) for (index at_ = lane_; at_ < (n); at_ += TL_) ST_IN_RUNS_(j, n, P)
#define ST_EACH_IN_RUNS_UNROLLED(j, n, P)                                          \
  _Pragma("unroll") for (int k_ = 0; k_ < ((n) + TL_ - 1) / TL_; ++k_)             \
    if (const index at_ = k_ * TL_ + lane_; (k_ + 1) * TL_ <= (n) || at_ < (n)) ST_IN_RUNS_(j, n, P)
// Unrolled, so that what is kept per place stays in registers. Only the last of the turns asks whether its places are still in the row.
#define ST_EACH_PLACE_UNROLLED(j, n)                                               \
  _Pragma("unroll") for (int k_ = 0; k_ < ((n) + TL_ - 1) / TL_; ++k_)             \
    if (const index j = k_ * TL_ + lane_; (k_ + 1) * TL_ <= (n) || j < (n)) ST_AT_PLACE_(j, n)
// A place, and then what is done after it.
#define ST_EACH_OF_TWO_ _Pragma("unroll") for (int step_ = 0; step_ < 2; ++step_) if (step_ == 0)
#define ST_EACH_TILE(j, n) ST_EACH_PLACE(j, n) ST_EACH_OF_TWO_
#define ST_EACH_TILE_UNROLLED(j, n) ST_EACH_PLACE_UNROLLED(j, n) ST_EACH_OF_TWO_
#define ST_EACH_TILE_IN_RUNS(j, n, P) ST_EACH_IN_RUNS(j, n, P) ST_EACH_OF_TWO_
#define ST_EACH_TILE_IN_RUNS_UNROLLED(j, n, P) ST_EACH_IN_RUNS_UNROLLED(j, n, P) ST_EACH_OF_TWO_
#define ST_AFTER_EACH_TILE else
#define ST_EACH_LANE
#define ST_OF_OWN_ROWS_ _Pragma("unroll") for (int w_ = 0; w_ < RV_; ++w_)
#define ST_JOIN(C, total, run) ST_OF_OWN_ROWS_ total[w_] = C::combine(total[w_], run[w_]);
#define ST_FIRST_LANE if (lane_ == 0)
#define ST_ONCE if (lane_ == 0 && r_ == 0)
#define ST_SYNC __syncthreads();
#define ST_ACC(T, name, init) T name[RV_]; ST_OF_OWN_ROWS_ name[w_] = init;
#define ST_A(name) name[w_]
#define ST_ROW_VALUE(T, name) T name[RV_];
#define ST_ROW_TRUTH(name) bool name[RV_];
// A truth value per row, false at first, and whether it holds for any row that the thread has.
#define ST_ROW_FLAG(name) bool name[RV_] = {};
#define ST_ANY_ROW(name) st::any(name)
#define ST_R(name) name[w_]
#define ST_REGISTERS(T, name, K, n) T name[(K) * RV_];
#define ST_FILL_REGISTERS(name, K, n, init) _Pragma("unroll") for (int i_ = 0; i_ < (K) * RV_; ++i_) name[i_] = init;
#define ST_K(name) name[k_ * RV_ + w_]
// What the threads of each row keep at their places, combined as a balanced tree into what those of the first row keep.
#define ST_JOIN_ROWS(C, name, K, n)                                                            \
  for (int half_ = TR_ / 2; half_ > 0; half_ /= 2) {                                           \
    typename C::T* const spare_ = reinterpret_cast<typename C::T*>(shared);                    \
    const int at_ = r_ % half_ * TL_ + lane_;                                                  \
    __syncthreads();                                                                           \
    if (r_ >= half_ && r_ < 2 * half_)                                                         \
      _Pragma("unroll") for (int i_ = 0; i_ < (K); ++i_) spare_[at_ + i_ * half_ * TL_] = name[i_]; \
    __syncthreads();                                                                           \
    if (r_ < half_)                                                                            \
      _Pragma("unroll") for (int i_ = 0; i_ < (K); ++i_) name[i_] = C::combine(name[i_], spare_[at_ + i_ * half_ * TL_]); \
  }                                                                                            \
  __syncthreads(); /* what comes next may write there */
#define ST_SHARED(T, name, offset) T* const name = reinterpret_cast<T*>(shared + (offset));
#define ST_FILL_OWN_SHARED(name, n, init) for (int i_ = threadIdx.x; i_ < (CL_ > 1 ? ((n) + TL_ - 1) / TL_ * TB_ : (n)); i_ += TR_ * TB_) name[i_] = init;
#define ST_REDUCE(C, name, acc) st::reduce_rows<C, LANES_, TR_, TL_>(name, acc, shared, r_, lane_);
#define ST_REDUCE_BLOCK(C, name, acc) \
  const typename C::T name = st::reduce_lanes<C, true, 1, TR_ * TB_ / RV_>(st::of_rows<C>(acc), shared, 0, threadIdx.x);

// Between the phases of a kernel. All blocks of the launch are on the device together and go on when the last has arrived, ...
#define ST_GRID_BARRIER st::grid_barrier(arrivals);
#define ST_LEAVE_GRID st::leave_grid(arrivals);
// ... or all but the last end here, and it does the rest.
#define ST_LAST_BLOCK_ALONE if (!st::is_last_block(arrivals)) return;

#include "lanes.h"

#include "arrivals.h"

#else  // a host compiler

#include <stddef.h>

// As <stdlib.h> declares them; it takes longer to read than all of this.
extern "C" {
[[noreturn]] void abort() noexcept;
void free(void* data) noexcept;
void* aligned_alloc(size_t alignment, size_t bytes) noexcept;
}

#define ST_CROSSING __restrict__
#define ST_PART static inline __attribute__((always_inline)) void
// A stride that the compiler does not know.
#define ST_SPACED(S)      \
  index spaced_##S = S;   \
  asm("" : "+r"(spaced_##S));
#define ST_UNROLL_ROWS(n)  // an iteration is a loop over rows
#define ST_UNROLL_ALONE(n) ST_PRAGMA_(GCC unroll n)
#define ST_MEMBER static inline __attribute__((always_inline))
#define ST_TABLE static const
#define ST_SIMD _Pragma("omp simd")
#define ST_INLINE __attribute__((always_inline))
// A statement as a function of its own: a compiler's time grows with the square of a function's length.
namespace st { struct apart { template <class Body> __attribute__((noinline)) void operator<<(const Body& body) const { body(); } }; }
#define ST_APART st::apart{} << [&]() ST_INLINE
#define ST_SPLIT_(ROWS, PERIOD, TR, TL, CL, FAST)            \
  constexpr int TR_ = TR, TL_ = TL, CL_ = CL; constexpr bool LANES_ = FAST; \
  constexpr index rows_ = PERIOD, batches_ = (ROWS) / (PERIOD), groups_ = (rows_ + TR_ - 1) / TR_; \
  st::Arena arena_; (void)rows_, (void)TR_, (void)TL_, (void)CL_, (void)LANES_;
#define ST_SPLIT_LANES(ROWS, PERIOD, TR, TL) ST_SPLIT_(ROWS, PERIOD, TR, TL, 1, true)
#define ST_SPLIT_ROWS(ROWS, PERIOD, TR, TL) ST_SPLIT_(ROWS, PERIOD, TR, TL, 1, false)
#define ST_SPLIT_ROW_VECTORS(ROWS, PERIOD, TR, TL, V) ST_SPLIT_ROWS(ROWS, PERIOD, TR, TL)
#define ST_EACH_TURN(N) for (int turn_ = 0; turn_ < (N); ++turn_)
#define ST_GROUP(TURN, N)                                             \
  const index group_ = block * index(N) + (TURN);                     \
  const index batch = group_ / groups_, row0_ = (group_ % groups_) * TR_; \
  if (batch >= batches_) break;                                       \
  const st::Arena::Mark mark_(arena_);                                \
  const int active_ = rows_ - row0_ < TR_ ? int(rows_ - row0_) : TR_; \
  (void)active_;
#define ST_EACH_ROW for (int r_ = 0; r_ < active_; ++r_) ST_WITH_(index row = row0_ + r_)
#define ST_ONE_ROW ST_WITH_(int r_ = 0)
#define ST_EACH_ROW_INSIDE                            \
  ST_SIMD for (int r_ = 0; r_ < active_; ++r_)        \
    ST_WITH_(index row = row0_ + r_, p_ = place_ * TR_ + r_) ST_WITH_(int t_ = lane_ * TR_ + r_)
#define ST_EACH_ROW_FROM(LOW, HIGH)                                                                                    \
  ST_SIMD for (int r_ = st::row_at(row0_, LOW, active_); r_ < st::row_at(row0_, HIGH, active_); ++r_)                  \
    ST_WITH_(index row = row0_ + r_) ST_WITH_(int t_ = LANES_ ? r_ * TL_ : r_)
#define ST_EACH_ROW_ALONE                             \
  ST_SIMD for (int r_ = 0; r_ < active_; ++r_)        \
    ST_WITH_(index row = row0_ + r_) ST_WITH_(int t_ = LANES_ ? r_ * TL_ : r_)
// With lanes fastest: the innermost loop; with rows fastest: the outer one.
#define ST_KEPT_(KEPT) [&](const index j) ST_INLINE { return KEPT + j; }
#define ST_AT_(j) [&](const index j, [[maybe_unused]] const index p_, [[maybe_unused]] const int t_) ST_INLINE
#define ST_PLACES_(j, A, B, KEPT) st::places<index, (A), (B), TL_>(r_, ST_KEPT_(KEPT)) << ST_AT_(j)
#define ST_TILES_(j, A, B, KEPT) st::tiles<index, (A), (B), TL_>(r_, ST_KEPT_(KEPT)) << ST_AT_(j)
#define ST_RUNS_(n, P) for (index run = 0; run < (n) / (P); ++run)
#define ST_EACH_PLACE(j, n) ST_PLACES_(j, 0, n, r_ * index(n))
#define ST_EACH_PLACE_UNROLLED ST_EACH_PLACE
#define ST_EACH_IN_RUNS(j, n, P) ST_RUNS_(n, P) ST_PLACES_(j, 0, P, r_ * index(n) + run * (P))
#define ST_EACH_IN_RUNS_UNROLLED ST_EACH_IN_RUNS
#define ST_EACH_TILE(j, n) ST_TILES_(j, 0, n, r_ * index(n))
#define ST_EACH_TILE_UNROLLED ST_EACH_TILE
#define ST_EACH_TILE_IN_RUNS(j, n, P) ST_RUNS_(n, P) ST_TILES_(j, 0, P, r_ * index(n) + run * (P))
#define ST_EACH_TILE_IN_RUNS_UNROLLED ST_EACH_TILE_IN_RUNS
#define ST_AFTER_EACH_TILE << [&]() ST_INLINE
#define ST_EACH_PLACE_OUTSIDE(j, n)                                                   \
  for (int lane_ = 0; lane_ < TL_; ++lane_)                                           \
    for (index j = st::run_start(lane_, n, TL_); j < st::run_start(lane_ + 1, n, TL_); ++j) ST_WITH_(index place_ = j)
#define ST_EACH_LANE ST_SIMD for (int lane_ = 0; lane_ < TL_; ++lane_) ST_WITH_(int t_ = r_ * TL_ + lane_)
#define ST_JOIN(C, total, run) \
  for (int i_ = 0; i_ < TR_ * TL_; ++i_) total[i_] = C::combine(total[i_], run[i_]);
#define ST_FIRST_LANE
#define ST_ONCE
#define ST_SYNC
#define ST_ACC(T, name, init)             \
  alignas(64) T name[TR_ * TL_];          \
  for (int i_ = 0; i_ < TR_ * TL_; ++i_) name[i_] = init;
#define ST_A(name) name[t_]
#define ST_ROW_VALUE(T, name) alignas(64) T name[TR_];
// As wide as what is chosen by it: GCC vectorises no choice by a byte among floats.
#define ST_ROW_TRUTH(name) alignas(64) int32_t name[TR_];
#define ST_ROW_FLAG(name) alignas(64) bool name[TR_] = {};
#define ST_ANY_ROW(name) st::any(name, TR_)
#define ST_R(name) name[r_]
#define ST_REGISTERS(T, name, K, n) T* const name = arena_.take<T>(size_t(TR_) * (n));
#define ST_FILL_REGISTERS(name, K, n, init) for (size_t i_ = 0; i_ < size_t(TR_) * (n); ++i_) name[i_] = init;
#define ST_K(name) name[p_]
#define ST_JOIN_ROWS(C, name, K, n)                  \
  for (int half_ = TR_ / 2; half_ > 0; half_ /= 2)   \
    for (index i_ = 0; i_ < half_ * index(n); ++i_) name[i_] = C::combine(name[i_], name[i_ + half_ * index(n)]);
#define ST_SHARED(T, name, offset) T* const name = reinterpret_cast<T*>(shared + (offset) * size_t(CL_));  // all blocks' of a cluster
#define ST_FILL_OWN_SHARED(name, n, init) for (index i_ = 0; i_ < (n); ++i_) name[i_] = init;
#define ST_REDUCE(C, name, acc) st::reduce_lanes<C, LANES_, TR_, TL_>(name, acc);
#define ST_REDUCE_BLOCK(C, name, acc) \
  typename C::T name;                 \
  st::reduce_lanes<C, true, 1, TR_ * TL_>(&name, acc);

// The calling thread's piece number `slot` of at least so many bytes, from whoever has loaded this kernel: kernels share
// it, and keep nothing of their own in threads, so that they can be unloaded. Null where nobody gives any.
extern "C" {
__attribute__((visibility("default"))) char* (*jax_stitch_thread_memory)(int slot, size_t bytes) = nullptr;
#ifdef ST_WITHOUT_CPP_LIBRARY
// What a thread keeps is freed as it ends. The C++ library hands that on to the C library, and nothing else of it is needed.
int __cxa_thread_atexit_impl(void (*)(void*), void*, void*);
__attribute__((weak, visibility("hidden"))) int __cxa_thread_atexit(void (*f)(void*), void* object, void* library) {
  return __cxa_thread_atexit_impl(f, object, library);
}
#endif
}

namespace st {

// Memory of the calling thread that every block reuses: shared memory, and registers that are too many for a stack.
class Arena {
 public:
  Arena() : used_(0) {}
  // Gives back, at the end of its scope, what was taken in it.
  class Mark {
   public:
    explicit Mark(Arena& arena) : arena_(arena), used_(arena.used_) {}
    ~Mark() { arena_.used_ = used_; }

   private:
    Arena& arena_;
    const int used_;
  };
  template <class T> T* take(size_t count) {
    const size_t bytes = (count * sizeof(T) + 63) / 64 * 64;
    if (used_ == kChunks) abort();
    if (jax_stitch_thread_memory) return reinterpret_cast<T*>(jax_stitch_thread_memory(++used_, bytes));
    Chunk& chunk = chunks()[used_++];
    if (chunk.size < bytes) {
      free(chunk.data);
      chunk.data = static_cast<char*>(aligned_alloc(64, bytes));
      chunk.size = bytes;
    }
    return reinterpret_cast<T*>(chunk.data);
  }

 private:
  struct Chunk {
    char* data = nullptr;
    size_t size = 0;
    ~Chunk() { free(data); }
  };
  static Chunk* chunks() {
    static thread_local Chunk found[kChunks];
    return found;
  }
  static constexpr int kChunks = 256;
  int used_;
};

// Where the run of places of lane `lane` starts: with rows fastest a lane takes neighbouring places, for the caches' sake.
ST_FN int64_t run_start(int64_t lane, int64_t places, int64_t lanes) {
  const int64_t run = (places + lanes - 1) / lanes;
  return lane * run < places ? lane * run : places;
}

ST_FN bool any(const bool* values, int count) {
  unsigned char found = 0;
  for (int i = 0; i < count; ++i) found |= values[i];
  return found != 0;
}

// The calling thread's stand-in for a block's shared memory.
static inline char* shared_memory(size_t bytes) {
  if (jax_stitch_thread_memory) return jax_stitch_thread_memory(0, bytes);
  static thread_local struct Owner {
    char* data = nullptr;
    size_t size = 0;
    ~Owner() { free(data); }
  } owner;
  if (owner.size < bytes) {
    free(owner.data);
    owner.size = (bytes + 63) / 64 * 64;
    owner.data = static_cast<char*>(aligned_alloc(64, owner.size));
  }
  return owner.data;
}

// Which of a block's `active` rows is at `row`; the first or the one after the last where that is another block's.
template <class I> ST_FN int row_at(I first, same<I> row, int active) {
  return row < first ? 0 : row - first > active ? active : int(row - first);
}

// The values of the TL lanes of each row combined as a balanced tree; `values` is used up.
template <class C, bool LANES, int TR, int TL> ST_FN void reduce_lanes(typename C::T* result, typename C::T* values) {
  using T = typename C::T;
  if (LANES) {
    for (int r = 0; r < TR; ++r) {
      T* const row = values + r * TL;
      for (int left = TL; left > 1; left = (left + 1) / 2) {
        const int other = (left + 1) / 2;
        ST_SIMD for (int i = 0; i < left / 2; ++i) row[i] = C::combine(row[i], row[i + other]);
      }
      result[r] = row[0];
    }
  } else {
    for (int left = TL; left > 1; left = (left + 1) / 2) {
      const int other = (left + 1) / 2;
      ST_SIMD for (int i = 0; i < left / 2 * TR; ++i) values[i] = C::combine(values[i], values[i + other * TR]);
    }
    for (int r = 0; r < TR; ++r) result[r] = values[r];
  }
}

}  // namespace st

#endif

// CUDA has one form of the place loop for both orders.
#ifdef __CUDACC__
#define ST_EACH_PLACE_OUTSIDE ST_EACH_PLACE
#define ST_EACH_PLACE_OUTSIDE_UNROLLED ST_EACH_PLACE_UNROLLED
#else
#define ST_EACH_PLACE_OUTSIDE_UNROLLED ST_EACH_PLACE_OUTSIDE
#endif

#include "cluster.h"
#include "runs.h"
#include "scan.h"
#include "sort.h"
#include "team.h"
#include "product.h"
#include "fragments.h"
#include "squares.h"
#include "tiles.h"
#include "vector.h"
