// Matrix products inside loops in teams: what a block of rows and neighbouring columns sums up.
//
//   ST_PRODUCT(T, V, K, (lefts), LS, right, RS, (sums))
//   ST_PRODUCT_FROM_ZERO(T, V, K, (lefts), LS, right, RS, (sums))   the first of a sum, an ST_TILE_EMPTY: it need not be zero before
//
// adds left[q * LS] * right[v + q * RS] for q below K to the sum of each row, at each of the V places `v` of a chunk (team.h). `lefts` are where the
// rows start and `sums` the ST_TILE values of the rows, as ST_SUM(name); `j` in them is the chunk's first place.
//
// On the host the sums stay in registers through all steps, which no compiler does for a loop of the lanes inside one of the steps: blocks of so
// many rows and vectors that one load serves many multiplications (Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication", 2008).
#pragma once

#define ST_LIST_(...) {__VA_ARGS__}

#ifdef __CUDACC__

#define ST_SUM(name) &name
#define ST_PRODUCT(T, V, K, LEFTS, LS, RIGHT, RS, SUMS)                                             \
  {                                                                                                 \
    const T* const lefts_[] = ST_LIST_ LEFTS;                                                       \
    T* const sums_[] = ST_LIST_ SUMS;                                                               \
    const T* const right_ = RIGHT;                                                                  \
    ST_STEPS(K) {                                                                                   \
      _Pragma("unroll") for (int r_ = 0; r_ < int(sizeof lefts_ / sizeof lefts_[0]); ++r_)          \
        *sums_[r_] = st::fused(lefts_[r_][q * (LS)], right_[q * (RS)], *sums_[r_]);                 \
    }                                                                                               \
  }
#define ST_PRODUCT_FROM_ZERO ST_PRODUCT

#else

#define ST_SUM(name) name
#define ST_PRODUCT(T, V, K, LEFTS, LS, RIGHT, RS, SUMS) ST_PRODUCT_(false, T, V, K, LEFTS, LS, RIGHT, RS, SUMS)
#define ST_PRODUCT_FROM_ZERO(T, V, K, LEFTS, LS, RIGHT, RS, SUMS) ST_PRODUCT_(true, T, V, K, LEFTS, LS, RIGHT, RS, SUMS)
#define ST_PRODUCT_(ZERO, T, V, K, LEFTS, LS, RIGHT, RS, SUMS)           \
  {                                                                      \
    const index j = j0_;                                                 \
    (void)j;                                                             \
    const T* const lefts_[] = ST_LIST_ LEFTS;                            \
    T* const sums_[] = ST_LIST_ SUMS;                                    \
    st::product<V, ZERO>(lefts_, LS, RIGHT, RS, sums_, K, m_);           \
  }

