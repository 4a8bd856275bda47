// Powers and logarithms to the base 2 on a CPU. Those of float are made of what scalar_math_host.h has for e, without a
// division and exact where the result is a whole number. Double goes to libm.
#pragma once
#include "scalar_math_host.h"

namespace st {

ST_ONE_BY_ONE double exp2(double x) { return __builtin_exp2(x); }
namespace detail {
ST_ONE_BY_ONE double log2(double x) { return __builtin_log2(x); }
}  // namespace detail

ST_FN float exp2(float x) {
  if (__builtin_expect(detail::magnitude(x) > 160.0f, 0)) return detail::infinity_or_zero(x);
  const float shifted = x + detail::to_integer<254>;
  return detail::exp_of({float_bits(shifted), (x - (shifted - detail::to_integer<254>)) * 0x1.62e43p-1f});
}

// As log(double): libm looks at its argument by its bits, and then calculates with zeros.
ST_FN double log2(double x) {
  const uint64_t u = double_bits(x), magnitude = (u << 1) >> 1;
  const bool subnormal = magnitude - 1 < (uint64_t(1) << 52) - 1;
  const double y = detail::log2(subnormal ? double(int64_t(magnitude)) : x);
  return !subnormal ? y : u == magnitude ? y - 1074.0 : bits_double(uint64_t(0x7ff8) << 48);
}

ST_FN float log2(float x) {
  const bool subnormal = x < 0x1p-126f;
  const uint32_t u = float_bits(subnormal ? x * 0x1p23f : x) - detail::sqrt_half;
  const float n = float((int32_t(u) >> 23) - (subnormal ? 23 : 0));
  const float f = bits_float((u & 0x007fffffu) + detail::sqrt_half) - 1.0f;
  float y = detail::multiply_add(detail::log_polynomial(f, 0.0f, 0.0f), 0x1.715476p0f, n);
  y = x > 0.0f ? y : bits_float(x == 0.0f ? 0xff800000u : detail::quiet_nan);
  return x < bits_float(detail::infinity) ? y : x + x;
}

}  // namespace st
