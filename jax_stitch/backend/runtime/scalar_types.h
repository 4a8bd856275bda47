// Element types, their traits, and moving sub-word floats between storage and float.
#pragma once

#if defined(__CUDACC_RTC__)
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
#if defined(__LP64__)
typedef long int64_t;
typedef unsigned long uint64_t;
#else
typedef long long int64_t;
typedef unsigned long long uint64_t;
#endif
#else
#include <stdint.h>
#endif

#ifdef __CUDACC__
#define ST_FN __device__ __forceinline__
#else
#define ST_FN static inline __attribute__((always_inline))
#endif

namespace st {

// Scalars to the compiler (a structure's copies would keep a loop from vectorising), without any arithmetic.
enum class bf16 : uint16_t {};
enum class f16 : uint16_t {};

// A complex number as it is in memory; kernels compute its parts.
#ifdef __CUDACC__
template <class T> struct alignas(2 * sizeof(T)) pair_of {
  T real, imaginary;
};
using complex64 = pair_of<float>;
using complex128 = pair_of<double>;
#else
using complex64 = float _Complex;
using complex128 = double _Complex;
#endif

// ---- traits

template <class T> struct type_of {
  using type = T;
};
// A parameter of this type takes no part in template argument deduction.
template <class T> using same = typename type_of<T>::type;

template <class A, class B> constexpr bool is_same = false;
template <class A> constexpr bool is_same<A, A> = true;
template <class T> constexpr bool is_float = is_same<T, float> || is_same<T, double>;
template <class T> constexpr bool is_half = is_same<T, bf16> || is_same<T, f16>;
template <class T> constexpr bool is_integer = !is_float<T> && !is_half<T> && !is_same<T, bool>;
template <class T> constexpr bool is_signed = is_integer<T> && T(-1) < T(0);
template <> constexpr bool is_signed<bf16> = false;
template <> constexpr bool is_signed<f16> = false;
template <class T> constexpr int width = int(8 * sizeof(T));

template <bool C, class A, class B> struct choose {
  using type = A;
};
template <class A, class B> struct choose<false, A, B> {
  using type = B;
};
// The unsigned type of T's own size, and the one integer arithmetic is done in: wraps around, never promotes to int.
template <class T>
using unsigned_of = typename choose<
    sizeof(T) == 1, uint8_t,
    typename choose<sizeof(T) == 2, uint16_t, typename choose<sizeof(T) == 4, uint32_t, uint64_t>::type>::type>::type;
template <class T> using modular = typename choose<sizeof(T) <= 4, uint32_t, uint64_t>::type;

template <class T> constexpr T integer_max = T(unsigned_of<T>(~unsigned_of<T>(0)) >> (is_signed<T> ? 1 : 0));
template <class T> constexpr T integer_min = is_signed<T> ? T(-integer_max<T> - 1) : T(0);

// ---- bits

template <class To, class From> ST_FN To bitcast(From x) {
  static_assert(sizeof(To) == sizeof(From), "bitcast keeps the size");
#if defined(__CUDACC__)
  union {
    From from;
    To to;
  } u{x};
  return u.to;
#else
  To to;
  __builtin_memcpy(&to, &x, sizeof(To));
  return to;
#endif
}

ST_FN uint32_t float_bits(float x) { return bitcast<uint32_t>(x); }
ST_FN float bits_float(uint32_t x) { return bitcast<float>(x); }
ST_FN uint64_t double_bits(double x) { return bitcast<uint64_t>(x); }
ST_FN double bits_double(uint64_t x) { return bitcast<double>(x); }

// ---- storage

template <class T> ST_FN T load(T x) { return x; }

#ifdef __CUDACC__
template <class T> ST_FN pair_of<T> complex_of(T real, T imaginary) { return {real, imaginary}; }
template <class T> ST_FN T real_part(pair_of<T> x) { return x.real; }
template <class T> ST_FN T imaginary_part(pair_of<T> x) { return x.imaginary; }
#else
ST_FN complex64 complex_of(float real, float imaginary) {
  complex64 x;
  __real__ x = real;
  __imag__ x = imaginary;
  return x;
}
ST_FN complex128 complex_of(double real, double imaginary) {
  complex128 x;
  __real__ x = real;
  __imag__ x = imaginary;
  return x;
}
ST_FN float real_part(complex64 x) { return __real__ x; }
ST_FN double real_part(complex128 x) { return __real__ x; }
ST_FN float imaginary_part(complex64 x) { return __imag__ x; }
ST_FN double imaginary_part(complex128 x) { return __imag__ x; }
#endif

// A pred from memory. On the host by its byte: GCC vectorises no loop that reads a bool as such.
ST_FN bool load(const bool& x) {
#ifdef __CUDACC__
  return x;
#else
  return bitcast<uint8_t>(x) != 0;
#endif
}

ST_FN float load(bf16 x) { return bits_float(uint32_t(x) << 16); }

ST_FN float load(f16 x) {
#ifdef __CUDACC__
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(uint16_t(x)));
  return y;
#else
  // No float subnormal occurs on the way: XLA runs its CPU threads with denormals-are-zero.
  const uint32_t sign = (uint32_t(x) & 0x8000) << 16, magnitude = uint32_t(x) & 0x7fff;
  const uint32_t normal = (magnitude << 13) + (magnitude >= 0x7c00 ? (255u - 31) << 23 : (127u - 15) << 23);
  const uint32_t subnormal = float_bits(float(int32_t(magnitude)) * 0x1p-24f);
  return bits_float(sign | (magnitude < 0x0400 ? subnormal : normal));
#endif
}

// The type arithmetic on a T is done in.
template <class T> using computed = typename choose<is_half<T>, float, T>::type;

ST_FN bf16 float_to_bf16(float x) {
#if defined(__CUDACC__) && __CUDA_ARCH__ >= 800
  uint16_t y;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y) : "f"(x));
  return bf16(y);
#else
  const uint32_t u = float_bits(x);
  const uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1)) >> 16, nan = (u >> 16) | 0x40;
  return bf16((u & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
#endif
}

ST_FN f16 float_to_f16(float x) {
#ifdef __CUDACC__
  uint16_t y;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x));
  return f16(y);
#else
  const uint32_t u = float_bits(x), sign = (u >> 16) & 0x8000u, a = u & 0x7fffffffu;
  const uint32_t rounded = (a + 0xfffu + ((a >> 13) & 1) - (112u << 23)) >> 13;
  // Adding 1/2 rounds to multiples of 2^-24, the spacing of the subnormals.
  const uint32_t subnormal = float_bits(bits_float(a) + 0.5f) - 0x3f000000u;
  uint32_t y = a < (113u << 23) ? subnormal : rounded;
  y = a >= (143u << 23) ? 0x7c00u : y;
  y = a > 0x7f800000u ? 0x7e00u | ((u >> 13) & 0x3ffu) : y;
  return f16(sign | y);
#endif
}

// To storage: to nearest, ties to even; a NaN stays a NaN.
template <class T> ST_FN T store(same<computed<T>> x) {
  if constexpr (is_same<T, bf16>) {
    return float_to_bf16(x);
  } else if constexpr (is_same<T, f16>) {
    return float_to_f16(x);
  } else {
    return x;
  }
}

// The value a T would keep, in the type arithmetic is done in.
template <class T> ST_FN computed<T> round_to(same<computed<T>> x) { return load(store<T>(x)); }

}  // namespace st
