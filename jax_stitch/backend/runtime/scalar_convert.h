// HLO's `convert` between any two element types: floats to integers saturate (NaN becomes 0), integers truncate,
// pred is x != 0.
#pragma once
#include "scalar_types.h"
#include "scalar_float.h"

namespace st {

// Double to float, rounded to odd: a second rounding to fewer bits then gives what one rounding would have.
ST_FN float narrow_to_odd(double x) {
  const float y = float(x);
  const uint32_t u = float_bits(y);
  const bool exact = double(y) == x || x != x, away = abs(double(y)) > abs(x);
  return bits_float(exact ? u : (u - away) | 1);
}

template <class To, class From> ST_FN To float_to_integer(From x) {
  // The bounds are powers of two (less one for `high`, which rounds up to one where From cannot hold it).
  constexpr From low = From(integer_min<To>), high = From(integer_max<To>);
  constexpr From inside = sizeof(From) <= sizeof(To) ? high * (1 - From(is_same<From, float> ? 0x1p-24 : 0x1p-53)) : high;
  const From y = x > low ? x : low;
  const To whole = To(y < inside ? y : inside);
  return x != x ? To(0) : x >= high ? integer_max<To> : whole;
}

template <class To, class From> ST_FN To convert(From x) {
  if constexpr (is_same<To, From>) {
    return x;
  } else if constexpr (is_half<From>) {
    return convert<To>(load(x));
  } else if constexpr (is_same<From, bool> && !is_integer<To>) {
    return store<To>(x ? 1 : 0);  // GCC vectorises a selection, but no conversion of a bool to a float
  } else if constexpr (is_same<To, bool> && is_float<From>) {
    return is_nonzero(x);
  } else if constexpr (is_same<To, bool>) {
    return x != From(0);
  } else if constexpr (is_same<To, f16> && is_same<From, double>) {
    return store<f16>(narrow_to_odd(x));
  } else if constexpr (is_half<To>) {
    return store<To>(float(x));
  } else if constexpr (is_integer<To> && is_float<From>) {
    return float_to_integer<To>(x);
  } else {
    return To(x);
  }
}

}  // namespace st