namespace st {
namespace detail {

#if defined(__AVX512F__)
constexpr int vector_bytes = 64, block_vectors = 24;
#elif defined(__AVX__)
#ifdef __FMA__
constexpr int vector_bytes = 32, block_vectors = 12;
#else
constexpr int vector_bytes = 32, block_vectors = 8;
#endif
#elif defined(__aarch64__)
constexpr int vector_bytes = 16, block_vectors = 24;
#else
constexpr int vector_bytes = 16, block_vectors = 8;  // A product is a register by itself.
#endif
// Enough sums side by side to hide what one addition takes.
constexpr int most_vectors = 16;

template <class T, int BYTES, bool ALONE = BYTES == sizeof(T)> struct Vector { typedef T type __attribute__((vector_size(BYTES))); };
template <class T, int BYTES> struct Vector<T, BYTES, true> { typedef T type; };  // GCC keeps vectors of one number in memory.

// The first `lanes` of a vector, where the processor loads and stores some of one: a narrow product is one vector, not one of each width.
#if defined(__AVX512F__)
#define ST_PARTS_ 1
ST_FN Vector<float, 64>::type load_part(const float* from, int lanes) {
  return __builtin_ia32_loadups512_mask(from, Vector<float, 64>::type{}, (unsigned short)((1u << lanes) - 1u));
}
ST_FN Vector<double, 64>::type load_part(const double* from, int lanes) {
  return __builtin_ia32_loadupd512_mask(from, Vector<double, 64>::type{}, (unsigned char)((1u << lanes) - 1u));
}
ST_FN void store_part(float* to, Vector<float, 64>::type value, int lanes) {
  __builtin_ia32_storeups512_mask(to, value, (unsigned short)((1u << lanes) - 1u));
}
ST_FN void store_part(double* to, Vector<double, 64>::type value, int lanes) {
  __builtin_ia32_storeupd512_mask(to, value, (unsigned char)((1u << lanes) - 1u));
}
#elif defined(__AVX__)
#define ST_PARTS_ 1
typedef int Mask __attribute__((vector_size(32)));
typedef long long Mask64 __attribute__((vector_size(32)));
ST_FN Mask mask_of(int lanes) { return (Mask{0, 1, 2, 3, 4, 5, 6, 7} < Mask{} + lanes); }
ST_FN Mask64 mask64_of(int lanes) { return (Mask64{0, 1, 2, 3} < Mask64{} + lanes); }
ST_FN Vector<float, 32>::type load_part(const float* from, int lanes) {
  return __builtin_ia32_maskloadps256((const Vector<float, 32>::type*)from, mask_of(lanes));
}
ST_FN Vector<double, 32>::type load_part(const double* from, int lanes) {
  return __builtin_ia32_maskloadpd256((const Vector<double, 32>::type*)from, mask64_of(lanes));
}
ST_FN void store_part(float* to, Vector<float, 32>::type value, int lanes) {
  __builtin_ia32_maskstoreps256((Vector<float, 32>::type*)to, mask_of(lanes), value);
}
ST_FN void store_part(double* to, Vector<double, 32>::type value, int lanes) {
  __builtin_ia32_maskstorepd256((Vector<double, 32>::type*)to, mask64_of(lanes), value);
}
#else
#define ST_PARTS_ 0
#endif

template <class T, int BYTES> ST_FN typename Vector<T, BYTES>::type load_vector(const T* from, bool part, int lanes) {
  typename Vector<T, BYTES>::type value;
#if ST_PARTS_
  if constexpr (BYTES == vector_bytes) {
    if (part) return load_part(from, lanes);
  }
#endif
  (void)part, (void)lanes;
  __builtin_memcpy(&value, from, BYTES);
  return value;
}

template <class T, int BYTES> ST_FN void store_vector(T* to, typename Vector<T, BYTES>::type value, bool part, int lanes) {
#if ST_PARTS_
  if constexpr (BYTES == vector_bytes) {
    if (part) return store_part(to, value, lanes);
  }
#endif
  (void)part, (void)lanes;
  __builtin_memcpy(to, &value, BYTES);
}

// Kernels are compiled without contraction; a product's steps are one rounding each where the processor has that (`fused`).
#if defined(__clang__)
#define ST_CONTRACTED_ __attribute__((noinline))
#define ST_CONTRACT_ _Pragma("clang fp contract(fast)")
#else
#define ST_CONTRACTED_ __attribute__((noinline, optimize("fp-contract=fast", "no-tree-vectorize")))
#define ST_CONTRACT_
#endif
#define ST_UNROLLED_ _Pragma("GCC unroll 32")

// ROWS rows by N vectors of so many bytes, the last of which has but `lanes` places if it is a PART; sums that start at ZERO are not read.
template <class T, int BYTES, int ROWS, int N, bool PART, bool ZERO>
ST_CONTRACTED_ void product_block(const T* const* lefts, int64_t left_step, const T* right, int64_t right_step, T* const* sums, int64_t first, int64_t steps, int lanes) {
  ST_CONTRACT_
  typedef typename Vector<T, BYTES>::type Many;
  constexpr int W = BYTES / int(sizeof(T));
  Many total[ROWS][N];
  const T* left[ROWS];
  ST_UNROLLED_ for (int r = 0; r < ROWS; ++r) {
    left[r] = lefts[r];
    ST_UNROLLED_ for (int n = 0; n < N; ++n) {
      total[r][n] = ZERO ? Many{} : load_vector<T, BYTES>(sums[r] + first + n * W, PART && n == N - 1, lanes);
    }
  }
  right += first;
  _Pragma("GCC unroll 1") for (int64_t q = 0, at = 0; q < steps; ++q, at += left_step, right += right_step) {
    // What is fewer waits in registers: a row's number in all lanes, or a column's vectors.
    if constexpr (ROWS < N) {
      Many a[ROWS];
      ST_UNROLLED_ for (int r = 0; r < ROWS; ++r) a[r] = left[r][at] - Many{};
      ST_UNROLLED_ for (int n = 0; n < N; ++n) {
        const Many b = load_vector<T, BYTES>(right + n * W, PART && n == N - 1, lanes);
        ST_UNROLLED_ for (int r = 0; r < ROWS; ++r) total[r][n] = a[r] * b + total[r][n];
      }
    } else {
      Many b[N];
      ST_UNROLLED_ for (int n = 0; n < N; ++n) b[n] = load_vector<T, BYTES>(right + n * W, PART && n == N - 1, lanes);
      ST_UNROLLED_ for (int r = 0; r < ROWS; ++r) {
        const Many a = left[r][at] - Many{};
        ST_UNROLLED_ for (int n = 0; n < N; ++n) total[r][n] = a * b[n] + total[r][n];
      }
    }
  }
  ST_UNROLLED_ for (int r = 0; r < ROWS; ++r) {
    ST_UNROLLED_ for (int n = 0; n < N; ++n) store_vector<T, BYTES>(sums[r] + first + n * W, total[r][n], PART && n == N - 1, lanes);
  }
}

// COUNT places from `first` on: blocks of vectors as equal as can be, whose last is part of one; where the processor has no such, shorter vectors
// and then numbers.
template <class T, int BYTES, int COUNT, int ROWS, bool ZERO>
ST_FN void product_places(const T* const* lefts, int64_t left_step, const T* right, int64_t right_step, T* const* sums, int64_t first, int64_t steps) {
  constexpr int W = BYTES / int(sizeof(T)), rest = COUNT % W;
  constexpr bool part = ST_PARTS_ && BYTES == vector_bytes && rest > 0;
  constexpr int N = COUNT / W + part;
  if constexpr (N > 0) {
    constexpr int room = block_vectors / ROWS > most_vectors ? most_vectors : block_vectors / ROWS > 0 ? block_vectors / ROWS : 1;
    constexpr int blocks = (N + room - 1) / room, each = (N + blocks - 1) / blocks, narrow = blocks * each - N, wide = blocks - narrow;
    for (int k = 0; k < wide - (part && narrow == 0); ++k, first += each * W) {
      product_block<T, BYTES, ROWS, each, false, ZERO>(lefts, left_step, right, right_step, sums, first, steps, W);
    }
    if constexpr (narrow > 0) {
      for (int k = 0; k < narrow - part; ++k, first += (each - 1) * W) {
        product_block<T, BYTES, ROWS, each - 1, false, ZERO>(lefts, left_step, right, right_step, sums, first, steps, W);
      }
    }
    if constexpr (part) product_block<T, BYTES, ROWS, (narrow > 0) ? each - 1 : each, true, ZERO>(lefts, left_step, right, right_step, sums, first, steps, rest);
  }
  if constexpr (!part && rest > 0) product_places<T, BYTES / 2, rest, ROWS, ZERO>(lefts, left_step, right, right_step, sums, first, steps);
}

}  // namespace detail

// The first `count` of a chunk's V places.
template <int V, bool ZERO, int ROWS, class T>
ST_FN void product(const T* const (&lefts)[ROWS], int64_t left_step, const T* right, int64_t right_step, T* const (&sums)[ROWS], int64_t steps, int count) {
  if (count == V) return detail::product_places<T, detail::vector_bytes, V, ROWS, ZERO>(lefts, left_step, right, right_step, sums, 0, steps);
  constexpr int W = detail::vector_bytes / int(sizeof(T));
  int first = 0;
  for (; first + W <= count; first += W) {
    detail::product_places<T, detail::vector_bytes, W, ROWS, ZERO>(lefts, left_step, right, right_step, sums, first, steps);
  }
#if ST_PARTS_
  if (first < count) detail::product_block<T, detail::vector_bytes, ROWS, 1, true, ZERO>(lefts, left_step, right, right_step, sums, first, steps, count - first);
#else
  for (; first < count; ++first) detail::product_places<T, int(sizeof(T)), 1, ROWS, ZERO>(lefts, left_step, right, right_step, sums, first, steps);
#endif
}

}  // namespace st

#endif
