// Clusters in a checked launch: neighbouring blocks that reach each other's shared memory and meet at barriers of their own.
#pragma once
#include "checker.h"

namespace checked {

// The block of the cluster whose shared memory a place is in, the running one first; null where it is in none.
inline Block* Checker::holder(const char* data) const {
  if (block_->shared.holds(data)) return block_;
  for (Block* b = cluster_; b < cluster_ + launch_->cluster; ++b) {
    if (b->shared.holds(data)) return b;
  }
  return nullptr;
}

// The running thread accesses another block's shared memory: both have to be there, whatever order blocks run in.
inline void Checker::look_in(Block& peer, int64_t offset, int bytes, bool writes, uint64_t place) {
  if (block_->met == 0) note(ABSENT_BLOCK, kShared, offset, bytes, writes, place).other_block = peer.number;
  peer.visited = {block_->number, thread_, bytes, writes, offset, place, block_->met};
}

inline Block& Checker::member(int64_t rank) const {
  Block* b = cluster_;
  while (b->number % launch_->cluster != rank) ++b;
  return *b;
}

inline char* Checker::peer(char* own, unsigned rank, uint64_t place) {
  if (int64_t(rank) < launch_->cluster) return member(rank).dynamic + (own - block_->dynamic);
  note(ABSENT_BLOCK, kShared, own - block_->dynamic, 0, false, place).other_block = block_->number / launch_->cluster * launch_->cluster + rank;
  return own;
}

// Runs the blocks of a cluster until all have ended, or wait for others outside it. False where the launch cannot go on.
inline bool Checker::run_cluster(Block* first, const int64_t* numbers, int64_t& ended) {
  cluster_ = first;
  for (int64_t k = 0; k < launch_->cluster; ++k) {
    if (first[k].begun) continue;
    if (!spare_.empty()) first[k].stacks = spare_.back(), spare_.pop_back();
    first[k].begin(numbers[k], launch_->threads, launch_->shared_bytes, launch_->static_shared_bytes);
  }
  do {
    for (int64_t k = 0; k < launch_->cluster; ++k) {
      block_ = first + k;
      if (block_->done || block_->count(AT_CLUSTER_BARRIER)) continue;
      if (!run_block()) return false;
      ended += block_->done;
    }
  } while (open_cluster());
  end_cluster();
  return true;
}

// Lets the blocks of a cluster go on from its barrier when none is on its way there; whether any did.
inline bool Checker::open_cluster() {
  int64_t there = 0, gone = 0;
  for (Block* b = cluster_; b < cluster_ + launch_->cluster; ++b) {
    if (b->count(WAITING)) return false;
    there += b->count(AT_CLUSTER_BARRIER) > 0;
    gone += b->count(DONE);
  }
  for (Block* b = cluster_; there > 0 && b < cluster_ + launch_->cluster; ++b) {
    if (b->done) continue;
    block_ = b, thread_ = 0;
    for (int t = launch_->threads - 1; t >= 0; --t) thread_ = b->fibers[t].state == AT_CLUSTER_BARRIER ? t : thread_;
    if (gone) {
      Finding& f = note(DIVERGENT_BARRIER, kNoBuffer, gone, 0, false, b->fibers[thread_].place);
      f.other_block = b->number, f.other_thread = b->count(AT_CLUSTER_BARRIER);
      gone = 0;
    }
    for (Fiber& f : b->fibers) f.state = f.state == AT_CLUSTER_BARRIER ? READY : f.state;
    ++b->met;
    new_interval();
  }
  return there > 0;
}

// What blocks did in each other's shared memory after the last barrier of all may have come too late.
inline void Checker::end_cluster() {
  for (Block* b = cluster_; b < cluster_ + launch_->cluster; ++b) {
    if (!b->done) return;
  }
  for (Block* b = cluster_; b < cluster_ + launch_->cluster; ++b) {
    const Visit& v = b->visited;
    if (v.block >= 0 && v.met >= b->met && v.met > 0) {
      block_ = &member(v.block % launch_->cluster), thread_ = v.thread;
      note(ABSENT_BLOCK, kShared, v.offset, v.bytes, v.writes, v.place).other_block = b->number;
    }
    b->forget();
  }
}

}  // namespace checked
