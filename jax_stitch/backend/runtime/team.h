// Loops in teams: a block's threads that go through the iterations of a loop together, sweep by sweep, with ST_SYNC between them.
//
// A sweep goes over `runs` x `lanes` places, as run `run` and lane `j`:
//
//   ST_EACH_ITEM(R, L) { ... }                 each place by itself
//   ST_EACH_ITEM_IN_TURN(R, L) { ... }         the same where several places may ST_ADD to one
//   ST_EACH_CHUNK(R, L, V) { ... }             places with reductions, each by one thread. Inside, ST_LANES { ... } holds the code of a place,
//                                              and what goes through all steps, ST_STEPS(K) { ... }, stands in ST_TILE values
//   ST_EACH_SPLIT(R, L, S) { ... }             places with reductions, each by S threads: ST_SPLIT_STEPS(K, S) { ... }, ST_FIRST_PART { ... }
//
// Steps that are many go in runs, ST_STEP_RUNS(K, R) or ST_SPLIT_RUNS(K, S, R), whose steps are ST_STEPS_OF_RUN and ST_SPLIT_STEPS_OF_RUN(S).
// After each run its sums are joined, ST_EACH_PART(S) for those of S threads.
//
// A spread team is that of all blocks of a launch, with ST_GRID_SYNC between sweeps.
//
// On the host a team is one thread: it takes V neighbouring places at a time, or S steps of one place, as vectors; the last steps of
// one place, which do not fill a vector, are ST_STEPS_FROM(F, K) and join the others by ST_COMBINE_REST. Of a helped team's
// sweeps, ST_HELPED_TEAM(M, N), N of each step are divided in M pieces, which other threads may do: see helpers.h.
#pragma once

namespace st {

template <class V> struct Sum {
  using T = V;
  ST_MEMBER T combine(T a, T b) { return a + b; }
};

// a * b + c in one rounding, as matrix products have it.
ST_FN float fused(float a, float b, float c) {
#ifdef __CUDACC__
  return fmaf(a, b, c);
#else
  return detail::multiply_add(a, b, c);
#endif
}
ST_FN double fused(double a, double b, double c) {
#ifdef __CUDACC__
  return fma(a, b, c);
#else
  return __builtin_fma(a, b, c);
#endif
}

}  // namespace st

#define ST_SWAP(T, a, b)  \
  {                       \
    T* const swapped_ = a; \
    a = b;                \
    b = swapped_;         \
  }

// Runs of R steps, from `from_` on below `end_`; the `runs_`th of them.
#define ST_STEP_RUNS(K, R) \
  for (index from_ = 0, runs_ = 1; from_ < (K); from_ += (R), ++runs_) ST_WITH_(index end_ = (K) - from_ > (R) ? from_ + (R) : (K))
#define ST_SPLIT_RUNS(K, S, R) ST_STEP_RUNS(K, (S) * (R))

#ifdef __CUDACC__

#define ST_TEAM(T)         \
  constexpr index T_ = T;  \
  const index thread_ = threadIdx.x;
// Neighbouring warps are on different multiprocessors: few places are work for all of them.
#define ST_SPREAD_TEAM(T)                                                                            \
  const index T_ = index(T) * gridDim.x;                                                             \
  const index thread_ = (index(threadIdx.x / 32) * gridDim.x + blockIdx.x) * 32 + threadIdx.x % 32;
#define ST_HELPED_TEAM(M, N) \
  ST_TEAM(1)                 \
  char* const shared = own_shared_;
#define ST_MEETING(k) nullptr
#define ST_GRID_SYNC st::grid_barrier(arrivals);
#define ST_ARRIVALS arrivals
#define ST_EACH_ITEM(R, L) \
  for (index at_ = thread_; at_ < index(R) * (L); at_ += T_) ST_WITH_(index run = at_ / (L), j = at_ % (L))
