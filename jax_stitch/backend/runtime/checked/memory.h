// The memory of a checked launch: buffers far from each other, and for every byte of what is written who touched it last.
#pragma once
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <vector>

#include "report.h"

namespace checked {

// Zeroed memory that takes room only where it is touched.
inline char* reserve(uint64_t bytes) {
  void* const found = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (found == MAP_FAILED) {
    fprintf(stderr, "the checking mode finds no room for %llu bytes\n", (unsigned long long)bytes);
    abort();
  }
  return static_cast<char*>(found);
}

struct Region {
  char* data = nullptr;
  uint64_t bytes = 0;
  void take(uint64_t size) {
    release();
    if (size) data = reserve(bytes = size);
  }
  void release() {
    if (data) munmap(data, bytes);
    data = nullptr, bytes = 0;
  }
  bool holds(const char* place) const { return place >= data && place < data + bytes; }
};

// Between two barriers of a block.
struct Interval {
  int64_t block, cluster;
  uint64_t phase;  // of the grid
  uint64_t met;    // how often the blocks of the cluster have met
  // Whether a barrier of several blocks stands between this and another block's.
  bool apart(const Interval& other) const { return phase != other.phase || (cluster == other.cluster && met != other.met); }
};

// Who wrote and who read a byte last. Interval 0 is before the launch: nobody.
struct Touched {
  uint32_t write, writer, read, reader;
};
constexpr uint32_t kAtomic = 1u << 31, kSeveral = 0x7fffffff, kSeveralBlocks = 0x7ffffffe, kSeveralClusters = 0x7ffffffd;

class Intervals {
 public:
  void clear() { all_.assign(1, Interval{-1, -1, 0, 0}); }
  uint32_t begin(const Interval& next) {
    all_.push_back(next);
    return uint32_t(all_.size() - 1);
  }
  const Interval& operator[](uint32_t number) const { return all_[number]; }
  // Whether nothing orders an access of `thread` now and one before it by another.
  bool unordered(uint32_t before, uint32_t who, uint32_t now, uint32_t thread) const {
    if (before == 0) return false;
    who &= ~kAtomic;
    if (who == kSeveralClusters) return all_[before].phase == all_[now].phase;
    if (who == kSeveralBlocks) return !all_[before].apart(all_[now]);
    if (before == now) return who != thread;
    return all_[before].block != all_[now].block && !all_[before].apart(all_[now]);
  }
  // What stands for `thread` now and those before it that nothing orders with it.
  uint32_t together(uint32_t before, uint32_t who, uint32_t now, uint32_t thread) const {
    if (!unordered(before, who, now, thread)) return thread;
    if (who == kSeveralClusters || all_[before].cluster != all_[now].cluster) return kSeveralClusters;
    return who != kSeveralBlocks && all_[before].block == all_[now].block ? kSeveral : kSeveralBlocks;
  }

 private:
  std::vector<Interval> all_;
};

enum class Access { READ, WRITE, ATOMIC };

struct Clash {
  bool unwritten = false, race = false;
  uint32_t interval = 0, thread = 0;
  bool wrote = false;
};

// Notes an access to one byte and tells what is wrong with it.
inline void touch(Touched& byte, const Intervals& intervals, uint32_t now, uint32_t thread, Access access, Clash& clash) {
  if (access != Access::WRITE && byte.write == 0) clash.unwritten = true;
  const bool both_atomic = access == Access::ATOMIC && (byte.writer & kAtomic);
  if (!both_atomic && intervals.unordered(byte.write, byte.writer, now, thread)) {
    clash.race = clash.wrote = true;
    clash.interval = byte.write, clash.thread = byte.writer & ~kAtomic;
  }
  if (access == Access::READ) {
    byte.reader = intervals.together(byte.read, byte.reader, now, thread);
    byte.read = now;
    return;
  }
  if (intervals.unordered(byte.read, byte.reader, now, thread)) {
    clash.race = true;
    clash.interval = byte.read, clash.thread = byte.reader;
  }
  byte.writer = both_atomic ? kAtomic | intervals.together(byte.write, byte.writer & ~kAtomic, now, thread)
                            : access == Access::ATOMIC ? kAtomic | thread : thread;
  byte.write = now;
}

// A sector's last block, and how many sectors that had brought in by then.
struct Brought {
  uint64_t by, count;
};

// A buffer in global memory.
struct Global {
  Buffer* told = nullptr;
  char* data = nullptr;
  Region shadow;                     // a Touched for each byte, where it may be written
  Region read_by_block, written_by_block, seen;  // per sector: two Brought, and whether in this phase
  Touched* touched() { return reinterpret_cast<Touched*>(shadow.data); }
};

constexpr uint64_t kGuard = 1 << 26, kSector = 32;

// All buffers of a launch. Each has a slot of its own, with room before and after for what goes astray.
class Memory {
 public:
  void take(const Launch& launch) {
    uint64_t largest = 0;
    for (int k = 0; k < launch.buffer_count; ++k) largest = launch.buffers[k].bytes > int64_t(largest) ? launch.buffers[k].bytes : largest;
    shift_ = 20;
    while ((1ull << shift_) < largest + 2 * kGuard) ++shift_;
    arena_.take(uint64_t(launch.buffer_count + 1) << shift_);
    // Buffers begin where XLA's do on a GPU.
    first_ = reinterpret_cast<char*>((reinterpret_cast<uint64_t>(arena_.data) + 255) / 256 * 256);
    globals_.assign(launch.buffer_count, Global());
    for (int k = 0; k < launch.buffer_count; ++k) {
      Global& g = globals_[k];
      g.told = &launch.buffers[k];
      g.data = first_ + (uint64_t(k) << shift_) + kGuard;
      const uint64_t bytes = g.told->bytes, sectors = (bytes + kSector - 1) / kSector + 1;
      if (g.told->content) memcpy(g.data, g.told->content, bytes);
      if (g.told->writable) g.shadow.take(bytes * sizeof(Touched));
      g.read_by_block.take(sectors * sizeof(Brought));
      g.written_by_block.take(sectors * sizeof(Brought));
      g.seen.take(sectors * 2);
    }
  }
  void give_back() {
    for (Global& g : globals_) {
      if (g.told->result) memcpy(g.told->result, g.data, g.told->bytes);
      g.shadow.release(), g.read_by_block.release(), g.written_by_block.release(), g.seen.release();
    }
    arena_.release();
  }
  bool holds(const char* place) const { return arena_.holds(place); }
  // The buffer whose slot a place is in, for a place that `holds`.
  int slot(const char* place) const {
    const int64_t found = place < first_ ? 0 : int64_t(uint64_t(place - first_) >> shift_);
    return found < int64_t(globals_.size()) ? int(found) : int(globals_.size()) - 1;
  }
  Global& operator[](int k) { return globals_[k]; }
  int size() const { return int(globals_.size()); }

 private:
  Region arena_;
  char* first_ = nullptr;
  int shift_ = 0;
  std::vector<Global> globals_;
};

}  // namespace checked
