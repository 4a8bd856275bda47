// One checked launch: accesses as they happen, meetings of threads, and the blocks' turns.
#pragma once
#include "fibers.h"

namespace checked {

class Checker {
 public:
  Turns turns;

  void run(const Launch& launch, Report& report);

  // -- called by the running thread

  unsigned thread() const { return unsigned(thread_); }
  unsigned block() const { return unsigned(block_->number); }
  unsigned blocks() const { return unsigned(launch_->grid); }
  unsigned threads() const { return unsigned(launch_->threads); }
  char* dynamic() const { return block_->dynamic; }
  char* peer(char* own, unsigned rank, uint64_t place);
  bool active() const { return turns.running != nullptr; }

  void body() {
    launch_->kernel(arguments_.data());
    turns.running->state = DONE;
    turns.yield();
    abort();
  }

  // The thread is at this place of the code.
  void pass(uint64_t place, const char* frame) {
    Fiber& f = *turns.running;
    events_[thread_ % kWarp].push({place, depth(f, frame), nullptr, 0, kNoBuffer, Access::READ});
    if (events_[thread_ % kWarp].full()) turns.yield();
  }

  // It is about to access memory, where an address is to be a multiple of the size if `aligned`; or memory piece by piece.
  void access(const char* data, int bytes, Access kind, bool aligned, uint64_t place, const char* frame);
  void pieces(const char* data, int bytes, Access kind, uint64_t place, const char* frame);
  void arrived();
  void atomic(const char* data, int bytes, uint64_t place, const char* frame);

  uint32_t meet(State state, uint64_t place, uint32_t mask, uint32_t value, uint32_t from) {
    Fiber& f = *turns.running;
    f.state = state, f.place = place, f.mask = mask, f.value = value, f.from = from;
    turns.yield();
    return f.got;
  }

  // The stack that a place of the code runs on is nobody else's memory.
  bool own(const char* data) const { return data >= turns.running->stack - kStack && data < turns.running->stack; }

 private:
  static uint64_t depth(const Fiber& f, const char* frame) { return uint64_t(f.stack - frame); }
  void bytes_touched(Touched* first, int bytes, Access kind, int32_t buffer, int64_t offset, uint64_t place);
  Finding& note(Kind kind, int32_t buffer, int64_t offset, int bytes, bool writes, uint64_t place, uint64_t count = 1);
  bool run_block();
  bool run_cluster(Block* first, const int64_t* numbers, int64_t& ended);
  bool open_cluster();
  void end_cluster();
  Block* holder(const char* data) const;
  Block& member(int64_t rank) const;
  void look_in(Block& peer, int64_t offset, int bytes, bool writes, uint64_t place);
  bool run_warp(int first);
  bool look_on(int first);
  void account(const int* lanes, int count, int first);
  bool shuffle(int first, bool forced);
  void new_interval() { block_->interval = intervals_.begin({block_->number, block_->number / launch_->cluster, phase_, block_->met}); }
  void put_shared(bool in);
  void missing_outputs();
  void find_image();

  const Launch* launch_ = nullptr;
  Report* report_ = nullptr;
  uint64_t code_ = 0;  // where this library begins
  Region image_;
  Memory memory_;
  Intervals intervals_;
  Costs costs_;
  std::vector<void*> arguments_;
  Block* block_ = nullptr;
  Block* cluster_ = nullptr;   // the first that is run of those that reach each other's shared memory
  std::vector<Region> spare_;  // stacks of blocks that have ended
  int thread_ = 0;
  uint64_t phase_ = 0, arrivals_ = 0, atomics_ = 0;
  Events events_[kWarp];
};

}  // namespace checked
