// Matrix products by tensor cores, inside loops in teams (team.h).
//
//   ST_EACH_FRAGMENT(R, L, FR, FL) { ... }            FR x FL fragments of 16 runs by 8 lanes, each by one warp. Inside:
//   ST_MULTIPLY(M, sum, FR, FL, K, left, right)       a sum of K products at each place; `left` is a function of run and step, `right` of lane
//                                                     and step, whose values are numbers of the matrix type M: st::tf32, st::halves<bf16> ...
//   ST_PLACES_OF_FRAGMENT(FR, FL) { ... }             the code of a place, with ST_F(sum)
//
// Which thread has which element is PTX's ("Warp-level matrix instructions"): of lane 4 g + t, sums lie at runs g and g + 8, lanes 2 t and 2 t + 1.
// On the host, and so where a GPU's schedule is run there, places are computed one by one.
#pragma once

namespace st {

struct tf32 {
  static constexpr int steps = 8;
};
template <class T> struct halves {
  static constexpr int steps = 16;
};

#ifdef __CUDACC__
// Two halves that lie side by side, at a multiple of their size.
struct Pair {
  uint32_t bits;
};
template <class T> ST_FN Pair pair_at(const T* first) { return {*reinterpret_cast<const uint32_t*>(first)}; }
#else
template <class T> ST_FN float pair_at(const T* first) { return st::load(*first); }
#endif

}  // namespace st

#ifdef __CUDACC__

#define ST_EACH_FRAGMENT(R, L, FR, FL)                                                                    \
  for (index tile_ = thread_ / 32; tile_ < ((R) / (16 * (FR))) * ((L) / (8 * (FL))); tile_ += T_ / 32)    \
    ST_WITH_(index run0_ = tile_ / ((L) / (8 * (FL))) * (16 * (FR)), j0_ = tile_ % ((L) / (8 * (FL))) * (8 * (FL)))
#define ST_MULTIPLY(M, name, FR, FL, K, ...)              \
  float name[(FR) * (FL)][4] = {};                        \
  st::multiply_fragments<M, FR, FL>(name, run0_, j0_, K, __VA_ARGS__);
#define ST_PLACES_OF_FRAGMENT(FR, FL)                                        \
  _Pragma("unroll") for (int v_ = 0; v_ < (FR) * (FL) * 4; ++v_)             \
    ST_WITH_(index run = run0_ + v_ / (4 * (FL)) * 16 + v_ % 4 / 2 * 8 + threadIdx.x % 32 / 4, \
             j = j0_ + v_ / 4 % (FL) * 8 + v_ % 2 + threadIdx.x % 4 * 2)
#define ST_F(name) name[v_ / 4][v_ % 4]

