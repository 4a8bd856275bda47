// How a host goes over the places of a row where lanes run fastest: in tiles of one place a lane, those of a tile as vectors.
//
//   st::places<index, A, B, TL>(r, kept) << [&](const index j, const index p, const int t) ST_INLINE { ... };
//   st::tiles<index, A, B, TL>(r, kept) << [&](const index j, const index p, const int t) ST_INLINE { ... } << [&]() ST_INLINE { ... };
//
// Places `j` from A on, below B, of the block's row `r`: `p` is where the row keeps what is there, kept(j), and `t` the number of the lane among those of
// all rows. tiles() takes besides what is done after each tile.
//
// What is left of a row at its ends is cut into pieces of constant length, so that the compiler has vectors for them too, shorter ones:
// with one loop of an unknown length, `exp` of the last 15 of 31 places would be called place by place.
#pragma once

#ifndef __CUDACC__

namespace st {

template <bool NARROW> struct Place { using T = int32_t; };
template <> struct Place<false> { using T = int64_t; };

// The tile's lanes from `first` on, `N` of them.
template <int N, class Index, class Body> ST_FN void lanes_of_tile(Index j0, int first, const Body& body) {
  ST_SIMD for (int i = 0; i < N; ++i) body(j0, first + i);
}

// The tile's lanes from FIRST on, below LAST: whole vectors, then half and quarter vectors, then up to three one by one.
template <int FIRST, int LAST, class Index, class Body> ST_FN void part_of_tile(Index j0, const Body& body) {
  constexpr int left = LAST - FIRST, piece = left >= 16 ? left / 16 * 16 : left >= 8 ? 8 : left >= 4 ? 4 : left;
  lanes_of_tile<piece>(j0, FIRST, body);
  if constexpr (piece < left) part_of_tile<FIRST + piece, LAST>(j0, body);
}

// Places from A on, below B, in tiles of TL lanes: `body(j0, lane)` at place j0 + lane, where j0 is a multiple of TL, and `turn()` after each tile.
template <int64_t A, int64_t B, int TL, class Body, class Turn> ST_FN void each_tile(const Body& body, const Turn& turn) {
  // As `index`: 32 bits wherever places are, so that indices computed from them stay as narrow.
  using Index = typename Place<(B <= INT32_MAX)>::T;
  constexpr Index first = A / TL * TL, whole = (A + TL - 1) / TL * TL, end = B / TL * TL;
  if constexpr (first < whole) {
    part_of_tile<int(A - first), int(B - first < TL ? B - first : TL)>(first, body);
    turn();
  }
  for (Index j0 = whole; j0 < end; j0 += TL) {
    lanes_of_tile<TL>(j0, 0, body);
    turn();
  }
  if constexpr (end >= whole && end < B) {
    part_of_tile<0, int(B - end)>(end, body);
    turn();
  }
}

// `body(j, p, t)` at each place of row `r`, and `turn()` after each tile. With ROWS, rows of a block run fastest, so many of them.
template <class Index, int64_t A, int64_t B, int TL, int ROWS = 0, class Kept, class Body, class Turn>
ST_FN void each_place(const int& r, const Kept& kept, const Body& body, const Turn& turn) {
  each_tile<A, B, TL>(
      [&](const Index j0, const int lane) ST_INLINE {
        const Index j = j0 + lane, p = kept(j);
        const int t = ROWS ? lane * ROWS + r : r * TL + lane;
        body(j, p, t);
      },
      turn);
}

template <class Index, int64_t A, int64_t B, int TL, int ROWS, class Kept> struct Places {
  const int r;
  const Kept kept;
  template <class Body> ST_INLINE void operator<<(const Body& body) const {
    each_place<Index, A, B, TL, ROWS>(r, kept, body, []() ST_INLINE {});
  }
};

// With the body that is yet to be followed by what is done after each tile.
template <class Index, int64_t A, int64_t B, int TL, class Kept, class Body> struct BodyOfTiles {
  const int r;
  const Kept kept;
  const Body body;
  template <class Turn> ST_INLINE void operator<<(const Turn& turn) const { each_place<Index, A, B, TL>(r, kept, body, turn); }
};

template <class Index, int64_t A, int64_t B, int TL, class Kept> struct Tiles {
  const int r;
  const Kept kept;
  template <class Body> ST_INLINE BodyOfTiles<Index, A, B, TL, Kept, Body> operator<<(const Body& body) const { return {r, kept, body}; }
};

template <class Index, int64_t A, int64_t B, int TL, int ROWS = 0, class Kept> ST_FN Places<Index, A, B, TL, ROWS, Kept> places(const int& r, const Kept& kept) {
  return {r, kept};
}

template <class Index, int64_t A, int64_t B, int TL, class Kept> ST_FN Tiles<Index, A, B, TL, Kept> tiles(const int& r, const Kept& kept) {
  return {r, kept};
}

}  // namespace st

#endif
