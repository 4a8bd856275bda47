// A team of one thread on a host whose heavy sweeps are divided among threads (ST_HELPED_TEAM in team.h).
//
// As many blocks as a divided sweep has pieces may run, each by a thread of its own. The first to come leads: it does all of the kernel, opens each
// divided sweep, does the first piece, then every other that nobody has taken, and waits only for those that somebody has. The others help: they
// go through the same sweeps, do nothing in those that are not divided, and take pieces of those that are, for as long as they are open. So nobody waits for
// a thread that has not come: one thread alone can do all blocks, and helpers may come late or never. A helper reads nothing of what the team caches
// unless it has taken a piece. Which thread does a piece changes no result.
//
// Two caches may be so far apart that help costs more than it saves. The leader has the times of steps with help and without, sends helpers
// away where those with help are no shorter, and tells the launcher, which then calls without any for a while. So it does where nobody helped in
// most steps: helpers have no core of their own then, and the time that they take is the leader's.
#pragma once

extern "C" int sched_yield(void) noexcept;

namespace st {

// What the threads of a call share: zero at first. A word is one number of a sweep, ascending; each group of words has its own lines.
struct Meeting {
  struct alignas(64) Piece {
    int64_t taken, done;  // the last sweep of which somebody has taken this piece, and of which a helper has done it
  };
  alignas(64) int32_t arrived;
  int32_t useless;             // whether the call was no shorter with helpers: for the launcher
  alignas(64) int64_t opened;  // the last divided sweep that the leader has opened
  char* memory;                // where the leader has what the team caches
  Piece pieces[4];
};
static_assert(sizeof(Meeting) <= 512, "the launcher has 512 bytes");

namespace detail {

constexpr int64_t kOver = INT64_MAX;  // The number of no sweep: the leader needs nobody any more.
constexpr int kAloneSteps = 2, kWeighedSteps = 4;  // steps that are timed without help first, and those with help before a decision
constexpr int kSpins = 1000;                       // turns of a busy wait, some 30 microseconds, before others may have the core

ST_FN int64_t ticks() {
#if defined(__x86_64__) || defined(__i386__)
  return int64_t(__builtin_ia32_rdtsc());
#elif defined(__aarch64__)
  int64_t now;
  asm volatile("mrs %0, cntvct_el0" : "=r"(now));
  return now;
#else
  return 0;  // No step is longer than another.
#endif
}

// The number once it is no less than `least`; what was written before it is visible.
static __attribute__((noinline)) int64_t wait_until(const int64_t* number, int64_t least) {
  for (int turn = 0;; ++turn) {
    const int64_t now = __atomic_load_n(number, __ATOMIC_ACQUIRE);
    if (now >= least) return now;
    if (turn >= kSpins) {
      sched_yield();
      continue;
    }
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }
}

}  // namespace detail

// A thread's part in a call.
class Member {
 public:
  // Without an `area` to meet in, block 0 is alone. `sweeps` of each step are divided, in so many `pieces`.
  Member(void* area, int64_t block, int pieces, int sweeps, char* own)
      : meeting_(static_cast<Meeting*>(area)), memory_(own), pieces_(pieces), sweeps_(sweeps) {
    const int number = meeting_ ? __atomic_fetch_add(&meeting_->arrived, 1, __ATOMIC_RELAXED) : int(block);
    leads_ = number == 0;
    works_ = leads_;
    if (!meeting_) return;
    first_ = number;
    if (leads_) {
      meeting_->memory = own;
    } else if (number < pieces) {
      seen_ = detail::wait_until(&meeting_->opened, 1);
      memory_ = meeting_->memory;
      works_ = seen_ != detail::kOver;
    }
  }
  ~Member() {
    if (leads_ && meeting_ && weighed_ * 4 < steps_) meeting_->useless = 1;
    if (leads_) dismiss();
  }
  Member(const Member&) = delete;

  bool leads() const { return leads_; }
  bool works() const { return works_; }
  char* memory() const { return memory_; }

 private:
  friend class Pieces;

