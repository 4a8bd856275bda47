// Sorting rows that stand in shared memory: a row's lanes put its first places in order, those that are read.
//
//   ST_SORT(C, n, first, arrays...)   rows of n places; the first `first` are wanted. Between ST_SYNCs.
//
// C has the type T of an element, Arrays of its fields, get and put of the element at a place of these, and the strict order `before`.
#pragma once

#ifdef __CUDACC__

#define ST_SORT(C, n, first, ...)                                                             \
  {                                                                                           \
    static_assert(LANES_, "a row's lanes are neighbours");                                    \
    const C::Arrays arrays_{__VA_ARGS__};                                                     \
    st::RowSorter<C, TL_, n>(arrays_, r_, lane_, ST_HAS_ROW_).template sort<first>();  \
  }

#define ST_METHOD_ __device__ __forceinline__

namespace st {

// A bitonic network in which the lesser element always goes to the lesser place: places past the end of a row of any length then count as
// greatest, and are left alone. A warp holds a piece of a row in registers, two places to each lane; longer distances go through shared
// memory, pieces of it at neighbouring places at a time, so that no two lanes want one bank.
template <class C, int TL, int N> class RowSorter {
 public:
  using T = typename C::T;
  ST_METHOD_ RowSorter(const typename C::Arrays& arrays, int r, int lane, bool active)
      : arrays_(arrays), base_(r * N), lane_(lane), here_(lane % W), warp_(lane / W), active_(active) {}

  template <int FIRST> ST_METHOD_ void sort() {
    for (int piece = warp_; piece < PIECES; piece += WARPS) {
      load(piece * PIECE);
      sort_piece();
      store(piece * PIECE);
    }
    if constexpr (PIECES > 1 && FIRST <= PIECE) {
      select();
    } else if constexpr (PIECES > 1) {
      for (int run = PIECE; run < N; run *= 2) merge(run);
    }
  }

 private:
  static constexpr int W = TL < 32 ? TL : 32, WARPS = TL / W, PIECE = 2 * W, PIECES = (N + PIECE - 1) / PIECE;

  ST_METHOD_ void load(int start) {
    start_ = start;
    if (has(here_)) low_ = C::get(arrays_, base_ + start + here_);
    if (N > W && has(W + here_)) high_ = C::get(arrays_, base_ + start + W + here_);
  }
  ST_METHOD_ void store(int start) {
    if (has(here_)) C::put(arrays_, base_ + start + here_, low_);
    if (N > W && has(W + here_)) C::put(arrays_, base_ + start + W + here_, high_);
  }
  ST_METHOD_ bool has(int place) const { return active_ && start_ + place < N; }

  // The element at `place` of the piece after it has met that at `other`.
  ST_METHOD_ T met(const T& own, const T& theirs, int place, int other) const {
    if (!has(place > other ? place : other)) return own;
    return (place < other ? C::before(theirs, own) : C::before(own, theirs)) ? theirs : own;
  }
  ST_METHOD_ void meet(int mask) {
    low_ = met(low_, shuffle_xor(low_, mask), here_, here_ ^ mask);
    if constexpr (N > W) high_ = met(high_, shuffle_xor(high_, mask), W + here_, (W + here_) ^ mask);
  }
  ST_METHOD_ void sort_piece() {
    _Pragma("unroll") for (int run = 1; run < W; run *= 2) {
      meet(2 * run - 1);
      _Pragma("unroll") for (int far = run / 2; far > 0; far /= 2) meet(far);
    }
    if constexpr (N > W) {
      const T mirrored = shuffle_xor(high_, W - 1), own = low_;
      const int other = PIECE - 1 - here_;
      low_ = met(own, mirrored, here_, other);
      high_ = shuffle_xor(met(mirrored, own, other, here_), W - 1);
      merge_halves();
    }
  }
  // Of a piece that only has to be merged: the last distances.
  ST_METHOD_ void merge_piece() {
    const T own = low_;
    low_ = met(own, high_, here_, W + here_);
    high_ = met(high_, own, W + here_, here_);
    merge_halves();
  }
  ST_METHOD_ void merge_halves() {
    _Pragma("unroll") for (int far = W / 2; far > 0; far /= 2) meet(far);
  }

  ST_METHOD_ void exchange(int low, int high) const {
    if (!active_ || high >= N) return;
    const T a = C::get(arrays_, base_ + low), b = C::get(arrays_, base_ + high);
    if (C::before(b, a)) {
      C::put(arrays_, base_ + low, b);
      C::put(arrays_, base_ + high, a);
    }
  }
  // Sorted runs of `run` places into ones of twice as many.
  ST_METHOD_ void merge(int run) {
    const int pairs = (N + 2 * run - 1) / (2 * run) * run;
    __syncthreads();
    for (int t = lane_; t < pairs; t += TL) {
      const int start = t / run * (2 * run), at = t % run;
      exchange(start + at, start + 2 * run - 1 - at);
    }
    for (int far = run / 2; far >= PIECE; far /= 2) {
      __syncthreads();
      for (int t = lane_; t < pairs; t += TL) exchange(t / far * (2 * far) + t % far, t / far * (2 * far) + t % far + far);
    }
    __syncthreads();
    for (int piece = warp_; piece < PIECES; piece += WARPS) {
      load(piece * PIECE);
      merge_piece();
      store(piece * PIECE);
    }
  }
  // The least of all sorted pieces into the first: of two pieces the lesser half goes on.
  ST_METHOD_ void select() {
    for (int step = 1; step < PIECES; step *= 2) {
      __syncthreads();
      for (int piece = 2 * step * warp_; piece + step < PIECES; piece += 2 * step * WARPS) {
        load(piece * PIECE);
        low_ = lesser(low_, (piece + step + 1) * PIECE - 1 - here_);
        high_ = lesser(high_, (piece + step + 1) * PIECE - 1 - W - here_);
        merge_piece();
        store(piece * PIECE);
      }
    }
  }
  ST_METHOD_ T lesser(const T& own, int place) const {
    if (!active_ || place >= N) return own;
    const T other = C::get(arrays_, base_ + place);
    return C::before(other, own) ? other : own;
  }

  const typename C::Arrays& arrays_;
  const int base_, lane_, here_, warp_;
  const bool active_;
  int start_ = 0;
  T low_{}, high_{};
};

}  // namespace st

