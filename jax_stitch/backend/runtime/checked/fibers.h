// The threads of a launch, which take turns on one thread of the CPU. A thread runs until it has to wait, or its warp has enough to look at.
#pragma once
#include <setjmp.h>
#include <ucontext.h>

#include "lockstep.h"

namespace checked {

enum State : uint8_t { READY, AT_BARRIER, AT_CLUSTER_BARRIER, AT_SHUFFLE, WAITING, DONE };

struct Fiber {
  jmp_buf here;
  State state = READY;
  bool started = false;
  char* stack = nullptr;  // its end
  uint64_t place = 0;     // where it waits
  uint32_t mask = 0, value = 0, from = 0, got = 0;
};

constexpr uint64_t kStack = 1 << 20;

// A block's access to the shared memory of another.
struct Visit {
  int64_t block = -1;  // that came
  int thread = 0, bytes = 0;
  bool writes = false;
  int64_t offset = 0;
  uint64_t place = 0, met = 0;
};

// A block that has begun, with what it has of its own.
struct Block {
  int64_t number = 0;
  uint32_t interval = 0;
  uint64_t met = 0;  // how often it has met the others of its cluster
  Visit visited;     // last
  std::vector<Fiber> fibers;
  Region stacks, shared, shadow;  // a Touched for each byte of shared memory, static memory after the dynamic
  std::vector<char> static_shared;
  char* dynamic = nullptr;
  bool begun = false, done = false;

  void begin(int64_t which, int threads, int64_t dynamic_bytes, int64_t static_bytes) {
    number = which;
    fibers.assign(threads, Fiber());
    if (!stacks.data) stacks.take(kStack * threads);  // else those of a block that has ended
    for (int t = 0; t < threads; ++t) fibers[t].stack = stacks.data + kStack * (t + 1);
    shared.take(dynamic_bytes + 2 * kRoom);
    dynamic = shared.data + kRoom;
    memset(dynamic, 0xa5, dynamic_bytes);
    static_shared.assign(static_bytes, char(0xa5));
    shadow.take((dynamic_bytes + static_bytes + 1) * sizeof(Touched));
    begun = true, done = false;
  }
  // Leaves its threads' stacks to another. Its shared memory stays, for who looks there too late.
  Region end() {
    const Region left = stacks;
    stacks = Region();
    done = true;
    return left;
  }
  void forget() { shared.release(), shadow.release(); }
  int count(State state) const {
    int found = 0;
    for (const Fiber& f : fibers) found += f.state == state;
    return found;
  }
  static constexpr int64_t kRoom = 1 << 20;  // for what goes astray, within reach of no other memory
};

// Runs a fiber until it yields.
class Turns {
 public:
  Fiber* running = nullptr;
  void (*body)() = nullptr;

  // False where the launch cannot go on.
  bool resume(Fiber& fiber) {
    running = &fiber;
    const int came_back = _setjmp(scheduler_);
    if (came_back == 0) {
      if (fiber.started) _longjmp(fiber.here, 1);
      fiber.started = true;
      ucontext_t fresh;
      getcontext(&fresh);
      fresh.uc_stack = {fiber.stack - kStack, 0, kStack};
      fresh.uc_link = nullptr;
      makecontext(&fresh, body, 0);
      setcontext(&fresh);
    }
    running = nullptr;
    return came_back == 1;
  }
  void yield() {
    if (_setjmp(running->here) == 0) _longjmp(scheduler_, 1);
  }
  [[noreturn]] void stop() { _longjmp(scheduler_, 2); }

 private:
  jmp_buf scheduler_;
};

}  // namespace checked
