// Matrix products inside loops in teams: what a block of rows and neighbouring columns sums up.
//
//   ST_PRODUCT(T, V, K, (lefts), LS, right, RS, (sums))
//   ST_PRODUCT_FROM_ZERO(T, V, K, (lefts), LS, right, RS, (sums))   the first of a sum, an ST_TILE_EMPTY: it need not be zero before
//   ST_PRODUCT_APART(T, V, K, left, LS, (rights), RS, (sums)), and the same _FROM_ZERO: of one row by several, of which each has a sum
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
#define ST_PRODUCT_APART(T, V, K, LEFT, LS, RIGHTS, RS, SUMS)                                       \
  {                                                                                                 \
    const T* const left_ = LEFT;                                                                    \
    const T* const rights_[] = ST_LIST_ RIGHTS;                                                     \
    T* const sums_[] = ST_LIST_ SUMS;                                                               \
    ST_STEPS(K) {                                                                                   \
      _Pragma("unroll") for (int r_ = 0; r_ < int(sizeof rights_ / sizeof rights_[0]); ++r_)        \
        *sums_[r_] = st::fused(left_[q * (LS)], rights_[r_][q * (RS)], *sums_[r_]);                 \
    }                                                                                               \
  }
#define ST_PRODUCT_APART_FROM_ZERO ST_PRODUCT_APART

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

#define ST_PRODUCT_APART(T, V, K, LEFT, LS, RIGHTS, RS, SUMS) ST_PRODUCT_APART_(false, T, V, K, LEFT, LS, RIGHTS, RS, SUMS)
#define ST_PRODUCT_APART_FROM_ZERO(T, V, K, LEFT, LS, RIGHTS, RS, SUMS) ST_PRODUCT_APART_(true, T, V, K, LEFT, LS, RIGHTS, RS, SUMS)
#define ST_PRODUCT_APART_(ZERO, T, V, K, LEFT, LS, RIGHTS, RS, SUMS)     \
  {                                                                      \
    const index j = j0_;                                                 \
    (void)j;                                                             \
    const T* const rights_[] = ST_LIST_ RIGHTS;                          \
    T* const sums_[] = ST_LIST_ SUMS;                                    \
    st::product_apart<V, ZERO>(LEFT, LS, rights_, RS, sums_, K, m_);     \
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
constexpr int64_t rows_in_turn = 16;

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
// Has a value that several instructions want loaded once: tuned for some processors, GCC makes an operand in memory of it, loaded by each.
#if defined(__AVX512F__)
#define ST_LOADED_ONCE_(value) asm("" : "+v"(value))
#elif defined(__x86_64__)
#define ST_LOADED_ONCE_(value) asm("" : "+x"(value))
#elif defined(__aarch64__)
#define ST_LOADED_ONCE_(value) asm("" : "+w"(value))
#else
#define ST_LOADED_ONCE_(value)
#endif

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
  _Pragma("GCC unroll 2") for (int64_t q = 0, at = 0; q < steps; ++q, at += left_step, right += right_step) {
    // What is fewer waits in registers: a row's number in all lanes, or a column's vectors.
    if constexpr (ROWS < N) {
      Many a[ROWS];
      ST_UNROLLED_ for (int r = 0; r < ROWS; ++r) {
        a[r] = left[r][at] - Many{};
        ST_LOADED_ONCE_(a[r]);
      }
      ST_UNROLLED_ for (int n = 0; n < N; ++n) {
        Many b = load_vector<T, BYTES>(right + n * W, PART && n == N - 1, lanes);
        if constexpr (ROWS > 1) ST_LOADED_ONCE_(b);
        ST_UNROLLED_ for (int r = 0; r < ROWS; ++r) total[r][n] = a[r] * b + total[r][n];
      }
    } else {
      Many b[N];
      ST_UNROLLED_ for (int n = 0; n < N; ++n) {
        b[n] = load_vector<T, BYTES>(right + n * W, PART && n == N - 1, lanes);
        if constexpr (ROWS > 1) ST_LOADED_ONCE_(b[n]);
      }
      ST_UNROLLED_ for (int r = 0; r < ROWS; ++r) {
        Many a = left[r][at] - Many{};
        if constexpr (N > 1) ST_LOADED_ONCE_(a);
        ST_UNROLLED_ for (int n = 0; n < N; ++n) total[r][n] = a * b[n] + total[r][n];
      }
    }
  }
  ST_UNROLLED_ for (int r = 0; r < ROWS; ++r) {
    ST_UNROLLED_ for (int n = 0; n < N; ++n) store_vector<T, BYTES>(sums[r] + first + n * W, total[r][n], PART && n == N - 1, lanes);
  }
}

