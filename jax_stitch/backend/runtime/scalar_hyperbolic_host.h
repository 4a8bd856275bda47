// Hyperbolic functions, their inverses, and the inverses of sine and cosine on a CPU, of float: made of those of
// scalar_math_host.h, without branches, within about 4 units in the last place. Double goes to libm.
#pragma once
#include "scalar_math_host.h"

namespace st {

ST_FN float sinh(float x) {
  const float a = detail::magnitude(x), e = expm1(a), half = exp(0.5f * a);
  const float y = a < 88.0f ? 0.5f * (e + e / (1.0f + e)) : (0.5f * half) * half;
  return x != x || a < 0x1p-13f ? x : copysign(y, x);
}

ST_FN float cosh(float x) {
  const float a = detail::magnitude(x), e = exp(a), half = exp(0.5f * a);
  return a < 88.0f ? 0.5f * (e + 1.0f / e) : (0.5f * half) * half;
}

ST_FN float asin(float x) { return detail::magnitude(x) < 0x1p-13f ? x : atan2(x, sqrt((1.0f - x) * (1.0f + x))); }
ST_FN float acos(float x) { return atan2(sqrt((1.0f - x) * (1.0f + x)), x); }

ST_FN float asinh(float x) {
  const float a = detail::magnitude(x), z = a * a;
  const float y = log1p(a + z / (1.0f + sqrt(z + 1.0f)));
  const float far = log(a) + 0x1.62e43p-1f;  // where the square is too large, or might be
  return x != x || a < 0x1p-13f ? x : copysign(a < 0x1p30f ? y : far, x);
}

ST_FN float acosh(float x) {
  const float t = x - 1.0f;
  const float y = log1p(t + sqrt(t * t + 2.0f * t));
  const float finite = x < 0x1p30f ? y : log(x) + 0x1.62e43p-1f;
  return x < 1.0f ? bits_float(detail::quiet_nan) : finite;
}

ST_FN float atanh(float x) {
  const float a = detail::magnitude(x), y = 0.5f * log1p((a + a) / (1.0f - a));
  return x != x || a < 0x1p-13f ? x : copysign(y, x);
}

}  // namespace st