namespace st {
namespace detail {

// What a thread has of a factor, from the step q on: `half` 0 or 1 of the fragment, in one register.
template <class M> struct Matrix;
template <> struct Matrix<tf32> {
  template <class F> ST_MEMBER uint32_t packed(int t, int half, F value) { return float_bits(value(t + 4 * half)); }
  // The element of step k of a fragment: in which register's half it is, with which thread, and its value.
  ST_MEMBER int half(int k) { return k / 4; }
  ST_MEMBER int thread(int k) { return k % 4; }
  ST_MEMBER float unpacked(uint32_t bits, int) { return st::bitcast<float>(bits); }
};
template <class T> struct Matrix<halves<T>> {
  template <class F> ST_MEMBER uint32_t packed(int t, int half, F value) {
    return joined(value(2 * t + 8 * half), [&] { return value(2 * t + 8 * half + 1); });
  }
  template <class F> ST_MEMBER uint32_t joined(Pair pair, F) { return pair.bits; }
  template <class F> ST_MEMBER uint32_t joined(float first, F second) { return bits_of(first) | bits_of(second()) << 16; }
  ST_MEMBER int half(int k) { return k / 8; }
  ST_MEMBER int thread(int k) { return k % 8 / 2; }
  ST_MEMBER float unpacked(uint32_t bits, int k) { return st::load(st::bitcast<T>(uint16_t(k % 2 ? bits >> 16 : bits & 0xffffu))); }
  ST_MEMBER uint32_t bits_of(float x) { return st::bitcast<uint16_t>(st::convert<T>(x)); }
};

#ifdef ST_CHECKED
// The checking mode: each sum from the other threads' registers, element by element.
template <class M> ST_FN void multiply_add(float (&sum)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  const int lane = threadIdx.x % 32;
  for (int e = 0; e < 4; ++e) {
    for (int k = 0; k < M::steps; ++k) {
      const uint32_t left = __shfl_sync(0xffffffffu, a[e / 2 + 2 * Matrix<M>::half(k)], unsigned(lane / 4 * 4 + Matrix<M>::thread(k)));
      const uint32_t right = __shfl_sync(0xffffffffu, b[Matrix<M>::half(k)], unsigned((lane % 4 * 2 + e % 2) * 4 + Matrix<M>::thread(k)));
      sum[e] = st::fused(Matrix<M>::unpacked(left, k), Matrix<M>::unpacked(right, k), sum[e]);
    }
  }
}
#else
template <class M> ST_FN void multiply_add(float (&sum)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]);
#define ST_MULTIPLY_ADD_(M, NAME)                                                                                       \
  template <> ST_FN void multiply_add<M>(float (&sum)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {            \
    asm("mma.sync.aligned." NAME " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                    \
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])                                                       \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));                                           \
  }
ST_MULTIPLY_ADD_(tf32, "m16n8k8.row.col.f32.tf32.tf32.f32")
ST_MULTIPLY_ADD_(halves<bf16>, "m16n8k16.row.col.f32.bf16.bf16.f32")
ST_MULTIPLY_ADD_(halves<f16>, "m16n8k16.row.col.f32.f16.f16.f32")
#undef ST_MULTIPLY_ADD_
#endif

}  // namespace detail

template <class M, int FR, int FL, class Left, class Right>
ST_FN void multiply_fragments(float (&sums)[FR * FL][4], int run, int j, int steps, Left left, Right right) {
  using Matrix = detail::Matrix<M>;
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  _Pragma("unroll 2") for (int q = 0; q < steps; q += M::steps) {
    uint32_t a[FR][4], b[FL][2];
    _Pragma("unroll") for (int r = 0; r < FR; ++r)
      _Pragma("unroll") for (int e = 0; e < 4; ++e)
        a[r][e] = Matrix::packed(t, e / 2, [&](int k) { return left(run + 16 * r + 8 * (e % 2) + g, q + k); });
    _Pragma("unroll") for (int c = 0; c < FL; ++c)
      _Pragma("unroll") for (int e = 0; e < 2; ++e)
        b[c][e] = Matrix::packed(t, e, [&](int k) { return right(j + 8 * c + g, q + k); });
    _Pragma("unroll") for (int r = 0; r < FR; ++r)
      _Pragma("unroll") for (int c = 0; c < FL; ++c)
        detail::multiply_add<M>(sums[r * FL + c], a[r], b[c]);
  }
}

}  // namespace st

#else

#define ST_EACH_FRAGMENT(R, L, FR, FL)     \
  for (index run = 0; run < (R); ++run)    \
    for (index j = 0; j < (L); ++j)
#define ST_MULTIPLY(M, name, FR, FL, K, ...) const float name = st::sum_of_products(run, j, K, __VA_ARGS__);
#define ST_PLACES_OF_FRAGMENT(FR, FL)
#define ST_F(name) name

namespace st {

template <class Left, class Right> ST_FN float sum_of_products(int run, int j, int steps, Left left, Right right) {
  float sum = 0;
  for (int q = 0; q < steps; ++q) sum = fused(left(run, q), right(j, q), sum);
  return sum;
}

}  // namespace st

#endif
