// Elementary functions on a CPU. Those of float are branch-free, so that a loop that calls them vectorises; their
// polynomials are minimax fits of our own, their errors at most about 2 units in the last place. NaN, infinities and
// signed zeros come out right, so no -ffast-math is needed. XLA's threads read subnormals as zero and write zero for
// them, so where such a number is special (a power's exponent, an angle's coordinate) it is looked at by its bits. Of
// double, exponentials, logarithms and tanh are in scalar_double_host.h; the others go to libm, by the compiler's own
// names for it: <math.h> took most of the time that a small kernel took to compile.
#pragma once
#include "scalar_double_host.h"
#include "scalar_trig_table.h"
#include "scalar_types.h"

namespace st {

// What goes to libm does so one by one. GCC keeps a loop around it in vectors only where the function has a form that takes
// vectors: it makes those itself, of calls for each lane.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define ST_ONE_BY_ONE static __attribute__((simd("notinbranch"), noinline, const, unused))
#else
#define ST_ONE_BY_ONE ST_FN
#endif
#define ST_LIBM(NAME) \
  ST_ONE_BY_ONE double NAME(double x) { return __builtin_##NAME(x); }
#define ST_UNARY(NAME) \
  ST_FN double NAME(double x) { return __builtin_##NAME(x); }
ST_UNARY(sqrt)
ST_LIBM(cbrt)
ST_LIBM(sin)
ST_LIBM(cos)
ST_LIBM(tan)
ST_LIBM(sinh)
ST_LIBM(cosh)
ST_LIBM(asin)
ST_LIBM(acos)
ST_LIBM(asinh)
ST_LIBM(acosh)
ST_LIBM(atanh)
ST_LIBM(erf)
ST_UNARY(floor)
ST_UNARY(ceil)
ST_UNARY(trunc)
#undef ST_UNARY
#undef ST_LIBM
ST_FN double rsqrt(double x) { return 1.0 / __builtin_sqrt(x); }
ST_FN double round_half_even(double x) { return __builtin_rint(x); }
namespace detail {

// Whether an exponent that is known is plus or minus a half, or one and a half: then a root is all that a power takes.
ST_FN bool is_root(double y) { return y == 0.5 || y == 1.5 || y == -0.5 || y == -1.5; }

// Those powers of a magnitude.
ST_FN double root_power(double a, double y) {
  const double root = __builtin_sqrt(a);
  const double up = y == 0.5 || y == -0.5 ? 1.0 : a;
  return y > 0.0 ? up * root : 1.0 / up * (1.0 / root);
}

ST_ONE_BY_ONE double any_power(double x, double y) { return __builtin_pow(x, y); }

}  // namespace detail

ST_FN double float_power(double x, double y) {
  if (__builtin_constant_p(y) && detail::is_root(y)) {
    const uint64_t magnitude = (double_bits(x) << 1) >> 1;
    const bool normal = magnitude - (uint64_t(1) << 52) < (uint64_t(0x7ff) << 52) - (uint64_t(1) << 52);
    if (normal && x > 0.0) return detail::root_power(x, y);
    if (double_bits(x) != 0 && double_bits(x) < uint64_t(1) << 52) {  // Subnormal: so many times 2^-1074.
      const double root = __builtin_sqrt(double(int64_t(double_bits(x)))) * 0x1p-537;
      return y == 0.5 ? root : y == -0.5 ? 1.0 / root : y > 0.0 ? 0.0 : bits_double(uint64_t(0x7ff) << 52);
    }
    if (magnitude == uint64_t(0x7ff) << 52) return y > 0.0 ? __builtin_fabs(x) : 0.0;  // GCC has sqrt(-inf) for one of them.
  }
  return detail::any_power(x, y);
}
ST_ONE_BY_ONE double float_remainder(double x, double y) { return __builtin_fmod(x, y); }
ST_ONE_BY_ONE double atan2(double y, double x) { return __builtin_atan2(y, x); }
ST_FN double copysign(double x, double y) { return __builtin_copysign(x, y); }

ST_FN float sqrt(float x) { return __builtin_sqrtf(x); }
ST_FN float rsqrt(float x) { return 1.0f / __builtin_sqrtf(x); }
ST_FN float floor(float x) { return __builtin_floorf(x); }
ST_FN float ceil(float x) { return __builtin_ceilf(x); }
ST_FN float trunc(float x) { return __builtin_truncf(x); }
ST_FN float round_half_even(float x) { return __builtin_rintf(x); }
ST_FN float float_remainder(float x, float y) { return __builtin_fmodf(x, y); }
ST_FN float copysign(float x, float y) {
  return bits_float((float_bits(x) & 0x7fffffffu) | (float_bits(y) & 0x80000000u));
}

namespace detail {

constexpr uint32_t infinity = 0x7f800000u, quiet_nan = 0x7fc00000u;

ST_BOUND(float, plus_120, 120.0f)
ST_BOUND(float, minus_120, -120.0f)
ST_BOUND(float, plus_10, 10.0f)
ST_BOUND(float, plus_4, 4.0f)

// a * b + c, in one rounding where the processor has it. Kernels are compiled without contraction, so that each operation
// of HLO rounds by itself; inside these functions it only helps.
ST_FN float multiply_add(float a, float b, float c) {
#ifdef __FMA__
  return __builtin_fmaf(a, b, c);
#else
  return a * b + c;
#endif
}
ST_FN double multiply_add(double a, double b, double c) { return a * b + c; }

template <class T> ST_FN T horner(T, T c) { return c; }
template <class T, class... C> ST_FN T horner(T x, T c, C... more) { return multiply_add(x, horner(x, T(more)...), c); }

ST_FN float magnitude(float x) { return bits_float(float_bits(x) & 0x7fffffffu); }
// A magnitude below the normal numbers, and not zero: to a thread that flushes it compares as zero.
ST_FN bool is_subnormal(float a) { return float_bits(a) - 1u < 0x007fffffu; }
ST_FN float power_of_two(int32_t n) { return bits_float(uint32_t(n + 127) << 23); }

// x = n ln2 + r with |r| <= ln2 / 2, for |x| < 2^15. Adding 1.5 * 2^23 rounds to the nearest integer, which is then in the
// low bits; with BIAS added as well, a shift alone makes an exponent of it.
template <int BIAS> struct reduced_exp {
  uint32_t biased;  // n + BIAS in the low 9 bits
  float r;
};
template <int BIAS> constexpr float to_integer = 0x1.8p23f + BIAS;
template <int BIAS> ST_FN reduced_exp<BIAS> reduce_exp(float x) {
  const float shifted = multiply_add(x, 0x1.715476p0f, to_integer<BIAS>);
  const float n = shifted - to_integer<BIAS>;
  return {float_bits(shifted), multiply_add(n, -0x1.7f7d1cp-20f, multiply_add(n, -0x1.62e4p-1f, x))};
}

// e^r - 1 for |r| <= ln2 / 2, good to a bit of 1. In pairs, which wait less for each other: a loop of one row takes as long as its
// longest chain.
ST_FN float expm1_of(float r) {
  const float r2 = r * r;
  const float high = multiply_add(r, 0x1.a23edap-13f, 0x1.6d4d28p-10f), middle = multiply_add(r, 0x1.111006p-7f, 0x1.5554e8p-5f);
  const float p = multiply_add(r2, multiply_add(r2, high, middle), multiply_add(r, 0x1.555556p-3f, 0x1p-1f));
  return multiply_add(r2, p, r);
}

// 2^n e^r for |r| <= ln2 / 2, |n| <= 180 (two factors, so that a subnormal result is rounded once).
ST_FN float exp_of(reduced_exp<254> x) {
  const uint32_t half = (x.biased << 22) & 0x7f800000u;
  const float scale = bits_float(half);
  return multiply_add(scale, expm1_of(x.r), scale) * bits_float((x.biased << 23) - half);
}

// exp for |x| <= 120.
ST_FN float exp_in_range(float x) { return exp_of(reduce_exp<254>(x)); }

// Infinity of a positive x, zero of a negative one, by its sign bit: two instructions of vectors.
ST_FN float infinity_or_zero(float x) { return bits_float(infinity & ~uint32_t(int32_t(float_bits(x)) >> 31)); }

// log(1 + f) for 1 + f in [sqrt(1/2), sqrt(2)], plus n ln2, plus a small correction c.
ST_FN float log_polynomial(float f, float n, float c) {
  const float p = horner(f, 0x1.555548p-2f, -0x1.000006p-2f, 0x1.99a47ap-3f, -0x1.555c5p-3f, 0x1.233b36p-3f,
                         -0x1.fc25eep-4f, 0x1.e6c46ep-4f, -0x1.de175p-4f, 0x1.148332p-4f);
  const float f2 = f * f;
  const float tail = f2 * f * p + (n * 0x1.7f7d1cp-20f + c);
  return n * 0x1.62e4p-1f + (f + (tail - 0.5f * f2));
}

constexpr uint32_t sqrt_half = 0x3f3504f3u;

}  // namespace detail

ST_FN float exp(float x) {
  // Not of a limited x: what waits for the result would wait for the limits first.
  if (__builtin_expect(detail::magnitude(x) > 120.0f, 0)) return detail::infinity_or_zero(x);
  return detail::exp_in_range(x);
}

ST_FN float expm1(float x) {
  const float limited = detail::at_least(detail::at_most(x, detail::plus_120), detail::minus_120);
  const auto [biased, r] = detail::reduce_exp<0>(limited);
  const int32_t n = int32_t(biased) - int32_t(float_bits(detail::to_integer<0>));
  const float p = detail::horner(r, 0x1p-1f, 0x1.555556p-3f, 0x1.5554f4p-5f, 0x1.110ff6p-7f, 0x1.6d3f4p-10f, 0x1.a2623ep-13f);
  // 2^n (1 + r + r^2 p) - 1, halved so that 2^n does not overflow too early.
  const int32_t capped = n < 128 ? n : 128;
  const float scale = detail::power_of_two(capped > -100 ? capped - 1 : -101);
  const float y = 2.0f * (scale * (r + r * r * p) + (scale - 0.5f));
  const float finite = x > 0x1.62e43p6f ? bits_float(detail::infinity) : y;
  return detail::magnitude(x) < 0x1p-25f ? x : finite;
}

ST_FN float log(float x) {
  const bool subnormal = x < 0x1p-126f;
  const uint32_t u = float_bits(subnormal ? x * 0x1p23f : x) - detail::sqrt_half;
  const float n = float((int32_t(u) >> 23) - (subnormal ? 23 : 0));
  const float f = bits_float((u & 0x007fffffu) + detail::sqrt_half) - 1.0f;
  float y = detail::log_polynomial(f, n, 0.0f);
  y = x > 0.0f ? y : bits_float(x == 0.0f ? 0xff800000u : detail::quiet_nan);
  return x < bits_float(detail::infinity) ? y : x + x;
}

ST_FN float log1p(float x) {
  const float sum = 1.0f + x;
  const uint32_t u = float_bits(sum) - detail::sqrt_half;
  const int32_t n = int32_t(u) >> 23;
  // What the sum lost, relative to it; nothing to speak of once it is large.
  const float lost = x > 1.0f ? 1.0f - (sum - x) : x - (sum - 1.0f);
  const float c = n < 25 ? lost / sum : 0.0f;
  const float f = bits_float((u & 0x007fffffu) + detail::sqrt_half) - 1.0f;
  float y = detail::log_polynomial(n == 0 ? x : f, float(n), n == 0 ? 0.0f : c);
  y = x > -1.0f ? y : bits_float(x == -1.0f ? 0xff800000u : detail::quiet_nan);
  y = detail::magnitude(x) < 0x1p-25f ? x : y;
  return x < bits_float(detail::infinity) ? y : x + x;
}

ST_FN float tanh(float x) {
  const float a = detail::magnitude(x), z = x * x;
  const float p = detail::horner(z, -0x1.55553ep-2f, 0x1.1109aep-3f, -0x1.b898dep-5f, 0x1.54b8ap-6f, -0x1.825856p-8f);
  const float small = detail::multiply_add(a * z, p, a);
  // Beyond: what is taken from 1 is less than a half, so that its rounding hardly shows in the difference.
  const auto [biased, r] = detail::reduce_exp<127>(detail::at_most(a, detail::plus_10) * 2.0f);
  const float scale = bits_float(biased << 23), e = detail::multiply_add(scale, detail::expm1_of(r), scale);
  const float y = a < 0.6f ? small : 1.0f - 2.0f / (e + 1.0f);
  return a < 0x1p-20f ? x : copysign(y, x);
}

ST_FN float erf(float x) {
  const float a = detail::magnitude(x), z = x * x;
  const float p = detail::horner(z, 0x1.06eba8p-3f, -0x1.81274p-2f, 0x1.ce2d64p-4f, -0x1.b80124p-6f, 0x1.544b08p-8f,
                                 -0x1.a6181p-11f, 0x1.4fa924p-14f);
  const float t = detail::at_most(a, detail::plus_4);
  // log(erfc(t)); beyond 4 the result rounds to 1.
  const float q = detail::horner(t, 0x1.6e56b2p-13f, -0x1.2127e4p+0f, -0x1.44460cp-1f, -0x1.bb83d8p-4f, 0x1.9b8e22p-6f,
                                 -0x1.1159bcp-8f, 0x1.c78b62p-12f, -0x1.61defcp-16f);
  // Of a small one, made larger, so that the product is no subnormal.
  const bool tiny = a < 0x1p-60f;
  const float b = tiny ? a * 0x1p64f : a, linear = (b + b * p) * (tiny ? 0x1p-64f : 1.0f);
  return copysign(a < 0.94f ? linear : 1.0f - detail::exp_in_range(q), x);
}

// ---- trigonometry

namespace detail {

// x = quadrant pi/2 + r with |r| <= pi/4, for every finite x: x is an integer of 24 bits times a power of two, and
// the table has 2/pi times that power, less a multiple of 4, as a part of 29 bits (whose product with the integer is
// exact) and one of 53.
struct reduced_angle {
  int32_t quadrant;
  float r;
};
ST_FN reduced_angle reduce_angle(float x) {
  const uint32_t u = float_bits(x);
  const int32_t biased = int32_t((u >> 23) & 0xff), row = biased - two_over_pi_first;
  // As wide as what it indexes, or GCC gathers nothing before AVX-512.
  const int64_t last = two_over_pi_rows - 1, index = row < 0 ? 0 : row > last ? last : row;
  const int32_t mantissa = int32_t((u & 0x007fffffu) | 0x00800000u);
  const double integer = double(int32_t(u) < 0 ? -mantissa : mantissa);
  const double turns = integer * two_over_pi_high[index];
  constexpr double to_integer = 0x1.8p52;
  const double quadrant = (turns + to_integer) - to_integer;
  const double rest = (turns - quadrant) + integer * two_over_pi_low[index];
  return {int32_t(quadrant), float(rest * 0x1.921fb54442d18p0)};
}

struct sine_and_cosine {
  float sine, cosine;
};
ST_FN sine_and_cosine sine_cosine(float r) {
  const float z = r * r;
  const float s = horner(z, -0x1.555556p-3f, 0x1.111174p-7f, -0x1.a0595ap-13f, 0x1.7c3068p-19f);
  const float c = horner(z, 0x1.55554ap-5f, -0x1.6c0c28p-10f, 0x1.99e814p-16f);
  return {r + r * z * s, 1.0f + (z * z * c - 0.5f * z)};
}

ST_FN float negate_if(float x, bool condition) { return bits_float(float_bits(x) ^ (condition ? 0x80000000u : 0u)); }

}  // namespace detail

ST_FN float sin(float x) {
  const auto [quadrant, r] = detail::reduce_angle(x);
  const auto [s, c] = detail::sine_cosine(r);
  const float y = detail::negate_if(quadrant & 1 ? c : s, quadrant & 2);
  const float a = detail::magnitude(x);
  return a < 0x1p-12f ? x : a < bits_float(detail::infinity) ? y : x - x;
}

ST_FN float cos(float x) {
  const auto [quadrant, r] = detail::reduce_angle(x);
  const auto [s, c] = detail::sine_cosine(r);
  const float y = detail::negate_if(quadrant & 1 ? s : c, (quadrant + 1) & 2);
  const float a = detail::magnitude(x);
  return a < 0x1p-12f ? 1.0f : a < bits_float(detail::infinity) ? y : x - x;
}

ST_FN float tan(float x) {
  const auto [quadrant, r] = detail::reduce_angle(x);
  const auto [s, c] = detail::sine_cosine(r);
  const bool odd = quadrant & 1;
  const float y = (odd ? c : s) / (odd ? -s : c);
  const float a = detail::magnitude(x);
  return a < 0x1p-12f ? x : a < bits_float(detail::infinity) ? y : x - x;
}

namespace detail {

// A small magnitude times 2^64, of subnormals as well.
ST_FN float enlarged(float a) {
  const float subnormal = float(int32_t(float_bits(a))) * 0x1p-85f;
  return float_bits(a) < 0x00800000u ? subnormal : a * 0x1p64f;
}

}  // namespace detail

ST_FN float atan2(float y, float x) {
  float ax = detail::magnitude(x), ay = detail::magnitude(y);
  // Small ones are made larger, alike, so that no subnormal is lost.
  const bool tiny = int32_t(float_bits(ax) | float_bits(ay)) < 0x40000000;
  ax = tiny ? detail::enlarged(ax) : ax;
  ay = tiny ? detail::enlarged(ay) : ay;
  const bool steep = ay > ax;
  const float small = steep ? ax : ay, large = steep ? ay : ax;
  // Equal (both infinite too) is 1, both zero is 0.
  const float t = small == large ? (large == 0.0f ? 0.0f : 1.0f) : small / large, z = t * t;
  const float p = detail::horner(z, -0x1.55553ep-2f, 0x1.9991e6p-3f, -0x1.2420b6p-3f, 0x1.c08f64p-4f, -0x1.58155cp-4f,
                                 0x1.da5ec0p-5f, -0x1.fdfbd2p-6f, 0x1.64c154p-7f, -0x1.d4971ap-10f);
  float angle = t + t * z * p;
  angle = steep ? 0x1.921fb6p0f - (angle + 0x1.777a5cp-25f) : angle;
  angle = int32_t(float_bits(x)) < 0 ? 0x1.921fb6p1f - (angle + 0x1.777a5cp-24f) : angle;
  return x != x || y != y ? x + y : copysign(angle, y);
}

// ---- powers

ST_FN float cbrt(float x) {
  // A third of the exponent to begin with, then two steps of Halley's iteration in double.
  const float a = detail::magnitude(x);
  const bool subnormal = detail::is_subnormal(a);
  const float scaled = subnormal ? float(int32_t(float_bits(a))) * 0x1p-125f : a;
  const double target = scaled;
  double y = bits_float(float_bits(scaled) / 3 + 0x2a512ce3u);
  double cube = y * y * y;
  y = y * (target + target + cube) / (target + cube + cube);
  cube = y * y * y;
  y = y * (target + target + cube) / (target + cube + cube);
  const float root = float(subnormal ? y * 0x1p-8 : y);
  return float_bits(a) - 1u < detail::infinity - 1u ? copysign(root, x) : x + x;
}

namespace detail {

// A root is taken in double, of a subnormal number by its bits.
ST_FN float float_root_power(float x, float y) {
  const float a = magnitude(x);
  const bool subnormal = float_bits(a) < 0x00800000u;
  const float size = float(root_power(subnormal ? double(int32_t(float_bits(a))) * 0x1p-149 : double(a), y));
  float value = int32_t(float_bits(x)) < 0 ? bits_float(quiet_nan) : size;
  value = float_bits(a) != 0u ? value : size;
  return a < bits_float(infinity) ? value : size;
}

}  // namespace detail

ST_FN float float_power(float x, float given) {
  if (__builtin_constant_p(given) && detail::is_root(given)) return detail::float_root_power(x, given);
  // 2^(y log2|x|) in double: 45 bits of the logarithm leave the rounding to float as the only error to speak of.
  const float a = detail::magnitude(x);
  const bool subnormal = float_bits(a) < 0x00800000u;
  const uint32_t u = float_bits(subnormal ? float(int32_t(float_bits(a))) : a) - detail::sqrt_half;
  const int32_t n = (int32_t(u) >> 23) - (subnormal ? 149 : 0);
  // A subnormal exponent does what the smallest normal one does.
  const float least = bits_float((float_bits(given) & 0x80000000u) | 0x00800000u);
  const float y = detail::is_subnormal(detail::magnitude(given)) ? least : given;
  const double f = double(bits_float((u & 0x007fffffu) + detail::sqrt_half)) - 1.0;
  const double s = f / (2.0 + f);
  const double series = detail::horner(s * s, 0x1.71547652b8250p+1, 0x1.ec709dc53fe21p-1, 0x1.2776c28ec83f4p-1,
                                       0x1.a61a329972d78p-2, 0x1.4794b01310f9fp-2, 0x1.21baad23d5e36p-2);
  double logarithm = double(n) + s * series;
  logarithm = float_bits(a) == 0u ? double(bits_float(0xff800000u)) : a < bits_float(detail::infinity) ? logarithm : double(a);

  const double exponent = a == 1.0f ? 0.0 : double(y) * logarithm;
  const double below = exponent < 200.0 ? exponent : 200.0, t = below > -200.0 ? below : -200.0;
  constexpr double to_integer = 0x1.8p52;
  const double whole = (t + to_integer) - to_integer;
  const double mantissa =
      detail::horner(t - whole, 0x1.ffffffffff798p-1, 0x1.62e42fef85f1cp-1, 0x1.ebfbdff932db1p-3, 0x1.c6b08dd4c8f5fp-5,
                     0x1.3b2ab5c40dde2p-7, 0x1.5d8747c8ebf73p-10, 0x1.430acdae9fb60p-13, 0x1.00db1d3baca38p-16, 0x1.61af7db936012p-20);
  const double scale = bits_double(uint64_t(int64_t(int32_t(whole)) + 1023) << 52);
  const float size = exponent != exponent ? bits_float(detail::quiet_nan) : float(mantissa * scale);

  // One condition to a selection: GCC vectorises those.
  const bool integral = __builtin_floorf(y) == y, negative = int32_t(float_bits(x)) < 0;
  const float ay = detail::magnitude(y);
  const uint32_t odd = uint32_t(int32_t(ay < 0x1p24f ? ay : 0.0f)) & 1;
  const uint32_t sign = float_bits(x) & (integral ? odd << 31 : 0u);
  const float result = bits_float(float_bits(size) | sign);
  float value = integral ? result : bits_float(detail::quiet_nan);
  value = negative ? value : result;
  value = float_bits(a) != 0u ? value : result;
  value = a < bits_float(detail::infinity) ? value : result;
  value = y == 0.0f ? 1.0f : value;
  return x == 1.0f ? 1.0f : value;
}

}  // namespace st
