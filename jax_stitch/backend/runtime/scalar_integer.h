// Integer and pred arithmetic as HLO defines it: wrap-around, total division, total shifts. None of it is C++
// undefined behaviour.
#pragma once
#include "scalar_types.h"

namespace st {

// ---- add, subtract, multiply, negate: pred is the two-element semiring (or, xor, and); floats are plain

template <class T> ST_FN T add(T a, same<T> b) {
  if constexpr (is_same<T, bool>) {
    return a | b;
  } else if constexpr (is_float<T>) {
    return a + b;
  } else {
    return T(modular<T>(a) + modular<T>(b));
  }
}

template <class T> ST_FN T subtract(T a, same<T> b) {
  if constexpr (is_same<T, bool>) {
    return a != b;
  } else if constexpr (is_float<T>) {
    return a - b;
  } else {
    return T(modular<T>(a) - modular<T>(b));
  }
}

template <class T> ST_FN T multiply(T a, same<T> b) {
  if constexpr (is_same<T, bool>) {
    return a & b;
  } else if constexpr (is_float<T>) {
    return a * b;
  } else {
    return T(modular<T>(a) * modular<T>(b));
  }
}

template <class T> ST_FN T negate(T a) {
  if constexpr (is_float<T> || is_same<T, bool>) {
    return -a;
  } else {
    return T(modular<T>(0) - modular<T>(a));
  }
}

// ---- division: by zero gives all ones, and the dividend as remainder; the smallest value by -1 gives itself, and 0

template <class T> ST_FN T divide(T a, same<T> b) {
  if constexpr (is_float<T>) {
    return a / b;
  } else {
    const bool overflow = is_signed<T> && b == T(-1);
    const T safe = b == 0 || overflow ? T(1) : b;
    return b == 0 ? T(-1) : overflow ? negate(a) : T(a / safe);
  }
}

template <class T> ST_FN T integer_remainder(T a, T b) {
  const bool overflow = is_signed<T> && b == T(-1);
  const T safe = b == 0 || overflow ? T(1) : b;
  return b == 0 ? a : T(a % safe);
}

// ---- the upper half of a product of twice the width

template <class T> ST_FN T mulhi(T a, same<T> b) {
  if constexpr (sizeof(T) < 8) {
    using Wide = typename choose<is_signed<T>, int64_t, uint64_t>::type;
    return T((Wide(a) * Wide(b)) >> width<T>);
  } else {
#ifdef __CUDACC__
    return is_signed<T> ? T(__mul64hi(int64_t(a), int64_t(b))) : T(__umul64hi(uint64_t(a), uint64_t(b)));
#else
    using Wide = typename choose<is_signed<T>, __int128, unsigned __int128>::type;
    return T((Wide(a) * Wide(b)) >> width<T>);
#endif
  }
}

// ---- bitwise

template <class T> ST_FN T bitwise_and(T a, same<T> b) { return T(a & b); }
template <class T> ST_FN T bitwise_or(T a, same<T> b) { return T(a | b); }
template <class T> ST_FN T bitwise_xor(T a, same<T> b) { return T(a ^ b); }
template <class T> ST_FN T bitwise_not(T a) {
  if constexpr (is_same<T, bool>) {
    return !a;
  } else {
    return T(~a);
  }
}

// ---- shifts: an amount of the width or more, or a negative one, shifts everything out

template <class T> ST_FN T shift_left(T a, same<T> by) {
  const auto n = unsigned_of<T>(by);
  return n < width<T> ? T(modular<T>(a) << (n & (width<T> - 1))) : T(0);
}

template <class T> ST_FN T shift_right_logical(T a, same<T> by) {
  const auto n = unsigned_of<T>(by);
  return n < width<T> ? T(unsigned_of<T>(a) >> (n & (width<T> - 1))) : T(0);
}

template <class T> ST_FN T shift_right_arithmetic(T a, same<T> by) {
  using Signed = typename choose<
      sizeof(T) == 1, int8_t,
      typename choose<sizeof(T) == 2, int16_t, typename choose<sizeof(T) == 4, int32_t, int64_t>::type>::type>::type;
  const auto n = unsigned_of<T>(by);
  return T(Signed(a) >> (n < width<T> ? n : unsigned_of<T>(width<T> - 1)));
}

template <class T> ST_FN T popcnt(T a) {
#ifdef __CUDACC__
  return T(sizeof(T) == 8 ? __popcll(uint64_t(unsigned_of<T>(a))) : __popc(uint32_t(unsigned_of<T>(a))));
#else
  // Not __builtin_popcountll: of vectors of constants, GCC 12 with AVX-512 takes that for the identity.
  uint64_t bits = unsigned_of<T>(a);
  bits -= (bits >> 1) & 0x5555555555555555u;
  bits = (bits & 0x3333333333333333u) + ((bits >> 2) & 0x3333333333333333u);
  bits = (bits + (bits >> 4)) & 0x0f0f0f0f0f0f0f0fu;
  bits += bits >> 8;
  bits += bits >> 16;
  bits += bits >> 32;
  return T(bits & 127);
#endif
}

template <class T> ST_FN T count_leading_zeros(T a) {
  const uint64_t u = unsigned_of<T>(a);
#ifdef __CUDACC__
  return T(__clzll(int64_t(u)) - (64 - width<T>));
#else
  return u == 0 ? T(width<T>) : T(__builtin_clzll(u) - (64 - width<T>));
#endif
}

// ---- integer power: a negative exponent gives the integer part of the reciprocal

template <class T> ST_FN T integer_power(T base, T exponent) {
  modular<T> result = 1, square = modular<T>(base);
  for (auto n = unsigned_of<T>(exponent); n != 0; n >>= 1) {
    result *= n & 1 ? square : modular<T>(1);
    square *= square;
  }
  if constexpr (is_signed<T>) {
    if (exponent < 0) return base == T(1) ? T(1) : base == T(-1) ? (exponent & 1 ? T(-1) : T(1)) : T(0);
  }
  return T(result);
}

}  // namespace st