#else  // a host compiler

#define ST_SORT(C, n, first, ...)                                                                        \
  {                                                                                                      \
    static_assert(LANES_, "a row's places are neighbours");                                              \
    const st::Arena::Mark mark_(arena_);                                                                 \
    C::T *const from_ = arena_.take<C::T>(n), *const to_ = arena_.take<C::T>(n);                         \
    const C::Arrays arrays_{__VA_ARGS__};                                                                \
    for (int r_ = 0; r_ < active_; ++r_) st::sort_row<C, n, first>(arrays_, r_ * (n), from_, to_);       \
  }

namespace st {

constexpr int kSortedAtOnce = 8;  // places that are put in order by insertion

// By merging, each run cut off after the places that are wanted; no branch depends on how two elements compare.
template <class C, int N, int FIRST> ST_FN void sort_row(const typename C::Arrays& arrays, int base, typename C::T* from, typename C::T* to) {
  using T = typename C::T;
  for (int start = 0; start < N; start += kSortedAtOnce) {
    const int end = N - start < kSortedAtOnce ? N : start + kSortedAtOnce;
    for (int i = start; i < end; ++i) {
      const T value = C::get(arrays, base + i);
      int at = i;
      for (; at > start && C::before(value, from[at - 1]); --at) from[at] = from[at - 1];
      from[at] = value;
    }
  }
  for (int run = kSortedAtOnce; run < N; run *= 2) {
    const int most = run < FIRST ? run : FIRST, both = 2 * run < FIRST ? 2 * run : FIRST;
    for (int start = 0; start < N; start += 2 * run) {
      const int right = start + run < N ? N - (start + run) : 0;
      const T *a = from + start, *b = a + run;
      const T *const a_end = a + (right ? most : (N - start < most ? N - start : most)), *const b_end = b + (right < most ? right : most);
      T *out = to + start, *const end = out + both;
      while (a < a_end && b < b_end && out < end) {
        const bool second = C::before(*b, *a);
        *out++ = *(second ? b : a);
        b += second, a += !second;
      }
      while (a < a_end && out < end) *out++ = *a++;
      while (b < b_end && out < end) *out++ = *b++;
    }
    T* const other = from;
    from = to, to = other;
  }
  constexpr int wanted = FIRST < N ? FIRST : N;
  for (int i = 0; i < wanted; ++i) C::put(arrays, base + i, from[i]);
}

}  // namespace st

#endif
