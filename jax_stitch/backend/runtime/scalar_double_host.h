// Exponentials, logarithms and tanh of double on a CPU: branch-free as those of float are, so that loops that call them
// become vectors. The polynomials are Chebyshev fits of our own, of functions on the reduced range; the errors stay
// below 1.1 units in the last place (expm1 1.5, tanh 2.6), as tests/runtime/test_floats.py checks.
//
// No 64-bit integer is converted or shifted arithmetically: vectors before AVX-512 cannot. Adding 1.5 * 2^52 rounds to
// the nearest integer and leaves it in the low bits.
#pragma once
#include "scalar_types.h"

namespace st {
namespace detail {

// Bounds of arguments. GCC makes one instruction (minps, minpd) of `bound < x ? bound : x` where it does not know the bound, and
// a comparison and a blend where it does: a weak definition might be another's. NaN stays.
#define ST_BOUND(T, NAME, VALUE) __attribute__((weak, visibility("hidden"))) extern const T NAME = VALUE;
template <class T> ST_FN T at_most(T x, const T& bound) { return bound < x ? bound : x; }
template <class T> ST_FN T at_least(T x, const T& bound) { return bound > x ? bound : x; }

ST_BOUND(double, plus_710, 710.0)
ST_BOUND(double, minus_746, -746.0)
ST_BOUND(double, minus_60, -60.0)
ST_BOUND(double, plus_22, 22.0)

constexpr double to_integer_52 = 0x1.8p52;
constexpr uint64_t double_infinity = uint64_t(0x7ff) << 52, double_nan = uint64_t(0x7ff8) << 48;

// a * b + c, in one rounding where the processor has it.
ST_FN double fused(double a, double b, double c) {
#ifdef __FMA__
  return __builtin_fma(a, b, c);
#else
  return a * b + c;
#endif
}
template <class T> ST_FN double polynomial(double, T c) { return c; }
template <class T, class... C> ST_FN double polynomial(double x, T c, C... more) {
  return fused(x, polynomial(x, more...), c);
}

// x = n ln2 + r + lost with |r| <= ln2 / 2 and |lost| at most half a unit in the last place of r, for |x| < 2^20.
template <int BIAS> struct reduced_double {
  uint64_t biased;  // n + BIAS in the low 12 bits: a shift alone makes an exponent of it
  double r, lost;
};
template <int BIAS> ST_FN reduced_double<BIAS> reduce_exp(double x) {
  constexpr double to_integer = to_integer_52 + BIAS;
  const double shifted = fused(x, 0x1.71547652b82fep+0, to_integer), n = shifted - to_integer;
  const double high = fused(n, -0x1.62e42fee00000p-1, x), r = fused(n, -0x1.a39ef35793c76p-33, high);
  return {double_bits(shifted), r, fused(n, -0x1.a39ef35793c76p-33, high - r)};
}

// (exp(r) - 1 - r) / r^2. In two halves, which wait less for each other.
ST_FN double exp_tail(double r) {
  const double r2 = r * r;
  const double even = polynomial(r2, 0x1p-1, 0x1.5555555555557p-5, 0x1.6c16c16c1578dp-10, 0x1.a01a01ab8a4d5p-16,
                                 0x1.27e4ced7609fbp-22, 0x1.1f8a32984aab3p-29);
  const double odd = polynomial(r2, 0x1.5555555555557p-3, 0x1.111111111009ap-7, 0x1.a01a01ac0bda2p-13,
                                0x1.71de01c028fc8p-19, 0x1.af4ed4ee0afbap-26);
  return fused(r, odd, even);
}

// expm1 for x in [-700, 710].
ST_FN double expm1_in_range(double x) {
  // 2^n (1 + r + r^2 p) - 1, halved so that 2^n does not overflow too early; the larger terms with what their sum lost.
  const auto [biased, r, lost] = reduce_exp<1022>(x);
  const double scale = bits_double(biased << 52);
  const double whole = scale - 0.5, linear = scale * r, sum = whole + linear;
  const double rest = fused(scale, fused(r * r, exp_tail(r), lost), linear - (sum - whole));
  return 2.0 * (sum + rest);
}

// log(1 + f) for 1 + f in [sqrt(1/2), sqrt(2)], plus n ln2, plus a small correction c.
ST_FN double log_polynomial(double f, double n, double c) {
  const double s = f / (2.0 + f), z = s * s, half = 0.5 * f * f;
  const double p = z * polynomial(z, 0x1.5555555555558p-1, 0x1.99999999952e2p-2, 0x1.2492492df148dp-2,
                                  0x1.c71c62e5800a1p-3, 0x1.7462b4ab2ef6bp-3, 0x1.39fe606542ddep-3,
                                  0x1.2b584aae78a57p-3);
  const double tail = fused(s, half + p, fused(n, 0x1.a39ef35793c76p-33, c));
  return fused(n, 0x1.62e42fee00000p-1, f - (half - tail));
}

// A number above zero as 2^exponent times one in [sqrt(1/2), sqrt(2)).
struct split_double {
  double exponent, fraction;
};
ST_FN split_double split(double x) {
  constexpr uint64_t sqrt_half = uint64_t(0x3fe6a09e) << 32, one = uint64_t(0x3ff) << 52;
  const uint64_t u = double_bits(x) + (one - sqrt_half);
  const double biased = bits_double((u >> 52) | (uint64_t(0x433) << 52)) - 0x1p52;
  return {biased - 1023.0, bits_double((u & ((uint64_t(1) << 52) - 1)) + sqrt_half)};
}

}  // namespace detail

ST_FN double exp(double x) {
  const double limited = detail::at_least(detail::at_most(x, detail::plus_710), detail::minus_746);
  const auto [biased, r, lost] = detail::reduce_exp<2046>(limited);
  // Two factors, so that a subnormal result is rounded once.
  const uint64_t half = (biased << 51) & detail::double_infinity;
  const double scale = bits_double(half), other = bits_double((biased << 52) - half);
  return detail::fused(scale, detail::fused(r * r, detail::exp_tail(r), lost) + r, scale) * other;
}

ST_FN double expm1(double x) {
  const double y = detail::expm1_in_range(detail::at_least(detail::at_most(x, detail::plus_710), detail::minus_60));
  const bool tiny = (double_bits(x) << 1) < (double_bits(0x1p-54) << 1);
  return tiny ? x : y;
}

ST_FN double log(double x) {
  // By its bits: a thread that reads subnormal numbers as zero has their logarithms too.
  const uint64_t u = double_bits(x);
  const bool subnormal = u - 1 < (uint64_t(1) << 52) - 1;
  const double scaled = bits_double(u | (uint64_t(0x433) << 52)) - 0x1p52;  // times 2^1074
  const auto [n, m] = detail::split(subnormal ? scaled : x);
  const double y = detail::log_polynomial(m - 1.0, subnormal ? n - 1074.0 : n, 0.0);
  const double finite = u < detail::double_infinity ? y : x + x;
  const bool zero = (u << 1) == 0, negative = (u >> 63) != 0 && x == x;
  return zero ? -bits_double(detail::double_infinity) : negative ? bits_double(detail::double_nan) : finite;
}

ST_FN double log1p(double x) {
  const double sum = 1.0 + x;
  const auto [n, m] = detail::split(sum);
  // What the sum lost, relative to it; nothing to speak of once it is large.
  const double lost = x > 1.0 ? 1.0 - (sum - x) : x - (sum - 1.0);
  const bool near = n == 0.0;
  double y = detail::log_polynomial(near ? x : m - 1.0, n, near || n > 54.0 ? 0.0 : lost / sum);
  y = x > -1.0 ? y : bits_double(x == -1.0 ? uint64_t(0xfff) << 52 : detail::double_nan);
  y = (double_bits(x) << 1) < (double_bits(0x1p-54) << 1) ? x : y;
  return x < bits_double(detail::double_infinity) ? y : x + x;
}

ST_FN double tanh(double x) {
  const double a = bits_double((double_bits(x) << 1) >> 1);
  // expm1(-2a) without what its sum loses: the quotient is as good, since 2 + t is rounded too.
  const auto [biased, r, lost] = detail::reduce_exp<1023>(-2.0 * detail::at_most(a, detail::plus_22));
  const double scale = bits_double(biased << 52), p = detail::fused(r * r, detail::exp_tail(r), r);
  const double t = detail::fused(scale, p, scale - 1.0);
  const double y = bits_double(double_bits(-t / (2.0 + t)) | (double_bits(x) >> 63 << 63));
  return a < 0x1p-28 ? x : y;
}

}  // namespace st
