// Passes over places in runs, in schedules for a CPU alone: place `run * P + j`, `j` below P.
//
//   ST_EACH_RUN(n, P) { ... }                     each run of n places, around one or more of
//   ST_EACH_IN_SEGMENT(j, n, P, A, B) { ... };    its places from A on, below B; ST_EACH_TILE_IN_SEGMENT as ST_EACH_TILE
//   ST_EACH_RUN_OUTSIDE(n, P) { ... }             each run, around the rows where these run fastest and a run is what lies
//   ST_EACH_OF_RUN(j, P) { ... }                  between neighbouring rows; inside them, its places
//   ST_FETCH_AHEAD(buffer, at, step)              at a place, around its rows: asks for those of the next place
#pragma once

#ifndef __CUDACC__

#define ST_EACH_RUN ST_RUNS_
// Each lane has the places that it would have in the whole run.
#define ST_EACH_IN_SEGMENT(j, n, P, A, B) ST_PLACES_(j, A, B, r_ * index(n) + run * (P))
#define ST_EACH_IN_SEGMENT_UNROLLED ST_EACH_IN_SEGMENT
#define ST_EACH_TILE_IN_SEGMENT(j, n, P, A, B) ST_TILES_(j, A, B, r_ * index(n) + run * (P))
#define ST_EACH_TILE_IN_SEGMENT_UNROLLED ST_EACH_TILE_IN_SEGMENT
#define ST_EACH_RUN_OUTSIDE(n, P)                                                  \
  for (int lane_ = 0; lane_ < TL_; ++lane_)                                        \
    for (index run = st::run_start(lane_, (n) / (P), TL_); run < st::run_start(lane_ + 1, (n) / (P), TL_); ++run) \
      ST_WITH_(index place_ = run)
// Asks for what rows have `step` elements after `at`, an index in terms of `row`; past the end of a buffer that does nothing.
#define ST_FETCH_AHEAD(buffer, at, step)                                           \
  for (int r_ = 0; r_ < active_; r_ += int(64 / sizeof(*(buffer)))) {              \
    const index row = row0_ + r_;                                                  \
    __builtin_prefetch((buffer) + (at) + (step));                                  \
  }
#define ST_EACH_OF_RUN(j, P)                                                       \
  _Pragma("GCC unroll 16") for (index j = 0; j < (P); ++j) ST_WITH_(index p_ = (run * (P) + j) * TR_ + r_)

#endif
