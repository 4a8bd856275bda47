// Operations with one definition for every type and both targets, on top of the target's elementary functions.
#pragma once
#include "scalar_types.h"
#include "scalar_integer.h"

namespace st {

ST_FN float abs(float x) { return bits_float(float_bits(x) & 0x7fffffffu); }
ST_FN double abs(double x) { return bits_double(double_bits(x) & ~(uint64_t(1) << 63)); }
template <class T> ST_FN T abs(T x) {
  if constexpr (is_signed<T>) {
    return x < 0 ? negate(x) : x;
  } else {
    return x;
  }
}

ST_FN bool is_finite(float x) { return abs(x) < bits_float(0x7f800000u); }
ST_FN bool is_finite(double x) { return abs(x) < bits_double(uint64_t(0x7ff) << 52); }

// -1, 0 or 1 in x's type; of a float zero or NaN, itself.
template <class T> ST_FN T sign(T x) {
  if constexpr (is_float<T>) {
    return x > 0 ? T(1) : x < 0 ? T(-1) : x;
  } else if constexpr (is_signed<T>) {
    return T((x > 0) - (x < 0));
  } else {
    return T(x != 0);
  }
}

template <class T> ST_FN T round_half_away(T x) {
  const T whole = trunc(x);
  return abs(x - whole) >= T(0.5) ? whole + copysign(T(1), x) : whole;
}

// The extrema of floats propagate NaN, as HLO's do and C's do not. (Two selections in a row: GCC vectorises those,
// but not every chain of selections by a disjunction.)
template <class T> ST_FN T maximum(T a, same<T> b) {
  if constexpr (is_same<T, bool>) {
    return a | b;
  } else if constexpr (is_float<T>) {
#if defined(__CUDACC__) && __CUDA_ARCH__ >= 800
    if constexpr (is_same<T, float>) {
      float y;
      asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
      return y;
    }
#endif
    const T larger = a > b ? a : b;
    return a != a ? a : larger;
  } else {
    return a > b ? a : b;
  }
}

template <class T> ST_FN T minimum(T a, same<T> b) {
  if constexpr (is_same<T, bool>) {
    return a & b;
  } else if constexpr (is_float<T>) {
#if defined(__CUDACC__) && __CUDA_ARCH__ >= 800
    if constexpr (is_same<T, float>) {
      float y;
      asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
      return y;
    }
#endif
    const T smaller = a < b ? a : b;
    return a != a ? a : smaller;
  } else {
    return a < b ? a : b;
  }
}

template <class T> ST_FN T clamp(same<T> low, T x, same<T> high) { return minimum(maximum(x, low), high); }

template <class T> ST_FN T remainder(T a, same<T> b) {
  if constexpr (is_float<T>) {
    return float_remainder(a, b);
  } else {
    return integer_remainder(a, b);
  }
}

template <class T> ST_FN T power(T a, same<T> b) {
  if constexpr (is_float<T>) {
    return float_power(a, b);
  } else {
    return integer_power(a, b);
  }
}

// 1 / (1 + exp(-x)) without overflow on the way, so that the far left tail is not lost.
template <class T> ST_FN T logistic(T x) {
  const T e = exp(-abs(x));
  return (x >= 0 || x != x ? T(1) : e) / (T(1) + e);
}

// A signed integer that orders floats totally: -NaN < -inf < ... < -0 < +0 < ... < inf < NaN (comparisons of type
// TOTALORDER).
ST_FN int32_t total_order(float x) {
  const auto i = bitcast<int32_t>(x);
  return i < 0 ? i ^ 0x7fffffff : i;
}
ST_FN int64_t total_order(double x) {
  const auto i = bitcast<int64_t>(x);
  return i < 0 ? int64_t(uint64_t(i) ^ (~uint64_t(0) >> 1)) : i;
}

// x rounded to a float of EXPONENT and MANTISSA bits; what is too large becomes infinite, what is too small zero.
template <int EXPONENT, int MANTISSA> ST_FN float reduce_precision(float x) {
  constexpr int dropped = 23 - MANTISSA;
  const uint32_t u = float_bits(x), sign = u & 0x80000000u;
  uint32_t a = u & 0x7fffffffu;
  if constexpr (dropped > 0) {
    a = (a + ((1u << (dropped > 0 ? dropped - 1 : 0)) - 1) + ((a >> dropped) & 1)) & ~((1u << dropped) - 1);
  }
  if constexpr (EXPONENT < 8) {
    constexpr uint32_t bias = (1u << (EXPONENT - 1)) - 1;
    a = (a >> 23) > 127 + bias ? 0x7f800000u : a;
    a = (a >> 23) <= 127 - bias ? 0u : a;
  }
  return x != x ? x : bits_float(sign | a);
}
template <int EXPONENT, int MANTISSA> ST_FN double reduce_precision(double x) {
  constexpr int dropped = 52 - MANTISSA;
  const uint64_t u = double_bits(x), sign = u & (uint64_t(1) << 63);
  uint64_t a = u ^ sign;
  if constexpr (dropped > 0) {
    a = (a + ((uint64_t(1) << (dropped > 0 ? dropped - 1 : 0)) - 1) + ((a >> dropped) & 1)) &
        ~((uint64_t(1) << dropped) - 1);
  }
  if constexpr (EXPONENT < 11) {
    constexpr uint64_t bias = (uint64_t(1) << (EXPONENT - 1)) - 1;
    a = (a >> 52) > 1023 + bias ? uint64_t(0x7ff) << 52 : a;
    a = (a >> 52) <= 1023 - bias ? 0u : a;
  }
  return x != x ? x : bits_double(sign | a);
}

}  // namespace st
