// What each lane of a warp does between two meetings, put side by side: which lanes make an access together, as on a GPU whose threads come
// together again as soon as the code lets them.
//
// Of the lanes' next events the one first in the code goes first, a called function before its caller: code is laid out so that lanes which
// skip something, or leave a loop early, are then waited for behind it (Collange: Stack-less SIMT reconvergence at low cost, 2011).
#pragma once
#include <algorithm>

#include "memory.h"

namespace checked {

constexpr int kWarp = 32;

struct Event {
  uint64_t place;    // in the code
  uint64_t depth;    // bytes of stack in use
  const char* data;  // what is accessed; null where the event is that the lane is here
  int32_t bytes, buffer;
  Access access;
  bool before(const Event& other) const { return depth != other.depth ? depth > other.depth : place < other.place; }
  bool with(const Event& other) const { return depth == other.depth && place == other.place; }
};

// The next events of one lane; emptied by the front before it is filled again.
class Events {
 public:
  static constexpr int kMost = 512;
  bool empty() const { return next_ == count_; }
  bool full() const { return count_ == kMost; }
  const Event& front() const { return all_[next_]; }
  void pop() {
    if (++next_ == count_) next_ = count_ = 0;
  }
  void push(const Event& event) { all_[count_++] = event; }
  void clear() { next_ = count_ = 0; }

 private:
  Event all_[kMost + 8];  // one access may be several events
  int next_ = 0, count_ = 0;
};

// Counts what accesses of whole warps cost.
class Costs {
 public:
  uint64_t wavefronts = 0, least_wavefronts = 0;

  void clear() { wavefronts = least_wavefronts = stamp_ = brought_ = 0; }

  // Sectors of one access of `count` lanes to global memory, each noted for the buffer it is in.
  void global(Memory& memory, const Event* const* lanes, int count, int64_t block, uint64_t phase) {
    uint64_t sectors[kWarp * 2];
    while (count > 0) {
      const int buffer = lanes[0]->buffer;
      const bool read = lanes[0]->access != Access::WRITE, write = lanes[0]->access != Access::READ;
      Global& g = memory[buffer];
      int found = 0, others = 0;
      const Event* rest[kWarp];
      Traffic& t = g.told->traffic;
      for (int k = 0; k < count; ++k) {
        if (lanes[k]->buffer != buffer) {
          rest[others++] = lanes[k];
          continue;
        }
        const uint64_t offset = lanes[k]->data - g.data;
        for (uint64_t s = offset / kSector; s <= (offset + lanes[k]->bytes - 1) / kSector; ++s) sectors[found++] = s;
        t.bytes_read += read ? lanes[k]->bytes : 0;
        t.bytes_written += write ? lanes[k]->bytes : 0;
      }
      std::sort(sectors, sectors + found);
      const int distinct = int(std::unique(sectors, sectors + found) - sectors);
      ++t.accesses;
      t.read_by_warps += read ? distinct : 0;
      t.written_by_warps += write ? distinct : 0;
      const uint64_t stamp = (phase << 40) + uint64_t(block) + 1;
      if (stamp != stamp_) stamp_ = stamp, brought_ = 0;
      const uint8_t seen = uint8_t(phase % 255 + 1);
      for (int k = 0; k < distinct; ++k) {
        const uint64_t s = sectors[k];
        if (read) note(g.read_by_block, g.seen.data + 2 * s, s, seen, t.read_by_blocks, t.read, t.again);
        if (write) note(g.written_by_block, g.seen.data + 2 * s + 1, s, seen, t.written_by_blocks, t.written, nullptr);
      }
      std::copy(rest, rest + others, const_cast<const Event**>(lanes));
      count = others;
    }
  }

  // Wavefronts of one access to shared memory beyond the fewest that its words could be had in. Accesses of 8 and 16 bytes are made by half
  // and quarter warps.
  int shared(const Event* const* lanes, const int* numbers, int count) {
    const int bytes = lanes[0]->bytes, together = bytes > 8 ? 8 : bytes > 4 ? 16 : kWarp;
    int extra = 0;
    for (int first = 0; first < kWarp; first += together) {
      uint64_t words[kWarp * 4];
      int found = 0;
      for (int k = 0; k < count; ++k) {
        if (numbers[k] < first || numbers[k] >= first + together) continue;
        const uint64_t at = reinterpret_cast<uint64_t>(lanes[k]->data);
        for (uint64_t w = at / 4; w <= (at + lanes[k]->bytes - 1) / 4 && found < kWarp * 4; ++w) words[found++] = w;
      }
      if (found == 0) continue;
      std::sort(words, words + found);
      const int distinct = int(std::unique(words, words + found) - words);
      int of_bank[32] = {}, most = 0;
      for (int k = 0; k < distinct; ++k) most = std::max(most, ++of_bank[words[k] % 32]);
      const int least = (distinct + 31) / 32;
      wavefronts += most, least_wavefronts += least;
      extra += most - least;
    }
    return extra;
  }

 private:
  void note(Region& by_block, char* seen, uint64_t sector, uint8_t phase, uint64_t& blocks, uint64_t& all, uint64_t* again) {
    Brought& last = reinterpret_cast<Brought*>(by_block.data)[sector];
    const uint64_t between = brought_ - last.count;
    if (last.by != stamp_) {
      ++blocks;
      last = {stamp_, ++brought_};
    } else if (between > kNear) {
      if (again) ++again[63 - __builtin_clzll(between)];
      last.count = ++brought_;
    }
    all += uint8_t(*seen) != phase;
    *seen = char(phase);
  }

  // Sectors that stay with a multiprocessor for a moment.
  static constexpr uint64_t kNear = 256;
  uint64_t stamp_ = 0, brought_ = 0;
};

}  // namespace checked
