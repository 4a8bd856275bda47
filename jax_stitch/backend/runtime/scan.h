// Scans: the lanes of a row go along it turn by turn (K places each on CUDA), and each scan carries what it has so far from turn to turn.
//
//   ST_EACH_SCANNED_ROW { ... }                    per row; on CUDA all threads of a block go through it, since they meet in it
//   ST_SCANNED(C, name, first, n, K)               a scan's values of a turn, ST_V(name) at a place, and what it carries, at first `first`
//   ST_TURNS(n, K) { ... }                         the turns of a row of n places
//   ST_EACH_OF_TURN(AT, n, K) { ... }              each place of the turn: `at_` in the order of the scan, `j` = AT in the row
//   ST_SCAN(C, name, K)                            operands -> results, for the whole turn
//
// ..._ROWS: the same with rows fastest. A turn's places past the end of the row hold anything: nothing in front of them depends on them.
// What is carried is added to the results within a turn, not the other way round: for sums that is more accurate.
#pragma once

#ifdef __CUDACC__

#define ST_EACH_SCANNED_ROW ST_WITH_(index row = row0_ + r_)
#define ST_SCANNED(C, name, first, n, K) C::T name[K] = {}, name##_carried = first;
#define ST_SCANNED_ROWS ST_SCANNED
#define ST_TURNS(n, K) for (index first_ = 0; first_ < (n); first_ += TL_ * (K))
#define ST_TURNS_ROWS ST_TURNS
#define ST_EACH_OF_TURN(AT, n, K)                                                                     \
  _Pragma("unroll") for (int k_ = 0; k_ < (K); ++k_)                                                  \
    if (const index at_ = first_ + k_ * TL_ + lane_; at_ < (n) && ST_HAS_ROW_)                       \
      ST_WITH_(index j = AT, p_ = r_ * index(n) + j)
// A lane's places of a turn are neighbours here: in memory those of neighbouring rows are.
#define ST_EACH_OF_TURN_ROWS(AT, n, K)                                                                \
  _Pragma("unroll") for (int k_ = 0; k_ < (K); ++k_)                                                  \
    if (const index at_ = first_ + lane_ * (K) + k_; at_ < (n) && ST_HAS_ROW_)                       \
      ST_WITH_(index row = row0_ + r_, j = AT, p_ = j * TR_ + r_)
#define ST_V(name) name[k_]
#define ST_SCAN(C, name, K) st::scan_lanes<C, TL_, K>(name, name##_carried, shared, r_, lane_);
#define ST_SCAN_ROWS(C, name, K) st::scan_columns<C, TR_, TL_, K>(name, name##_carried, shared, r_, lane_);

namespace st {

// Each value becomes what is carried and all values up to it, in the order of k, then lane; `carried` then is that of the last.
template <class C, int TL, int K>
ST_FN void scan_lanes(typename C::T (&values)[K], typename C::T& carried, char* shared, int r, int lane) {
  using T = typename C::T;
  constexpr int width = TL < 32 ? TL : 32, warps = TL / width;
  const int here = lane % width, origin = threadIdx.x % 32 - here;
  _Pragma("unroll") for (int k = 0; k < K; ++k) {
    _Pragma("unroll") for (int d = 1; d < width; d *= 2) {
      const T before = shuffle_from(values[k], origin + (here < d ? here : here - d));
      if (here >= d) values[k] = C::combine(before, values[k]);
    }
  }
  T* const totals = reinterpret_cast<T*>(shared) + r * (K * warps);
  if constexpr (warps > 1) {
    if (here == width - 1) {
      _Pragma("unroll") for (int k = 0; k < K; ++k) totals[k * warps + lane / width] = values[k];
    }
    __syncthreads();
  }
  T sum;
  _Pragma("unroll") for (int k = 0; k < K; ++k) {
    T before;
    bool is_first = true;
    if constexpr (warps > 1) {
      _Pragma("unroll") for (int w = 0; w < warps; ++w) {
        if (w == lane / width && (k > 0 || w > 0)) before = sum, is_first = false;
        sum = k + w == 0 ? totals[0] : C::combine(sum, totals[k * warps + w]);
      }
    } else {
      const T total = shuffle_from(values[k], origin + width - 1);
      if (k > 0) before = sum, is_first = false;
      sum = k == 0 ? total : C::combine(sum, total);
    }
    values[k] = C::combine(carried, is_first ? values[k] : C::combine(before, values[k]));
  }
  carried = C::combine(carried, sum);
  if constexpr (warps > 1) __syncthreads();
}

// The same with rows fastest: in the order of lane, then k.
template <class C, int TR, int TL, int K>
ST_FN void scan_columns(typename C::T (&values)[K], typename C::T& carried, char* shared, int r, int lane) {
  using T = typename C::T;
  _Pragma("unroll") for (int k = 1; k < K; ++k) values[k] = C::combine(values[k - 1], values[k]);
  T before, sum = values[K - 1];
  if constexpr (TL > 1) {
    T* const totals = reinterpret_cast<T*>(shared);
    totals[lane * TR + r] = values[K - 1];
    __syncthreads();
    sum = totals[r];
    for (int l = 1; l < TL; ++l) {
      if (l == lane) before = sum;
      sum = C::combine(sum, totals[l * TR + r]);
    }
    __syncthreads();
  }
  _Pragma("unroll") for (int k = 0; k < K; ++k) {
    values[k] = C::combine(carried, TL == 1 || lane == 0 ? values[k] : C::combine(before, values[k]));
  }
  carried = C::combine(carried, sum);
}

}  // namespace st

