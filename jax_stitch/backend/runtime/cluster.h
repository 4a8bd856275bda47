// Clusters: CL blocks that take each row together (compute capability 9.0 and later). The threads of all of them are the row's TL lanes; each block
// keeps what its own lanes make, and results of reductions go from block to block through distributed shared memory.
//
//   ST_SPLIT_CLUSTER(rows, TL, CL, at, bytes)            in place of ST_SPLIT_LANES(rows, rows, 1, TL): blocks hand each other values of up to
//                                                        `bytes` bytes in shared memory from `at` on, where there is room for 2 * CL of them
//   ST_REDUCE_CLUSTER(...)                               in place of ST_REDUCE
//
// On the host a thread of the CPU plays all lanes of a row, those of several blocks as those of one.
#pragma once

#ifdef __CUDACC__

#define ST_SPLIT_CLUSTER(ROWS, TL, CL, AT, BYTES)                                                      \
  ST_SPLIT_(ROWS, ROWS, 1, TL, CL, 1, true, int(blockIdx.x % (CL)) * ((TL) / (CL)) + int(threadIdx.x), 0)       \
  st::Exchange<CL_, TB_, BYTES> exchange_(shared + (AT));
#define ST_REDUCE_CLUSTER(C, name, acc) name[0] = exchange_.template reduce<C>(acc[0], shared);

namespace st {

#ifndef ST_HAS_CLUSTERS  // the checking mode has its own

// All threads of the cluster meet; what they have written before, in any block's shared memory, all see afterwards.
ST_FN void cluster_barrier() {
  asm volatile("barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// What is at the same place of shared memory in block `rank` of the cluster.
template <class T> ST_FN T* of_peer(T* own, unsigned rank) {
  uint64_t found;
  asm("mapa.u64 %0, %1, %2;" : "=l"(found) : "l"(reinterpret_cast<uint64_t>(own)), "r"(rank));
  return reinterpret_cast<T*>(found);
}

#endif

// Where the CL blocks of a cluster, of TB threads each, hand each other values of up to BYTES bytes. There are two sets of places, used in turn: who
// writes to one again has met all others since they read it.
template <int CL, int TB, int BYTES> class Exchange {
 public:
  // A block that has not begun has no shared memory yet: all meet first.
  __device__ __forceinline__ explicit Exchange(char* places) : places_(places), turn_(0) { cluster_barrier(); }

  // The values of all threads of the cluster combined, in an order that does not depend on timing; every thread gets the result. A block writes to the
  // others and reads its own: none is needed by another once it has come past the last barrier, and may end.
  template <class C> __device__ __forceinline__ typename C::T reduce(typename C::T value, char* scratch) {
    using T = typename C::T;
    static_assert(sizeof(T) <= BYTES, "a value is larger than its place");
    const T own = reduce_lanes<C, true, 1, TB>(value, scratch, 0, threadIdx.x);
    T* const found = reinterpret_cast<T*>(places_ + turn_ * (CL * BYTES));
    turn_ ^= 1;
    if (threadIdx.x < CL) *of_peer(found + blockIdx.x % CL, threadIdx.x) = own;
    cluster_barrier();
    T total = found[0];
    _Pragma("unroll") for (int k = 1; k < CL; ++k) total = C::combine(total, found[k]);
    return total;
  }

 private:
  char* const places_;
  int turn_;
};

}  // namespace st

#else

#define ST_SPLIT_CLUSTER(ROWS, TL, CL, AT, BYTES) ST_SPLIT_(ROWS, ROWS, 1, TL, CL, true)
#define ST_REDUCE_CLUSTER ST_REDUCE

#endif
