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
//
// And whole rows, of a multiple of 16 bytes, that a block has copied to shared memory before it goes through them:
//
//   ST_FETCH_ROWS ST_EACH_ROW { ST_FETCH_ROW(T, name, n, buffer, at) ... } ST_FETCHED
//                                                             n elements from index `at` of the buffer on, to the row's piece of array `name`
//
// From sm_90 on one thread of each row starts bulk copies and all threads wait for them; before that the row's lanes copy it.
#pragma once

#ifdef __CUDACC__

#define ST_EACH_VECTOR(j, n, V)                               \
  for (int g_ = 0; g_ < ((n) + TL_ * (V) - 1) / (TL_ * (V)); ++g_) \
    if (const index j = (index(g_) * TL_ + lane_) * (V); (n) % (TL_ * (V)) == 0 || (g_ + 1) * TL_ * (V) <= (n) || j < (n))
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
#define ST_FETCH_ROWS const bool has_row_ = ST_HAS_ROW_; st::Fetch fetch_(rows_ - row0_ < TR_ ? int(rows_ - row0_) : TR_);
#define ST_FETCH_ROW(T, name, n, buffer, at) \
  fetch_.template row<(n) * sizeof(T), TL_>(name + r_ * index(n), (buffer) + (at), lane_);
#define ST_FETCHED fetch_.wait(has_row_ && lane_ == 0);

namespace st {

template <class T, int V> struct alignas(sizeof(T) * V) Vector {
  T of[V];
};

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// The copies of a block's rows. They count their bytes in an mbarrier, which is complete when each row's first lane has arrived and all bytes are there.
class Fetch {
 public:
  // All threads have to come: what was in the rows' place may still be read.
  __device__ __forceinline__ explicit Fetch(int rows) : done_(counter()) {
    __syncthreads();
    if (threadIdx.x == 0) asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(done_), "r"(rows) : "memory");
    __syncthreads();
  }
  template <int BYTES, int TL> __device__ __forceinline__ void row(void* to, const void* from, int lane) {
    static_assert(BYTES % 16 == 0, "bulk copies are of multiples of 16 bytes");
    if (lane != 0) return;
    // What threads have read and written there, the counter too, comes before what the copies write.
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(done_), "n"(BYTES) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared_address(to)),
                 "l"(__cvta_generic_to_global(from)), "n"(BYTES), "r"(done_)
                 : "memory");
  }
  // Until all rows are there; `arrives` in one thread of each.
  __device__ __forceinline__ void wait(bool arrives) {
    if (arrives) asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(done_) : "memory");
    uint32_t there = 0;
    while (!there)
      asm volatile("{\n\t.reg .pred p;\n\tmbarrier.try_wait.parity.acquire.cta.shared::cta.b64 p, [%1], 0;\n\tselp.u32 %0, 1, 0, p;\n\t}"
                   : "=r"(there)
                   : "r"(done_)
                   : "memory");
    __syncthreads();
    if (threadIdx.x == 0) asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(done_) : "memory");
  }

 private:
  static __device__ __forceinline__ uint32_t shared_address(const void* place) { return uint32_t(__cvta_generic_to_shared(place)); }
  static __device__ __forceinline__ uint32_t counter() {
    __shared__ uint64_t found;
    return shared_address(&found);
  }
  const uint32_t done_;
};

#else

class Fetch {
 public:
  __device__ __forceinline__ explicit Fetch(int) { __syncthreads(); }
  template <int BYTES, int TL> __device__ __forceinline__ void row(void* to, const void* from, int lane) {
    using Piece = Vector<uint32_t, 4>;
    static_assert(BYTES % sizeof(Piece) == 0, "rows are copied 16 bytes at a time");
    // Not the lane that will read it: the checking mode finds what does not wait.
    for (int k = TL - 1 - lane; k < BYTES / int(sizeof(Piece)); k += TL) static_cast<Piece*>(to)[k] = static_cast<const Piece*>(from)[k];
  }
  __device__ __forceinline__ void wait(bool) { __syncthreads(); }
};

#endif

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
#define ST_FETCH_ROWS
#define ST_FETCH_ROW(T, name, n, buffer, at) __builtin_memcpy(name + r_ * index(n), (buffer) + (at), (n) * sizeof(T));
#define ST_FETCHED

#endif