  // Helpers take nothing from here on.
  void dismiss() {
    if (meeting_) __atomic_store_n(&meeting_->opened, detail::kOver, __ATOMIC_RELEASE);
    meeting_ = nullptr;
  }

  // Before the first divided sweep of a step: what the last one took.
  void weigh() {
    const int64_t now = detail::ticks(), took = now - since_;
    since_ = now;
    if (steps_++ == 0) return;
    if (!helped_) {
      if (took < alone_) alone_ = took;
      return;
    }
    helped_ = false;
    if (took < joint_) joint_ = took;
    if (++weighed_ % detail::kWeighedSteps) return;
    if (joint_ > alone_) {
      meeting_->useless = 1;
      dismiss();
    }
    joint_ = INT64_MAX;
  }

  // The leader comes to a sweep: how many pieces it has.
  int open() {
    if (!meeting_) return 1;
    if (sweep_ % sweeps_ == 0) weigh();
    ++sweep_;
    if (!meeting_ || steps_ <= detail::kAloneSteps) return 1;
    __atomic_store_n(&meeting_->opened, sweep_, __ATOMIC_RELEASE);
    return pieces_;
  }

  // A helper comes to a sweep: the same, none where the leader has passed it.
  int join() {
    ++sweep_;
    if (seen_ < sweep_) seen_ = detail::wait_until(&meeting_->opened, sweep_);
    return seen_ == sweep_ ? pieces_ : 0;
  }

  bool take(int piece) {
    int64_t* const taken = &meeting_->pieces[piece].taken;
    int64_t before = __atomic_load_n(taken, __ATOMIC_RELAXED);
    return before < sweep_ && __atomic_compare_exchange_n(taken, &before, sweep_, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
  }

  void done(int piece) { __atomic_store_n(&meeting_->pieces[piece].done, sweep_, __ATOMIC_RELEASE); }
  void wait(int piece) {
    helped_ = true;
    detail::wait_until(&meeting_->pieces[piece].done, sweep_);
  }

  Meeting* meeting_;
  char* memory_;
  const int pieces_, sweeps_;
  int first_ = 0;  // the piece that a thread takes first, so that it finds in its caches what it has read in the last step
  bool leads_, works_, helped_ = false;
  int steps_ = 0, weighed_ = 0;
  int64_t sweep_ = 0, seen_ = 0, since_ = 0, alone_ = INT64_MAX, joint_ = INT64_MAX;
};

// The pieces of a divided sweep that a thread does, one after the other.
class Pieces {
 public:
  explicit __attribute__((noinline)) Pieces(Member& member) : member_(member) {
    count_ = member.leads_ ? member.open() : member.join();
    piece_ = -1;
    if (member.leads_) {
      piece_ = 0;
    } else {
      find();
    }
  }
  bool has() const { return piece_ >= 0; }
  __attribute__((noinline)) void next() {
    if (member_.leads_) {
      while (++tried_ < count_) {
        piece_ = tried_;
        if (member_.take(piece_)) return;
        others_ |= 1 << piece_;
      }
      piece_ = -1;
      for (int piece = 1; piece < count_; ++piece) {
        if (others_ >> piece & 1) member_.wait(piece);
      }
    } else {
      member_.done(piece_);
      ++tried_;
      find();
    }
  }
  // The bounds of `piece` among so many places, whole `unit`s of them: vectors, and lines of memory.
  int64_t first(int64_t places, int64_t unit) const { return bound(piece_, places, unit); }
  int64_t end(int64_t places, int64_t unit) const { return bound(piece_ + 1, places, unit); }

 private:
  int64_t bound(int piece, int64_t places, int64_t unit) const {
    const int64_t at = (places + unit - 1) / unit * piece / count_ * unit;
    return at < places ? at : places;
  }
  // A helper's next piece: its own first; the first of all is the leader's.
  void find() {
    for (; tried_ < count_; ++tried_) {
      piece_ = (member_.first_ + tried_) % count_;
      if (piece_ != 0 && member_.take(piece_)) return;
    }
    piece_ = -1;
  }

  Member& member_;
  int count_, piece_, tried_ = 0, others_ = 0;
};

}  // namespace st