#else  // a host compiler

// With lanes fastest a turn has a place for each lane; with rows fastest there is one lane, and a turn is one place of all rows.
#define ST_EACH_SCANNED_ROW ST_EACH_ROW
#define ST_SCANNED(C, name, first, n, K)                    \
  alignas(64) C::T name[TL_];                               \
  st::Carried<C, 1, st::levels((n) / TL_ + 1)> name##_carried(first);
#define ST_SCANNED_ROWS(C, name, first, n, K)               \
  alignas(64) C::T name[TR_], name##_run[TR_];              \
  st::Carried<C, TR_, st::levels((n) / st::kRun + 1)> name##_carried(first);
#define ST_TURNS(n, K)                                      \
  for (index first_ = 0; first_ < (n); first_ += TL_)       \
    ST_WITH_(int m_ = (n) - first_ < TL_ ? int((n) - first_) : TL_)
#define ST_TURNS_ROWS(n, K) for (index at_ = 0; at_ < (n); ++at_)
#define ST_EACH_OF_TURN(AT, n, K)                           \
  ST_SIMD for (int lane_ = 0; lane_ < m_; ++lane_)          \
    ST_WITH_(index at_ = first_ + lane_, j = AT, p_ = r_ * index(n) + j) ST_WITH_(int t_ = r_ * TL_ + lane_, v_ = lane_)
#define ST_EACH_OF_TURN_ROWS(AT, n, K)                      \
  ST_SIMD for (int r_ = 0; r_ < active_; ++r_)              \
    ST_WITH_(index row = row0_ + r_, j = AT, p_ = j * TR_ + r_) ST_WITH_(int t_ = r_, v_ = r_)
#define ST_V(name) name[v_]
#define ST_SCAN(C, name, K) st::scan_lanes<C>(name, m_, name##_carried);
#define ST_SCAN_ROWS(C, name, K) st::scan_columns<C>(name, name##_run, active_, int(at_ % st::kRun), name##_carried);

namespace st {

constexpr int kRun = 32;  // places of a row that are scanned by themselves where rows are fastest

// Enough for `count` values, each level as many as twice those of the one below.
constexpr int levels(int64_t count) { return count < 2 ? 1 : 1 + levels(count / 2); }

// All that came before, for N rows: sums of 1, 2, 4, ... totals, so that none goes through more than a few additions.
template <class C, int N, int LEVELS> class Carried {
 public:
  using T = typename C::T;
  explicit Carried(T first) : first_(first), count_(0) {
    for (int i = 0; i < N; ++i) so_far_[i] = first;
  }
  const T* so_far() const { return so_far_; }
  void add(const T* totals, int rows) {
    int k = 0;
    while (count_ >> k & 1) ++k;
    ++count_;
    ST_SIMD for (int i = 0; i < rows; ++i) {
      T sum = totals[i];
      for (int l = 0; l < k; ++l) sum = C::combine(sums_[l][i], sum);
      sums_[k][i] = sum;
    }
    for (int i = 0; i < rows; ++i) so_far_[i] = first_;
    for (int l = LEVELS - 1; l >= 0; --l) {
      if (count_ >> l & 1) {
        ST_SIMD for (int i = 0; i < rows; ++i) so_far_[i] = C::combine(so_far_[i], sums_[l][i]);
      }
    }
  }

 private:
  const T first_;
  uint64_t count_;
  alignas(64) T so_far_[N], sums_[LEVELS][N];
};

// Eight chains side by side, each as long as the turn allows.
template <class C, class Before> ST_FN void scan_lanes(typename C::T* values, int count, Before& carried) {
  using T = typename C::T;
  constexpr int chains = 8;
  const int length = count / chains;
  for (int i = 1; i < length; ++i) {
    _Pragma("GCC unroll 8") for (int c = 0; c < chains; ++c) {
      values[c * length + i] = C::combine(values[c * length + i - 1], values[c * length + i]);
    }
  }
  const int left = length ? chains * length : 1;
  for (int i = left; i < count; ++i) values[i] = C::combine(values[i - 1], values[i]);
  // The last chain goes on into what is left over, and every chain but the first still lacks those before it.
  if (length) {
    T before = values[length - 1];
    for (int c = 1; c < chains; ++c) {
      const int end = c == chains - 1 ? count : (c + 1) * length;
      ST_SIMD for (int i = c * length; i < end; ++i) values[i] = C::combine(before, values[i]);
      before = values[end - 1];
    }
  }
  const T total = values[count - 1], so_far = *carried.so_far();
  ST_SIMD for (int i = 0; i < count; ++i) values[i] = C::combine(so_far, values[i]);
  carried.add(&total, 1);
}

// `run` holds the results of the last kRun places at most, without what is carried.
template <class C, class Before>
ST_FN void scan_columns(typename C::T* values, typename C::T* run, int rows, int in_run, Before& carried) {
  if (in_run == 0) {
    ST_SIMD for (int i = 0; i < rows; ++i) run[i] = values[i];
  } else {
    ST_SIMD for (int i = 0; i < rows; ++i) run[i] = C::combine(run[i], values[i]);
  }
  const typename C::T* const so_far = carried.so_far();
  ST_SIMD for (int i = 0; i < rows; ++i) values[i] = C::combine(so_far[i], run[i]);
  if (in_run == kRun - 1) carried.add(run, rows);
}

}  // namespace st

#endif
