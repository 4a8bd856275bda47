// A thread of Python that gives way to the others at each call that it makes.
//
// As a profiling function of Python's own interface it costs a few nanoseconds a call; one in Python makes a dictionary
// of the frame's variables each time, and takes as long as what it watches.
#pragma once
#include <stdint.h>
#include <time.h>

#include <atomic>

#include "waits.h"

namespace {

// What it needs of Python, given as addresses: the library is not linked with it.
struct Python {
  void* (*save_thread)();
  void (*restore_thread)(void*);
  void* (*call_one_argument)(void*, void*);
  void (*release)(void*);
};

// PyTrace_CALL: a Python function is entered.
constexpr int kCall = 0;
// The clock is looked at once in so many calls and returns.
constexpr unsigned kEvents = 8;

Python python;
int64_t slice, rest;
std::atomic<bool> stopping{false};

}  // namespace

// Nanoseconds of work between two rests, and of a rest. It has to be longer than another thread takes to wake up, and
// short: a processor that was idle for a millisecond is slow for as long.
extern "C" void jax_stitch_set_yielding(const Python* functions, int64_t slice_ns, int64_t rest_ns) {
  python = *functions;
  slice = slice_ns;
  rest = rest_ns;
}

// From now on `stopped` is called with the frame of each function that is entered: it may raise.
extern "C" void jax_stitch_stop_yielding() { stopping.store(true, std::memory_order_relaxed); }

// A ``Py_tracefunc``.
extern "C" int jax_stitch_yield(void* stopped, void* frame, int what, void*) {
  static thread_local unsigned events = 0;
  static thread_local int64_t since = 0;
  if (stopping.load(std::memory_order_relaxed)) {
    if (what != kCall) return 0;
    void* const result = python.call_one_argument(stopped, frame);
    if (result == nullptr) return -1;
    python.release(result);
    return 0;
  }
  if (++events % kEvents != 0) return 0;
  if (Nanoseconds() - since <= slice) return 0;
  void* const thread = python.save_thread();
  const timespec pause = {0, static_cast<long>(rest)};
  nanosleep(&pause, nullptr);
  python.restore_thread(thread);
  since = Nanoseconds();
  return 0;
}
