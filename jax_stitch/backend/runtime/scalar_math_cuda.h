// Elementary functions on a GPU: CUDA's accurate ones (no fast-math variants).
#pragma once
#include "scalar_types.h"

namespace st {

#define ST_UNARY(NAME, FLOAT, DOUBLE)               \
  ST_FN float NAME(float x) { return ::FLOAT(x); } \
  ST_FN double NAME(double x) { return ::DOUBLE(x); }
ST_UNARY(exp, expf, exp)
ST_UNARY(exp2, exp2f, exp2)
ST_UNARY(expm1, expm1f, expm1)
ST_UNARY(log, logf, log)
ST_UNARY(log1p, log1pf, log1p)
ST_UNARY(log2, log2f, log2)
ST_UNARY(tanh, tanhf, tanh)
ST_UNARY(sqrt, sqrtf, sqrt)
ST_UNARY(rsqrt, rsqrtf, rsqrt)
ST_UNARY(cbrt, cbrtf, cbrt)
ST_UNARY(sin, sinf, sin)
ST_UNARY(cos, cosf, cos)
ST_UNARY(tan, tanf, tan)
ST_UNARY(sinh, sinhf, sinh)
ST_UNARY(cosh, coshf, cosh)
ST_UNARY(asin, asinf, asin)
ST_UNARY(acos, acosf, acos)
ST_UNARY(asinh, asinhf, asinh)
ST_UNARY(acosh, acoshf, acosh)
ST_UNARY(atanh, atanhf, atanh)
ST_UNARY(erf, erff, erf)
ST_UNARY(floor, floorf, floor)
ST_UNARY(ceil, ceilf, ceil)
ST_UNARY(trunc, truncf, trunc)
ST_UNARY(round_half_even, rintf, rint)
#undef ST_UNARY

#define ST_BINARY(NAME, FLOAT, DOUBLE)                          \
  ST_FN float NAME(float x, float y) { return ::FLOAT(x, y); } \
  ST_FN double NAME(double x, double y) { return ::DOUBLE(x, y); }
ST_BINARY(float_power, powf, pow)
ST_BINARY(float_remainder, fmodf, fmod)
ST_BINARY(atan2, atan2f, atan2)
ST_BINARY(copysign, copysignf, copysign)
#undef ST_BINARY

}  // namespace st