// N vectors of each of SUMS matrices, all multiplied by the same row.
template <class T, int BYTES, int SUMS, int N, bool PART, bool ZERO>
ST_CONTRACTED_ void apart_block(const T* left, int64_t left_step, const T* const* rights, int64_t right_step, T* const* sums, int64_t first, int64_t steps, int lanes) {
  ST_CONTRACT_
  typedef typename Vector<T, BYTES>::type Many;
  constexpr int W = BYTES / int(sizeof(T));
  Many total[SUMS][N];
  const T* right[SUMS];
  ST_UNROLLED_ for (int r = 0; r < SUMS; ++r) {
    right[r] = rights[r] + first;
    ST_UNROLLED_ for (int n = 0; n < N; ++n) {
      total[r][n] = ZERO ? Many{} : load_vector<T, BYTES>(sums[r] + first + n * W, PART && n == N - 1, lanes);
    }
  }
  _Pragma("GCC unroll 1") for (int64_t q = 0, at = 0; q < steps; ++q, at += right_step, left += left_step) {
    Many a = *left - Many{};
    ST_LOADED_ONCE_(a);
    ST_UNROLLED_ for (int r = 0; r < SUMS; ++r) {
      ST_UNROLLED_ for (int n = 0; n < N; ++n) {
        total[r][n] = a * load_vector<T, BYTES>(right[r] + at + n * W, PART && n == N - 1, lanes) + total[r][n];
      }
    }
  }
  ST_UNROLLED_ for (int r = 0; r < SUMS; ++r) {
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
  if (count == V) {
    if constexpr (ROWS == 1 && V * sizeof(T) > detail::most_vectors * detail::vector_bytes) {
      // Of one row each number of the matrix is read once: some of its rows at a time, whole, so that they are fetched ahead.
      for (int64_t q = 0; q < steps; q += detail::rows_in_turn) {
        const T* const from[] = {lefts[0] + q * left_step};
        const int64_t here = steps - q < detail::rows_in_turn ? steps - q : detail::rows_in_turn;
        if (ZERO && q == 0) detail::product_places<T, detail::vector_bytes, V, 1, true>(from, left_step, right, right_step, sums, 0, here);
        else detail::product_places<T, detail::vector_bytes, V, 1, false>(from, left_step, right + q * right_step, right_step, sums, 0, here);
      }
    } else {
      detail::product_places<T, detail::vector_bytes, V, ROWS, ZERO>(lefts, left_step, right, right_step, sums, 0, steps);
    }
    return;
  }
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

// The same of one row by several matrices.
template <int V, bool ZERO, int SUMS, class T>
ST_FN void product_apart(const T* left, int64_t left_step, const T* const (&rights)[SUMS], int64_t right_step, T* const (&sums)[SUMS], int64_t steps, int count) {
  constexpr int W = detail::vector_bytes / int(sizeof(T)), room = detail::block_vectors / SUMS > 4 ? 4 : detail::block_vectors / SUMS > 0 ? detail::block_vectors / SUMS : 1;
  int first = 0;
  for (; first + room * W <= count; first += room * W) {
    detail::apart_block<T, detail::vector_bytes, SUMS, room, false, ZERO>(left, left_step, rights, right_step, sums, first, steps, W);
  }
  for (; first + W <= count; first += W) {
    detail::apart_block<T, detail::vector_bytes, SUMS, 1, false, ZERO>(left, left_step, rights, right_step, sums, first, steps, W);
  }
#if ST_PARTS_
  if (first < count) detail::apart_block<T, detail::vector_bytes, SUMS, 1, true, ZERO>(left, left_step, rights, right_step, sums, first, steps, count - first);
#else
  for (; first < count; ++first) detail::apart_block<T, int(sizeof(T)), SUMS, 1, false, ZERO>(left, left_step, rights, right_step, sums, first, steps, 1);
#endif
}

}  // namespace st

#endif
