// Values from other lanes: of the warp through its shuffle network, of the block through shared memory.
#pragma once
#include "scalar.h"

namespace st {

// A value of up to a few words, and these.
template <class T> union Words {
  static constexpr int count = (sizeof(T) + sizeof(int) - 1) / sizeof(int);
  T value;
  int word[count];
  __device__ Words() {}
};

// Any value, each of whose words `shuffle` takes from another lane.
template <class T, class F> ST_FN T by_words(T value, F shuffle) {
  Words<T> u;
  u.value = value;
  _Pragma("unroll") for (int i = 0; i < u.count; ++i) u.word[i] = shuffle(u.word[i]);
  return u.value;
}

template <class T> ST_FN T shuffle_xor(T value, int mask) {
  return by_words(value, [=](int word) { return __shfl_xor_sync(0xffffffffu, word, mask); });
}

template <class T> ST_FN T shuffle_from(T value, int lane) {
  return by_words(value, [=](int word) { return __shfl_sync(0xffffffffu, word, lane); });
}

// Value `at` of `all` in shared memory. The words of a structure lie `all` words apart: side by side, the same word of
// each value would be in a half of the banks, or in fewer.
template <class T> constexpr bool apart = __is_class(T) && sizeof(T) % sizeof(int) == 0;

template <class T> ST_FN void put(char* shared, int all, int at, T value) {
  if constexpr (apart<T>) {
    Words<T> u;
    u.value = value;
    _Pragma("unroll") for (int i = 0; i < u.count; ++i) reinterpret_cast<int*>(shared)[i * all + at] = u.word[i];
  } else {
    reinterpret_cast<T*>(shared)[at] = value;
  }
}

template <class T> ST_FN T get(const char* shared, int all, int at) {
  if constexpr (!apart<T>) return reinterpret_cast<const T*>(shared)[at];
  Words<T> u;
  _Pragma("unroll") for (int i = 0; i < u.count; ++i) u.word[i] = reinterpret_cast<const int*>(shared)[i * all + at];
  return u.value;
}

// The values of the TL lanes of each row combined, in an order that does not depend on timing; every lane gets the result.
template <class C, bool LANES, int TR, int TL>
ST_FN typename C::T reduce_lanes(typename C::T value, char* shared, int r, int lane) {
  using T = typename C::T;
  if constexpr (TL == 1) return value;
  if constexpr (!LANES) {
    const int all = TR * TL, own = lane * TR + r;
    put(shared, all, own, value);
    _Pragma("unroll") for (int left = TL; left > 1; left = (left + 1) / 2) {
      const int far = (left + 1) / 2 * TR;
      __syncthreads();
      if (lane < left / 2) put(shared, all, own, C::combine(get<T>(shared, all, own), get<T>(shared, all, own + far)));
    }
    __syncthreads();
    const T total = get<T>(shared, all, r);
    __syncthreads();
    return total;
  }
  T* const scratch = reinterpret_cast<T*>(shared);
  _Pragma("unroll") for (int mask = 1; mask < (TL < 32 ? TL : 32); mask *= 2) {
    const T other = shuffle_xor(value, mask);
    value = lane & mask ? C::combine(other, value) : C::combine(value, other);
  }
  if constexpr (TL <= 32) return value;
  constexpr int warps = TL > 32 ? TL / 32 : 1;
  if (lane % 32 == 0) scratch[r * warps + lane / 32] = value;
  __syncthreads();
  T total = scratch[r * warps];
  _Pragma("unroll") for (int w = 1; w < warps; ++w) total = C::combine(total, scratch[r * warps + w]);
  __syncthreads();
  return total;
}

// The same of each of the V neighbouring rows that a thread has, the first of them `r`, between the same barriers.
template <class C, bool LANES, int TR, int TL, int V>
ST_FN void reduce_rows(typename C::T (&result)[V], const typename C::T (&value)[V], char* shared, int r, int lane) {
  using T = typename C::T;
  if constexpr (V == 1 || TL == 1) {
    _Pragma("unroll") for (int w = 0; w < V; ++w) result[w] = reduce_lanes<C, LANES, TR, TL>(value[w], shared, r + w, lane);
  } else {
    static_assert(!LANES, "neighbouring rows are neighbours in memory");
    // The first rows of all threads, then the second ones ...: neighbouring threads are in neighbouring banks.
    constexpr int all = TR * TL, threads = all / V, apart = TR / V;
    const int first = r / V, own = lane * apart + first;
    _Pragma("unroll") for (int w = 0; w < V; ++w) put(shared, all, w * threads + own, value[w]);
    _Pragma("unroll") for (int left = TL; left > 1; left = (left + 1) / 2) {
      const int far = (left + 1) / 2 * apart;
      __syncthreads();
      if (lane < left / 2) {
        _Pragma("unroll") for (int at = own; at < all; at += threads)
          put(shared, all, at, C::combine(get<T>(shared, all, at), get<T>(shared, all, at + far)));
      }
    }
    __syncthreads();
    _Pragma("unroll") for (int w = 0; w < V; ++w) result[w] = get<T>(shared, all, w * threads + first);
    __syncthreads();
  }
}

// The values of the rows that a thread has, combined.
template <class C, int V> ST_FN typename C::T of_rows(const typename C::T (&value)[V]) {
  typename C::T total = value[0];
  _Pragma("unroll") for (int w = 1; w < V; ++w) total = C::combine(total, value[w]);
  return total;
}

template <int V> ST_FN bool any(const bool (&flag)[V]) {
  bool found = flag[0];
  _Pragma("unroll") for (int w = 1; w < V; ++w) found |= flag[w];
  return found;
}

}  // namespace st
