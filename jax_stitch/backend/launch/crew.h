// Threads of our own that help with short calls, and stay awake for a while after each.
//
// A thread of XLA's pool that sleeps takes up to 100 microseconds to come, where the processor that it sleeps on is a
// virtual one longer than many kernels take; whether one is still awake is the pool's to decide, and differs from process
// to process. One of these waits busily for the next call as long as waking it would take, and gives its core to
// whoever else wants it meanwhile.
#pragma once
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>

#include <atomic>
#include <new>

#include "waits.h"

namespace {

// How long a thread waits busily, and how often it then lets others have its core.
constexpr int64_t kAwakeNanoseconds = 60000, kYieldNanoseconds = 4000;
constexpr int kMostCrew = 64;

// How the calling thread rounds, and whether it reads subnormal numbers as zero: XLA's do, a new thread does not.
#if defined(__x86_64__)
using Rounding = unsigned;
Rounding GetRounding() { return __builtin_ia32_stmxcsr(); }
void SetRounding(Rounding rounding) { __builtin_ia32_ldmxcsr(rounding); }
#elif defined(__aarch64__)
using Rounding = uint64_t;
Rounding GetRounding() {
  Rounding rounding;
  asm volatile("mrs %0, fpcr" : "=r"(rounding));
  return rounding;
}
void SetRounding(Rounding rounding) { asm volatile("msr fpcr, %0" : : "r"(rounding)); }
#else
using Rounding = int;
Rounding GetRounding() { return 0; }
void SetRounding(Rounding) {}
#endif

// One of the threads. Whoever turns its state from awake or asleep to claimed gives it one task.
class Hand {
 public:
  // Its thread, on the cores of the calling one. It gets no signals: those are for threads of Python.
  void Start() {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_t thread;
    const bool started = pthread_create(&thread, nullptr, Live, this) == 0;
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (!started) return;  // It stays claimed, and nobody gives it anything.
    pthread_detach(thread);
    state_.store(kAwake, std::memory_order_release);
  }

  // Gives it a task; false where it has one.
  bool Take(void (*task)(void*), void* argument) {
    int state = state_.load(std::memory_order_relaxed);
    if ((state != kAwake && state != kAsleep) || !state_.compare_exchange_strong(state, kClaimed)) return false;
    task_ = task;
    argument_ = argument;
    rounding_ = GetRounding();
    state_.store(kReady, std::memory_order_release);
    if (state == kAsleep) {
      pthread_mutex_lock(&mutex_);
      pthread_mutex_unlock(&mutex_);
      pthread_cond_signal(&wakes_);
    }
    return true;
  }

 private:
  enum State { kAwake, kAsleep, kClaimed, kReady };

  // The thread's whole life.
  static void* Live(void* object) {
    Hand& hand = *static_cast<Hand*>(object);
    while (true) {
      hand.Wait();
      SetRounding(hand.rounding_);
      hand.task_(hand.argument_);
      hand.state_.store(kAwake, std::memory_order_release);
    }
    return nullptr;
  }

  // Until it has a task: awake for a while, then asleep.
  void Wait() {
    int64_t since = Nanoseconds();
    const int64_t until = since + kAwakeNanoseconds;
    while (true) {
      for (int turn = 0; turn < 16; ++turn) {
        if (state_.load(std::memory_order_acquire) == kReady) return;
        Pause();
      }
      const int64_t now = Nanoseconds();
      if (now > until) break;
      if (now - since < kYieldNanoseconds) continue;
      sched_yield();
      since = Nanoseconds();
    }
    pthread_mutex_lock(&mutex_);
    for (int state = state_.load(std::memory_order_acquire); state != kReady; state = state_.load(std::memory_order_acquire)) {
      if (state == kAwake) state_.compare_exchange_strong(state, kAsleep);
      if (state == kAsleep) pthread_cond_wait(&wakes_, &mutex_);
    }
    pthread_mutex_unlock(&mutex_);
  }

  alignas(64) std::atomic<int> state_{kClaimed};
  Rounding rounding_;
  void (*task_)(void*);
  void* argument_;
  pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t wakes_ = PTHREAD_COND_INITIALIZER;
};

std::atomic<Hand*> crew[kMostCrew];

// A forked process has none of its parent's threads.
void Forsake() {
  for (auto& place : crew) place.store(nullptr, std::memory_order_relaxed);
}

// Has up to `count` of at most `most` threads do a task; how many do.
int64_t Employ(int64_t count, int64_t most, void (*task)(void*), void* argument) {
  static const bool fork_is_known = pthread_atfork(nullptr, nullptr, Forsake) == 0;
  int64_t employed = 0;
  for (int64_t i = 0; fork_is_known && i < most && i < kMostCrew && employed < count; ++i) {
    Hand* hand = crew[i].load(std::memory_order_acquire);
    if (hand == nullptr) {
      Hand* const made = new (std::nothrow) Hand();
      if (made == nullptr) break;
      if (crew[i].compare_exchange_strong(hand, made)) {
        hand = made;
        hand->Start();
      } else {
        delete made;
      }
    }
    employed += hand->Take(task, argument);
  }
  return employed;
}

}  // namespace
