// Vectors of V neighbouring places that a lane has at a time, read and written by accesses of up to 16 bytes; lanes fastest.
//
//   ST_EACH_VECTOR(j, n, V) { ... } ST_END_VECTOR             each vector, `j` its first place; n is a multiple of V
//   ST_LOAD_VECTOR(T, name, buffer, at, V)                    what stands in the buffer from index `at` on, ST_OF_VECTOR(name, element) at a place
//   ST_VECTOR(T, name, V), ST_STORE_VECTOR(name, buffer, at)  the same for what is written
//   ST_EACH_OF_VECTOR(j, n, V) { ... } ST_END_OF_VECTOR       each place of a vector
//
// A host compiler makes vectors itself: there, places are taken one by one from the buffers.
#pragma once

#ifdef __CUDACC__

#define ST_EACH_VECTOR(j, n, V)                               \
  for (int g_ = 0; g_ < ((n) + TL_ * (V) - 1) / (TL_ * (V)); ++g_) { \
    const index j = (index(g_) * TL_ + lane_) * (V);          \
    if ((n) % (TL_ * (V)) == 0 || j < (n)) {
#define ST_EACH_VECTOR_UNROLLED(j, n, V) _Pragma("unroll") ST_EACH_VECTOR(j, n, V)
#define ST_END_VECTOR }}
// `p_`, where a thread keeps what it alone reads, is its own place and not the row's: neighbours in a warp are neighbours in memory.
#define ST_EACH_OF_VECTOR(j, n, V)                            \
  _Pragma("unroll") for (int v_ = 0; v_ < (V); ++v_) {        \
    const int k_ = g_ * (V) + v_;                             \
    const index first_ = j, p_ = r_ * index(n) + index(k_) * TB_ + (CL_ > 1 ? int(threadIdx.x) : lane_); \
    (void)p_;                                                 \
    {                                                         \
      const index j = first_ + v_;                            \
      (void)j;
#define ST_END_OF_VECTOR }}
#define ST_VECTOR(T, name, V) st::Vector<T, V> name;
#define ST_LOAD_VECTOR(T, name, buffer, at, V) \
  const st::Vector<T, V> name = *reinterpret_cast<const st::Vector<T, V>*>((buffer) + (at));
#define ST_OF_VECTOR(name, element) name.of[v_]
#define ST_STORE_VECTOR(T, name, buffer, at, V) *reinterpret_cast<st::Vector<T, V>*>((buffer) + (at)) = name;

namespace st {

template <class T, int V> struct alignas(sizeof(T) * V) Vector {
  T of[V];
};

}  // namespace st

#else

#define ST_EACH_VECTOR(j, n, V)
#define ST_EACH_VECTOR_UNROLLED(j, n, V)
#define ST_END_VECTOR
#define ST_EACH_OF_VECTOR(j, n, V) ST_EACH_PLACE(j, n)
#define ST_END_OF_VECTOR ST_END_PLACE
#define ST_VECTOR(T, name, V)
#define ST_LOAD_VECTOR(T, name, buffer, at, V)
#define ST_OF_VECTOR(name, element) element
#define ST_STORE_VECTOR(T, name, buffer, at, V)

#endif
