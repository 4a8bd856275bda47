// What the checker is given and what it tells, as jax_stitch/checking/native.py reads it too.
#pragma once
#include <stdint.h>

namespace checked {

enum Kind : int32_t {
  OUT_OF_BOUNDS = 0,
  MISALIGNED,
  UNWRITTEN,         // read, and nothing had written it
  WRITTEN_INPUT,     // a write to what is only read
  RACE,
  DIVERGENT_BARRIER, // that not all threads of the block reach
  DIVERGENT_SHUFFLE, // that not all its lanes reach together
  BANK_CONFLICT,
  NO_END,            // blocks that wait for what none of them does
  MISSING_OUTPUT,    // bytes of an output that no block wrote
  ABSENT_BLOCK,      // shared memory of another block that may not have begun, or have ended
};

// Numbers for buffers that are none.
constexpr int32_t kNoBuffer = -1, kShared = -2;

struct Finding {
  int32_t kind, buffer;
  int64_t offset;  // bytes from the buffer's start
  int64_t block, other_block;
  int32_t thread, other_thread;
  int32_t bytes, writes;
  uint64_t place;  // of the code, from the start of the library
  uint64_t count;  // how often the same was found at this place; extra wavefronts for bank conflicts
};

constexpr int kDistances = 32;

struct Traffic {
  // 32-byte sectors: of each access of a warp; those that each block touches, once a block; those touched at all, once a phase of the grid.
  uint64_t read_by_warps, written_by_warps, read_by_blocks, written_by_blocks, read, written;
  uint64_t bytes_read, bytes_written;  // as the threads asked for them
  uint64_t accesses;                   // by warps
  // Sectors that a block reads again, by the binary logarithm of how many others it has brought in meanwhile.
  uint64_t again[kDistances];
};

struct Buffer {
  const void* content;  // what it holds first; null: zeros
  void* result;         // where to copy what it holds at last; null: nowhere
  int64_t bytes;
  int32_t writable, initialised;
  int32_t over;  // the number of the buffer whose memory it is; -1: its own
  Traffic traffic;
};

struct Launch {
  void (*kernel)(void** buffers);
  Buffer* buffers;
  int32_t buffer_count, threads;
  int64_t grid, shared_bytes;
  const int64_t* blocks;  // those to run, of `grid`
  int64_t block_count;
  char* static_shared;
  int64_t static_shared_bytes;
  void* arrivals;  // where blocks meet
  int64_t arrivals_bytes;
  int64_t cluster;  // neighbouring blocks that reach each other's shared memory
};

struct Report {
  Finding* findings;
  int32_t most_findings, finding_count;
  uint64_t shared_wavefronts, least_shared_wavefronts;
  int32_t stopped;  // at an access that cannot be carried out
  int32_t padding;
};

}  // namespace checked
