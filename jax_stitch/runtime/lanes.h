// Values from other lanes of the warp, through its shuffle network.
#pragma once
#include "scalar.h"

namespace st {

// Any value of up to a few words, each of which `shuffle` takes from another lane.
template <class T, class F> ST_FN T by_words(T value, F shuffle) {
  constexpr int words = (sizeof(T) + 3) / 4;
  union Words {
    T value;
    int word[words];
    __device__ Words() {}
  } u;
  u.value = value;
  _Pragma("unroll") for (int i = 0; i < words; ++i) u.word[i] = shuffle(u.word[i]);
  return u.value;
}

template <class T> ST_FN T shuffle_xor(T value, int mask) {
  return by_words(value, [=](int word) { return __shfl_xor_sync(0xffffffffu, word, mask); });
}

template <class T> ST_FN T shuffle_from(T value, int lane) {
  return by_words(value, [=](int word) { return __shfl_sync(0xffffffffu, word, lane); });
}

}  // namespace st
