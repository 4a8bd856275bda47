// Vectors of V neighbouring places that a lane has at a time, read and written by accesses of up to 16 bytes; with rows fastest too where they lie between each other's places.
//
//   ST_EACH_VECTOR(j, n, V) { ... }                           each vector, `j` its first place; n is a multiple of V
//   ST_LOAD_VECTOR(T, name, buffer, at, V)                    what stands in the buffer from index `at` on, ST_OF_VECTOR(name, element) at a place
//   ST_VECTOR(T, name, V), ST_STORE_VECTOR(name, buffer, at)  the same for what is written
//   ST_EACH_OF_VECTOR(j, n, V) { ... };                       each place of a vector
//
// With rows fastest (ST_SPLIT_ROW_VECTORS), vectors of V neighbouring rows, inside ST_EACH_ROW, whose `row` is the first:
//
//   ST_EACH_OF_ROWS { ... }                                   each of them; ST_EACH_OF_ROWS_AT_PLACE in passes, where threads keep values
//   ST_OF_ROWS(name, element)                                 the row's element of a vector loaded or to be stored, as above
//
// A host compiler makes vectors itself: there, places are taken one by one from the buffers.
#pragma once

#ifdef __CUDACC__

#define ST_EACH_VECTOR(j, n, V)                               \
  for (int g_ = 0; g_ < ((n) + TL_ * (V) - 1) / (TL_ * (V)); ++g_) \
    if (const index j = (index(g_) * TL_ + lane_) * (V); (n) % (TL_ * (V)) == 0 || j < (n))
#define ST_EACH_VECTOR_UNROLLED(j, n, V) _Pragma("unroll") ST_EACH_VECTOR(j, n, V)
// `p_`, where a thread keeps what it alone reads, is its own place and not the row's: neighbours in a warp are neighbours in memory.
#define ST_EACH_OF_VECTOR(j, n, V)                            \
  _Pragma("unroll") for (int v_ = 0; v_ < (V); ++v_)          \
    ST_WITH_(int k_ = g_ * (V) + v_)                          \
      ST_WITH_(index first_ = j, p_ = r_ * index(n) + index(k_) * TB_ + (CL_ > 1 ? int(threadIdx.x) : lane_)) \
        ST_WITH_(index j = first_ + v_)
#define ST_VECTOR(T, name, V) st::Vector<T, V> name;
#define ST_LOAD_VECTOR(T, name, buffer, at, V) \
  const st::Vector<T, V> name = *reinterpret_cast<const st::Vector<T, V>*>((buffer) + (at));
#define ST_OF_VECTOR(name, element) name.of[v_]
#define ST_STORE_VECTOR(T, name, buffer, at, V) *reinterpret_cast<st::Vector<T, V>*>((buffer) + (at)) = name;
#define ST_EACH_OF_ROWS                                       \
  _Pragma("unroll") for (int w_ = 0; w_ < RV_; ++w_)          \
    ST_WITH_(index first_ = row) ST_WITH_(int own_ = r_)      \
      ST_WITH_(index row = first_ + w_) ST_WITH_(int r_ = own_ + w_)
// Neighbouring threads are neighbours in what they keep at a place of their first row, as at one of their second.
#define ST_EACH_OF_ROWS_AT_PLACE(j, n)                        \
  _Pragma("unroll") for (int w_ = 0; w_ < RV_; ++w_)          \
    ST_WITH_(index first_ = row) ST_WITH_(int own_ = r_)      \
      ST_WITH_(index row = first_ + w_, p_ = (w_ * index(n) + j) * (TR_ / RV_) + own_ / RV_) ST_WITH_(int r_ = own_ + w_)
// A pass that asks for a few places' vectors before it needs the first.
#define ST_EACH_PLACE_OUTSIDE_AHEAD(j, n) _Pragma("unroll 4") ST_EACH_PLACE(j, n)
#define ST_OF_ROWS(name, element) name.of[w_]

namespace st {

template <class T, int V> struct alignas(sizeof(T) * V) Vector {
  T of[V];
};

}  // namespace st

#else

#define ST_EACH_VECTOR(j, n, V)
#define ST_EACH_VECTOR_UNROLLED(j, n, V)
#define ST_EACH_OF_VECTOR(j, n, V)                                                    \
  st::places<index, 0, (n), TL_, LANES_ ? 0 : TR_>(r_, [&](const index j) ST_INLINE { \
    return LANES_ ? r_ * index(n) + j : j * TR_ + r_;                                 \
  }) << ST_AT_(j)
#define ST_VECTOR(T, name, V)
#define ST_LOAD_VECTOR(T, name, buffer, at, V)
#define ST_OF_VECTOR(name, element) element
#define ST_STORE_VECTOR(T, name, buffer, at, V)
#define ST_EACH_OF_ROWS
#define ST_EACH_OF_ROWS_AT_PLACE(j, n)
#define ST_EACH_PLACE_OUTSIDE_AHEAD ST_EACH_PLACE_OUTSIDE
#define ST_OF_ROWS(name, element) element

#endif