#define ST_EACH_ITEM_IN_TURN(R, L) ST_EACH_ITEM(R, L)
#define ST_EACH_ITEM_DIVIDED(R, L) ST_EACH_ITEM(R, L)
#define ST_EACH_CHUNK_DIVIDED(R, L, V) ST_EACH_ITEM(R, L)
#define ST_EACH_SPLIT_DIVIDED(R, L, S) ST_EACH_SPLIT(R, L, S)
#define ST_ADD(place, value) atomicAdd(&(place), value);
#define ST_EACH_CHUNK(R, L, V) ST_EACH_ITEM(R, L)
#define ST_LANES
#define ST_STEPS(K) _Pragma("unroll 4") for (index q = 0; q < (K); ++q)
#define ST_STEPS_OF_RUN _Pragma("unroll 4") for (index q = from_; q < end_; ++q)
#define ST_TILE(T, name, V, init) T name = init;
#define ST_TILE_EMPTY(T, name, V) T name = T(0);
#define ST_T(name) name
// All threads of a warp stay, since they shuffle; those past the end do the last place again.
#define ST_EACH_SPLIT(R, L, S)                                                               \
  for (index i_ = thread_; i_ < (index(R) * (L) * (S) + 31) / 32 * 32; i_ += T_)             \
    ST_WITH_(bool on_ = i_ < index(R) * (L) * (S))                                           \
      ST_WITH_(index at_ = on_ ? i_ / (S) : index(R) * (L) - 1)                              \
        ST_WITH_(int part_ = i_ % (S)) ST_WITH_(index run = at_ / (L), j = at_ % (L))
#define ST_SPLIT_STEPS(K, S) _Pragma("unroll 4") for (index q = part_; q < (K); q += (S))
#define ST_SPLIT_STEPS_OF_RUN(S) _Pragma("unroll 4") for (index q = from_ + part_; q < end_; q += (S))
#define ST_EACH_PART(S)
#define ST_SPLIT(T, name, S, init) T name = init;
#define ST_S(name) name
#define ST_COMBINE(C, name, S) name = st::combine_lanes<C, S>(name, part_);
#define ST_FIRST_PART if (on_ && part_ == 0)

namespace st {

// The values of S neighbouring threads combined, in the order of the threads.
template <class C, int S> ST_FN typename C::T combine_lanes(typename C::T value, int part) {
  _Pragma("unroll") for (int mask = 1; mask < S; mask *= 2) {
    const typename C::T other = shuffle_xor(value, mask);
    value = part & mask ? C::combine(other, value) : C::combine(value, other);
  }
  return value;
}

}  // namespace st

#else

#include "helpers.h"

#define ST_TEAM(T)              \
  constexpr bool leads_ = true; \
  (void)leads_;
#define ST_SPREAD_TEAM(T) ST_TEAM(T)
#define ST_HELPED_TEAM(M, N)                                  \
  st::Member member_(meeting_, block, M, N, own_shared_);     \
  if (!member_.works()) return;                               \
  const bool leads_ = member_.leads();                        \
  char* const shared = member_.memory();
#define ST_MEETING(k) buffers[k]
#define ST_GRID_SYNC
#define ST_ARRIVALS nullptr
#define ST_LED_ if (leads_)
#define ST_EACH_PIECE_ for (st::Pieces pieces_(member_); pieces_.has(); pieces_.next())
#define ST_EACH_ITEM(R, L)                            \
  ST_LED_ for (index run = 0; run < (R); ++run)       \
    ST_SIMD for (index j = 0; j < (L); ++j)
// Of one run the places are divided, of several the runs.
#define ST_EACH_ITEM_DIVIDED(R, L)                                                                              \
  ST_EACH_PIECE_                                                                                                \
    for (index run = (R) == 1 ? 0 : index(pieces_.first(R, 1)), last_ = (R) == 1 ? 1 : index(pieces_.end(R, 1)); run < last_; ++run) \
      ST_WITH_(index j0_ = (R) == 1 ? index(pieces_.first(L, 16)) : 0, end_ = (R) == 1 ? index(pieces_.end(L, 16)) : (L)) \
        ST_SIMD for (index j = j0_; j < end_; ++j)
#define ST_EACH_ITEM_IN_TURN(R, L)                    \
  ST_LED_ for (index run = 0; run < (R); ++run)       \
    for (index j = 0; j < (L); ++j)
