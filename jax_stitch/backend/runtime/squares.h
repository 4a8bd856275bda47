// Values that lie across the way a host goes: next to each other along runs, apart along lanes, as what is transposed.
//
//   ST_EACH_SQUARE(R, L) {                       R x L places (team.h) in squares
//     ST_ACROSS(T, name, from, stride)           the square's elements: `from` of its first place, and so far apart along lanes
//     ST_PLACES_OF_SQUARE { ... ST_ACROSS_AT(name) ... }   each place `run`, `j`
//   }
//
// A square has 64 bytes of floats each way: all of a line that is loaded is read before it leaves the first cache. Its lines
// are loaded as vectors and turned in registers: interleaved within 16 bytes, and then blocks of 16 bytes exchanged.
#pragma once

#ifdef __CUDACC__

#define ST_EACH_SQUARE(R, L) ST_EACH_ITEM(R, L)
#define ST_PLACES_OF_SQUARE
#define ST_ACROSS(T, name, FROM, STRIDE) const T name = *(FROM);
#define ST_ACROSS_AT(name) name

#else

#define ST_EACH_SQUARE(R, L)                                         \
  ST_LED_ for (index run0_ = 0; run0_ < (R); run0_ += 16)            \
    for (index j0_ = 0; j0_ < (L); j0_ += 16)                        \
      ST_WITH_(index end_of_runs_ = (R) - run0_ < 16 ? (R) : run0_ + 16) \
        ST_WITH_(index end_ = (L) - j0_ < 16 ? (L) : j0_ + 16)
#define ST_PLACES_OF_SQUARE                                          \
  for (index run = run0_; run < end_of_runs_; ++run)                 \
    ST_SIMD for (index j = j0_; j < end_; ++j)
// `run` and `j` in FROM are the first place's.
#define ST_ACROSS(T, name, FROM, STRIDE)                             \
  alignas(64) T name[256];                                           \
  {                                                                  \
    const index run = run0_, j = j0_;                                \
    (void)run, (void)j;                                              \
    st::across(name, FROM, STRIDE, int(end_of_runs_ - run0_), int(end_ - j0_)); \
  }
#define ST_ACROSS_AT(name) name[(run - run0_) * 16 + (j - j0_)]

#ifdef __has_builtin
#if __has_builtin(__builtin_shufflevector)
#define ST_TURNS_ 1
#endif
#endif

namespace st {
namespace detail {

#ifdef ST_TURNS_

template <int... L> struct Lanes {};
template <int N, int... L> struct LanesBelow { typedef typename LanesBelow<N - 1, N - 1, L...>::type type; };
template <int... L> struct LanesBelow<0, L...> { typedef Lanes<L...> type; };

// The first or second halves of each 16 bytes of two vectors of W numbers, interleaved by GROUP of them; E numbers are 16 bytes.
constexpr int interleaved(int l, int w, int e, int group, bool second) {
  const int within = l % e / group, from = within / 2 + (second ? e / group / 2 : 0);
  return within % 2 * w + l / e * e + from * group + l % group;
}
template <int E, int GROUP, bool SECOND, class V, int... L> ST_FN V interleave(V a, V b, Lanes<L...>) {
  return __builtin_shufflevector(a, b, interleaved(L, int(sizeof...(L)), E, GROUP, SECOND)...);
}

// Of two vectors the blocks of H numbers whose number is even, or odd, in turn.
constexpr int exchanged(int l, int w, int h, bool second) {
  return l & h ? w + l - (second ? 0 : h) : l + (second ? h : 0);
}
template <int H, bool SECOND, class V, int... L> ST_FN V exchange(V a, V b, Lanes<L...>) {
  return __builtin_shufflevector(a, b, exchanged(L, int(sizeof...(L)), H, SECOND)...);
}

template <int W, int H, class V> ST_FN void exchange_blocks(V (&v)[W]) {
  if constexpr (H < W) {
    typedef typename LanesBelow<W>::type All;
    ST_UNROLLED_ for (int i = 0; i < W; ++i) {
      if (i & H) continue;
      const V a = v[i], b = v[i + H];
      v[i] = exchange<H, false>(a, b, All{});
      v[i + H] = exchange<H, true>(a, b, All{});
    }
    exchange_blocks<W, 2 * H>(v);
  }
}

// W x W numbers whose lines are `stride` apart, to lines of 16, rows as columns.
template <class T, int BYTES> ST_FN void turn(T* to, const T* from, int64_t stride) {
  constexpr int W = BYTES / int(sizeof(T)), E = 16 / int(sizeof(T));
  typedef T V __attribute__((vector_size(BYTES)));
  typedef typename LanesBelow<W>::type All;
  V v[W];
  ST_UNROLLED_ for (int i = 0; i < W; ++i) __builtin_memcpy(&v[i], from + i * stride, BYTES);
  ST_UNROLLED_ for (int i = 0; i < W; i += E) {
    if constexpr (E == 2) {
      const V a = v[i], b = v[i + 1];
      v[i] = interleave<E, 1, false>(a, b, All{}), v[i + 1] = interleave<E, 1, true>(a, b, All{});
    } else {
      const V a = interleave<E, 1, false>(v[i], v[i + 1], All{}), b = interleave<E, 1, true>(v[i], v[i + 1], All{});
      const V c = interleave<E, 1, false>(v[i + 2], v[i + 3], All{}), d = interleave<E, 1, true>(v[i + 2], v[i + 3], All{});
      v[i] = interleave<E, 2, false>(a, c, All{}), v[i + 1] = interleave<E, 2, true>(a, c, All{});
      v[i + 2] = interleave<E, 2, false>(b, d, All{}), v[i + 3] = interleave<E, 2, true>(b, d, All{});
    }
  }
  exchange_blocks<W, E>(v);
  ST_UNROLLED_ for (int i = 0; i < W; ++i) __builtin_memcpy(to + i * 16, &v[i], BYTES);
}

#endif

}  // namespace detail

// square[r * 16 + l] = from[l * stride + r], for r below `runs` and l below `lanes`.
template <class T> static __attribute__((noinline)) void across(T* square, const T* from, int64_t stride, int runs, int lanes) {
#ifdef ST_TURNS_
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "what is turned as it lies in memory");
  constexpr int W = detail::vector_bytes / int(sizeof(T));
  if (runs == 16 && lanes == 16) {
    for (int l = 0; l < 16; l += W) {
      for (int r = 0; r < 16; r += W) detail::turn<T, detail::vector_bytes>(square + r * 16 + l, from + l * stride + r, stride);
    }
    return;
  }
#endif
  for (int r = 0; r < runs; ++r) {
    for (int l = 0; l < lanes; ++l) square[r * 16 + l] = from[l * stride + r];
  }
}

}  // namespace st

#endif
