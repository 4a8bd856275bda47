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

// Whether a float is not zero, also of a subnormal to a thread that reads it as zero.
template <class T> ST_FN bool is_nonzero(T x) {
  if constexpr (is_same<T, float>) {
    return (float_bits(x) << 1) != 0u;
  } else {
    return (double_bits(x) << 1) != 0u;
  }
}

// -1, 0 or 1 in x's type; of a float zero or NaN, itself.
template <class T> ST_FN T sign(T x) {
  if constexpr (is_float<T>) {
    const T one = is_nonzero(x) ? copysign(T(1), x) : x;
    return x != x ? x : one;
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

// The bits that both have, and that either has: of a zero and another the sign alone is in question.
ST_FN float bits_of_both(float a, float b) { return bits_float(float_bits(a) & float_bits(b)); }
ST_FN double bits_of_both(double a, double b) { return bits_double(double_bits(a) & double_bits(b)); }
ST_FN float bits_of_either(float a, float b) { return bits_float(float_bits(a) | float_bits(b)); }
ST_FN double bits_of_either(double a, double b) { return bits_double(double_bits(a) | double_bits(b)); }

// The extrema of floats propagate NaN, and -0 is less than 0, as in HLO and not in C. (Selections in a row: GCC vectorises those,
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
    const T most = a == b ? bits_of_both(a, b) : larger;
    return a != a ? a : most;
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
    const T least = a == b ? bits_of_either(a, b) : smaller;
    return a != a ? a : least;
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

// Comparisons and extrema of what a bf16 may hold: exact also of subnormals, to a thread that reads them as zero.

#ifdef __CUDACC__
template <class T> ST_FN bool exact_equal(T a, same<T> b) { return a == b; }
template <class T> ST_FN bool exact_less(T a, same<T> b) { return a < b; }
template <class T> ST_FN bool exact_less_equal(T a, same<T> b) { return a <= b; }
template <class T> ST_FN T exact_maximum(T a, same<T> b) { return maximum(a, b); }
template <class T> ST_FN T exact_minimum(T a, same<T> b) { return minimum(a, b); }
#else
// A signed integer that orders the numbers; both zeros have 0.
ST_FN int32_t exact_order(float x) {
  const auto i = bitcast<int32_t>(x);
  return i < 0 ? integer_min<int32_t> - i : i;
}
ST_FN double exact_order(double x) { return x; }

// (By both orders, since NaN is less than nothing in one alone. Without short cuts, of which GCC makes branches.)
template <class T> ST_FN bool exact_equal(T a, same<T> b) { return (a == b) & (exact_order(a) == exact_order(b)); }
template <class T> ST_FN bool exact_less(T a, same<T> b) { return (a <= b) & (exact_order(a) < exact_order(b)); }
template <class T> ST_FN bool exact_less_equal(T a, same<T> b) { return (a <= b) & (exact_order(a) <= exact_order(b)); }

template <class T> ST_FN T exact_maximum(T a, same<T> b) {
  const T larger = total_order(a) > total_order(b) ? a : b;
  const T greatest = b != b ? b : larger;
  return a != a ? a : greatest;
}

template <class T> ST_FN T exact_minimum(T a, same<T> b) {
  const T smaller = total_order(a) < total_order(b) ? a : b;
  const T smallest = b != b ? b : smaller;
  return a != a ? a : smallest;
}
#endif

template <class T> ST_FN T exact_clamp(same<T> low, T x, same<T> high) {
  return exact_minimum(exact_maximum(x, low), high);
}

namespace detail {

// The bits of a float of OF_EXPONENT and OF_MANTISSA bits, rounded to one of EXPONENT and MANTISSA bits.
template <int EXPONENT, int MANTISSA, int OF_EXPONENT, int OF_MANTISSA, class U> ST_FN U reduce_bits(U u) {
  constexpr int dropped = OF_MANTISSA - MANTISSA;
  constexpr U one = 1, infinity = ((one << OF_EXPONENT) - 1) << OF_MANTISSA, sign = one << (OF_EXPONENT + OF_MANTISSA);
  U a = u & ~sign;
  if constexpr (dropped > 0) {
    a = (a + ((one << (dropped > 0 ? dropped - 1 : 0)) - 1) + ((a >> dropped) & 1)) & ~((one << dropped) - 1);
  }
  if constexpr (EXPONENT < OF_EXPONENT) {
    constexpr U bias = (one << (EXPONENT - 1)) - 1, of_bias = (one << (OF_EXPONENT - 1)) - 1;
    a = (a >> OF_MANTISSA) > of_bias + bias ? infinity : a;
    a = (a >> OF_MANTISSA) <= of_bias - bias ? U(0) : a;
  }
  return (u & ~sign) > infinity ? u : (u & sign) | a;
}

}  // namespace detail

// x rounded to a float of EXPONENT and MANTISSA bits; what is too large becomes infinite, what is too small zero. With
// as many bits of exponent as it has, or more, it keeps its subnormals.
template <int EXPONENT, int MANTISSA> ST_FN float reduce_precision(float x) {
  return bits_float(detail::reduce_bits<EXPONENT, MANTISSA, 8, 23>(float_bits(x)));
}
template <int EXPONENT, int MANTISSA> ST_FN double reduce_precision(double x) {
  return bits_double(detail::reduce_bits<EXPONENT, MANTISSA, 11, 52>(double_bits(x)));
}
template <int EXPONENT, int MANTISSA> ST_FN f16 reduce_precision(f16 x) {
  return f16(detail::reduce_bits<EXPONENT, MANTISSA, 5, 10>(uint32_t(x)));
}
template <int EXPONENT, int MANTISSA> ST_FN bf16 reduce_precision(bf16 x) {
  return bf16(detail::reduce_bits<EXPONENT, MANTISSA, 8, 7>(uint32_t(x)));
}

}  // namespace st