#define ST_ADD(place, value) place += value;
#define ST_CHUNK_PLACES_(L, V) ST_WITH_(int m_ = (L) % (V) == 0 || (L) - j0_ >= (V) ? (V) : int((L) - j0_))
#define ST_EACH_CHUNK(R, L, V)                        \
  ST_LED_ for (index run = 0; run < (R); ++run)       \
    for (index j0_ = 0; j0_ < (L); j0_ += (V))        \
      ST_CHUNK_PLACES_(L, V)
#define ST_CHUNKS_(L, V) (((L) + (V) - 1) / (V))
#define ST_EACH_CHUNK_DIVIDED(R, L, V)                                                                          \
  ST_EACH_PIECE_                                                                                                \
    for (index chunk_ = index(pieces_.first(index(R) * ST_CHUNKS_(L, V), 1)), last_ = index(pieces_.end(index(R) * ST_CHUNKS_(L, V), 1)); \
         chunk_ < last_; ++chunk_)                                                                              \
      ST_WITH_(index run = chunk_ / ST_CHUNKS_(L, V), j0_ = chunk_ % ST_CHUNKS_(L, V) * (V)) ST_CHUNK_PLACES_(L, V)
#define ST_LANES ST_SIMD for (int v_ = 0; v_ < m_; ++v_) ST_WITH_(index j = j0_ + v_)
#define ST_STEPS(K) for (index q = 0; q < (K); ++q)
#define ST_STEPS_OF_RUN for (index q = from_; q < end_; ++q)
#define ST_TILE(T, name, V, init)                     \
  alignas(64) T name[V];                              \
  for (int v_ = 0; v_ < (V); ++v_) name[v_] = init;
#define ST_TILE_EMPTY(T, name, V) alignas(64) T name[V];
#define ST_T(name) name[v_]
#define ST_EACH_SPLIT(R, L, S)                        \
  ST_LED_ for (index run = 0; run < (R); ++run)       \
    for (index j = 0; j < (L); ++j)
#define ST_EACH_SPLIT_DIVIDED(R, L, S)                                                                          \
  ST_EACH_PIECE_                                                                                                \
    for (index at_ = index(pieces_.first(index(R) * (L), 16)), last_ = index(pieces_.end(index(R) * (L), 16)); at_ < last_; ++at_) \
      ST_WITH_(index run = at_ / (L), j = at_ % (L))
#define ST_SPLIT_STEPS(K, S)                          \
  for (index q0_ = 0; q0_ < (K); q0_ += (S))          \
    ST_WITH_(int m_ = (K) % (S) == 0 || (K) - q0_ >= (S) ? (S) : int((K) - q0_)) \
      ST_SIMD for (int part_ = 0; part_ < m_; ++part_) ST_WITH_(index q = q0_ + part_)
#define ST_SPLIT_STEPS_OF_RUN(S)                      \
  for (index q0_ = from_; q0_ < end_; q0_ += (S))     \
    ST_WITH_(int m_ = end_ - q0_ >= (S) ? (S) : int(end_ - q0_)) \
      ST_SIMD for (int part_ = 0; part_ < m_; ++part_) ST_WITH_(index q = q0_ + part_)
#define ST_EACH_PART(S) ST_SIMD for (int part_ = 0; part_ < (S); ++part_)
#define ST_SPLIT(T, name, S, init)                    \
  alignas(64) T name##_parts[S];                      \
  for (int part_ = 0; part_ < (S); ++part_) name##_parts[part_] = init;
#define ST_S(name) name##_parts[part_]
#define ST_COMBINE(C, name, S) const typename C::T name = st::combine_lanes<C, S>(name##_parts);
#define ST_STEPS_FROM(F, K) for (index q = F; q < (K); ++q)
#define ST_COMBINE_REST(C, name, S) const typename C::T name = C::combine(st::combine_lanes<C, S>(name##_parts), name##_rest);
#define ST_FIRST_PART

namespace st {

template <class C, int S> ST_FN typename C::T combine_lanes(typename C::T* values) {
  for (int left = S / 2; left > 0; left /= 2) {
    for (int i = 0; i < left; ++i) values[i] = C::combine(values[i], values[i + left]);
  }
  return values[0];
}

}  // namespace st

#endif
