// The checking mode's machine: see checker.h. Linked to one kernel that was compiled with calls to the functions at the end.
#include "clusters.h"

#include <link.h>

namespace checked {

static const char anchor = 0;  // in this library

Finding& Checker::note(Kind kind, int32_t buffer, int64_t offset, int bytes, bool writes, uint64_t place, uint64_t count) {
  static Finding spare;
  place -= place >= code_ ? code_ : place;
  for (int k = 0; k < report_->finding_count; ++k) {
    Finding& f = report_->findings[k];
    if (f.kind == kind && f.place == place && f.buffer == buffer) {
      f.count += count;
      return spare;
    }
  }
  if (report_->finding_count == report_->most_findings) return spare;
  Finding& f = report_->findings[report_->finding_count++];
  f = {kind, buffer, offset, block_ ? block_->number : -1, -1, thread_, -1, bytes, writes, place, count};
  return f;
}

void Checker::bytes_touched(Touched* first, int bytes, Access kind, int32_t buffer, int64_t offset, uint64_t place) {
  Clash clash;
  for (int b = 0; b < bytes; ++b) touch(first[b], intervals_, block_->interval, uint32_t(thread_), kind, clash);
  const bool writes = kind != Access::READ;
  if (clash.unwritten) note(UNWRITTEN, buffer, offset, bytes, writes, place);
  if (!clash.race) return;
  Finding& f = note(RACE, buffer, offset, bytes, writes, place);
  f.other_block = intervals_[clash.interval].block;
  f.other_thread = clash.thread < kSeveralClusters ? int32_t(clash.thread) : -1;
  f.writes = int32_t(writes) + 2 * int32_t(clash.wrote);
}

void Checker::atomic(const char* data, int bytes, uint64_t place, const char* frame) {
  ++atomics_;
  const char* const counters = static_cast<const char*>(launch_->arrivals);
  if (counters && data >= counters && data < counters + launch_->arrivals_bytes) {
    return;
  }
  access(data, bytes, Access::ATOMIC, true, place, frame);
}

void Checker::arrived() {
  // When the last block has arrived, what all did before is before what any does after.
  phase_ = ++arrivals_ / uint64_t(launch_->block_count);
}

void Checker::pieces(const char* data, int bytes, Access kind, uint64_t place, const char* frame) {
  const int piece = reinterpret_cast<uint64_t>(data) % 4 == 0 && bytes % 4 == 0 ? 4 : 1;
  for (int b = 0; b < bytes; b += piece) access(data + b, piece, kind, true, place, frame);
}

void Checker::access(const char* data, int bytes, Access kind, bool aligned, uint64_t place, const char* frame) {
  if (!active() || own(data)) return;
  const bool writes = kind != Access::READ;
  int32_t buffer = kNoBuffer;
  Block* at_home = block_;
  if (memory_.holds(data)) {
    buffer = memory_.slot(data);
    Global& g = memory_[buffer];
    const int64_t offset = data - g.data;
    if (aligned && offset % bytes) note(MISALIGNED, buffer, offset, bytes, writes, place);
    if (offset < 0 || offset + bytes > g.told->bytes) {
      note(OUT_OF_BOUNDS, buffer, offset, bytes, writes, place);
      return;
    }
    if (g.told->writable) {
      bytes_touched(g.touched() + offset, bytes, kind, buffer, offset, place);
    } else if (writes) {
      note(WRITTEN_INPUT, buffer, offset, bytes, writes, place);
    }
  } else {
    const int64_t dynamic = launch_->shared_bytes, fixed = launch_->static_shared_bytes;
    int64_t at;
    if (Block* const found = holder(data)) {
      at_home = found;
      at = data - found->dynamic;
      if (found != block_) look_in(*found, at, bytes, writes, place);
      if (at < 0 || at + bytes > dynamic) {
        note(OUT_OF_BOUNDS, kShared, at, bytes, writes, place);
        return;
      }
    } else if (fixed && data >= launch_->static_shared && data < launch_->static_shared + fixed) {
      at = dynamic + (data - launch_->static_shared);
    } else if (image_.holds(data)) {
      return;  // a table of constants
    } else {
      note(OUT_OF_BOUNDS, kNoBuffer, int64_t(data), bytes, writes, place);
      report_->stopped = 1;
      turns.stop();
    }
    buffer = kShared;
    if (aligned && uint64_t(data) % bytes) note(MISALIGNED, kShared, at, bytes, writes, place);
    bytes_touched(reinterpret_cast<Touched*>(at_home->shadow.data) + at, bytes, kind, kShared, at, place);
  }
  Events& events = events_[thread_ % kWarp];
  // What goes to another block's shared memory takes no turn at this one's banks.
  events.push({place, depth(*turns.running, frame), at_home == block_ ? data : nullptr, bytes, buffer, kind});
  if (events.full()) turns.yield();
}

// What lanes do together.
void Checker::account(const int* lanes, int count, int first) {
  const Event *global[kWarp], *shared[kWarp];
  int globals = 0, shareds = 0, who[kWarp];
  for (int k = 0; k < count; ++k) {
    const Event& e = events_[lanes[k]].front();
    if (!e.data) continue;
    if (e.buffer == kShared) who[shareds] = lanes[k], shared[shareds++] = &e;
    else global[globals++] = &e;
  }
  if (globals) costs_.global(memory_, global, globals, block_->number, phase_);
  if (!shareds) return;
  if (const int extra = costs_.shared(shared, who, shareds)) {
    thread_ = first + who[0];
    note(BANK_CONFLICT, kShared, shared[0]->data - block_->dynamic, shared[0]->bytes, shared[0]->access != Access::READ, shared[0]->place,
         uint64_t(extra));
  }
}

// Runs a warp's ready threads and puts their events side by side. False where the launch cannot go on.
bool Checker::look_on(int first) {
  const int last = std::min(first + kWarp, launch_->threads);
  for (;;) {
    int lanes[kWarp], count = 0;
    const Event* earliest = nullptr;
    for (int t = first; t < last; ++t) {
      Events& own = events_[t - first];
      while (own.empty() && block_->fibers[t].state == READY) {
        thread_ = t;
        if (!turns.resume(block_->fibers[t])) return false;
      }
      if (own.empty()) continue;
      const Event& next = own.front();
      if (!earliest || next.before(*earliest)) {
        earliest = &next;
        count = 0;
      }
      if (next.with(*earliest)) lanes[count++] = t - first;
    }
    if (!earliest) return true;
    account(lanes, count, first);
    for (int k = 0; k < count; ++k) events_[lanes[k]].pop();
  }
}

// Lets lanes go that exchange values and are all there; with `forced`, lanes that wait for others in vain.
bool Checker::shuffle(int first, bool forced) {
  const int last = std::min(first + kWarp, launch_->threads);
  bool any = false;
  for (int t = first; t < last; ++t) {
    Fiber& f = block_->fibers[t];
    if (f.state != AT_SHUFFLE) continue;
    uint32_t there = 0;
    for (int o = first; o < last; ++o) {
      const Fiber& other = block_->fibers[o];
      if (other.state == AT_SHUFFLE && other.place == f.place && other.mask == f.mask) there |= 1u << (o - first);
    }
    const uint32_t exist = last - first == kWarp ? ~0u : (1u << (last - first)) - 1;
    const bool complete = (f.mask & exist & ~there) == 0 && (f.mask >> (t - first) & 1);
    if (!complete && !forced) continue;
    thread_ = t;
    if (!complete) note(DIVERGENT_SHUFFLE, kNoBuffer, 0, 4, false, f.place);
    for (int o = first; o < last; ++o) {
      if (!(there >> (o - first) & 1)) continue;
      Fiber& other = block_->fibers[o];
      thread_ = o;
      if (other.from >= uint32_t(kWarp)) {  // a ballot
        other.got = 0;
        for (int p = first; p < last; ++p) other.got |= (there >> (p - first) & block_->fibers[p].value & 1u) << (p - first);
      } else if (there >> other.from & 1) {
        other.got = block_->fibers[first + other.from].value;
      } else {
        other.got = other.value;
        note(DIVERGENT_SHUFFLE, kNoBuffer, int64_t(other.from), 4, false, other.place);
      }
    }
    for (int o = first; o < last; ++o) {
      if (there >> (o - first) & 1) block_->fibers[o].state = READY;
    }
    any = true;
  }
  return any;
}

bool Checker::run_warp(int first) {
  do {
    if (!look_on(first)) return false;
  } while (shuffle(first, false));
  return true;
}

// Puts the block's static shared memory where the code looks for it, or takes it back.
void Checker::put_shared(bool in) {
  char* const there = launch_->static_shared;
  std::vector<char>& kept = block_->static_shared;
  if (kept.empty()) return;
  if (in) memcpy(there, kept.data(), kept.size());
  else memcpy(kept.data(), there, kept.size());
}

// Runs a block until it ends or all of it waits for other blocks. False where the launch cannot go on.
bool Checker::run_block() {
  Block& b = *block_;
  const int threads = launch_->threads;
  put_shared(true);
  for (Fiber& f : b.fibers) {
    if (f.state == WAITING) f.state = READY;
  }
  if (b.interval == 0 || intervals_[b.interval].phase != phase_) new_interval();
  for (;;) {
    for (int first = 0; first < threads; first += kWarp) {
      if (!run_warp(first)) return false;
    }
    const int done = b.count(DONE), at_barrier = b.count(AT_BARRIER), at_cluster = b.count(AT_CLUSTER_BARRIER);
    if (done == threads) break;
    if (b.count(WAITING)) break;
    if (done + at_cluster == threads) break;
    if (done + at_barrier + at_cluster == threads) {
      uint64_t place = 0;
      bool alike = done + at_cluster == 0;
      int odd = 0;
      for (int t = 0; t < threads; ++t) {
        const Fiber& f = b.fibers[t];
        if (f.state != AT_BARRIER) continue;
        if (place && f.place != place) alike = false;
        if (!place) place = f.place, odd = t;
      }
      if (!alike) {
        thread_ = odd;
        note(DIVERGENT_BARRIER, kNoBuffer, done, 0, false, place).other_thread = at_barrier;
      }
      for (Fiber& f : b.fibers) {
        if (f.state == AT_BARRIER) f.state = READY;
      }
      new_interval();
      continue;
    }
    for (int first = 0; first < threads; first += kWarp) shuffle(first, true);
  }
  put_shared(false);
  if (b.count(DONE) == threads) spare_.push_back(b.end());
  return true;
}

// Where this library, and so the kernel's own data, lies in memory.
void Checker::find_image() {
  code_ = 0, image_ = Region();
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* self) {
        uint64_t low = ~0ull, high = 0;
        for (int k = 0; k < info->dlpi_phnum; ++k) {
          if (info->dlpi_phdr[k].p_type != PT_LOAD) continue;
          low = std::min<uint64_t>(low, info->dlpi_addr + info->dlpi_phdr[k].p_vaddr);
          high = std::max<uint64_t>(high, info->dlpi_addr + info->dlpi_phdr[k].p_vaddr + info->dlpi_phdr[k].p_memsz);
        }
        const uint64_t here = reinterpret_cast<uint64_t>(&anchor);
        if (here < low || here >= high) return 0;
        Checker& found = *static_cast<Checker*>(self);
        found.image_.data = reinterpret_cast<char*>(low), found.image_.bytes = high - low;
        found.code_ = info->dlpi_addr;
        return 1;
      },
      this);
}

void Checker::missing_outputs() {
  block_ = nullptr;
  thread_ = -1;
  for (int k = 0; k < memory_.size(); ++k) {
    Global& g = memory_[k];
    if (!g.told->writable || g.told->initialised || !g.told->result) continue;
    for (int64_t b = 0; b < g.told->bytes; ++b) {
      if (g.touched()[b].write) continue;
      note(MISSING_OUTPUT, k, b, 1, true, 0);
    }
  }
}

void Checker::run(const Launch& launch, Report& report) {
  launch_ = &launch, report_ = &report;
  report.finding_count = report.stopped = 0;
  phase_ = arrivals_ = atomics_ = 0;
  costs_.clear();
  intervals_.clear();
  memory_.take(launch);
  arguments_.clear();
  const uint32_t before_launch = intervals_.begin({-1, -1, ~0ull, 0});
  for (int k = 0; k < memory_.size(); ++k) {
    Buffer& told = *memory_[k].told;
    arguments_.push_back(memory_[told.over < 0 ? k : told.over].data);
    for (int64_t b = 0; told.writable && told.initialised && b < told.bytes; ++b) memory_[k].touched()[b].write = before_launch;
  }
  if (launch.arrivals) memset(launch.arrivals, 0x5a, launch.arrivals_bytes);  // anything
  std::vector<Block> blocks(launch.block_count);
  find_image();
  bool alive = true;
  for (int64_t left = launch.block_count; alive && left > 0;) {
    const uint64_t before = atomics_;
    int64_t ended = 0;
    for (int64_t k = 0; alive && k < launch.block_count; k += launch.cluster) {
      int64_t over = 0;
      for (int64_t b = k; b < k + launch.cluster; ++b) over += blocks[b].done;
      if (over < launch.cluster) alive = run_cluster(&blocks[k], &launch.blocks[k], ended);
    }
    left -= ended;
    if (alive && left > 0 && ended == 0 && atomics_ == before) {
      for (Block& b : blocks) {
        if (b.done || !b.begun) continue;
        block_ = &b;
        thread_ = 0;
        for (int t = 0; t < launch.threads; ++t) thread_ = b.fibers[t].state == WAITING ? t : thread_;
        note(NO_END, kNoBuffer, left, 0, false, b.fibers[thread_].place);
        break;
      }
      report.stopped = 1;
      alive = false;
    }
  }
  for (Events& e : events_) e.clear();
  if (alive && launch.block_count == launch.grid) missing_outputs();
  report.shared_wavefronts = costs_.wavefronts, report.least_shared_wavefronts = costs_.least_wavefronts;
  for (Block& b : blocks) b.end().release(), b.forget();
  for (Region& stacks : spare_) stacks.release();
  spare_.clear();
  block_ = nullptr;
  memory_.give_back();
}

}  // namespace checked

using checked::Access;

static checked::Checker checker;

#define ST_PLACE reinterpret_cast<uint64_t>(__builtin_return_address(0)), static_cast<char*>(__builtin_frame_address(0))

extern "C" {

void st_check_run(const checked::Launch* launch, checked::Report* report) {
  checker.turns.body = [] { checker.body(); };
  checker.run(*launch, *report);
}

// -- what the kernel asks

unsigned st_check_thread() { return checker.thread(); }
unsigned st_check_block() { return checker.block(); }
unsigned st_check_blocks() { return checker.blocks(); }
unsigned st_check_threads() { return checker.threads(); }
char* st_check_shared() { return checker.dynamic(); }
void st_check_barrier() { checker.meet(checked::AT_BARRIER, reinterpret_cast<uint64_t>(__builtin_return_address(0)), 0, 0, 0); }
void st_check_cluster_barrier() {
  checker.meet(checked::AT_CLUSTER_BARRIER, reinterpret_cast<uint64_t>(__builtin_return_address(0)), 0, 0, 0);
}
char* st_check_peer(char* own, unsigned rank) { return checker.peer(own, rank, reinterpret_cast<uint64_t>(__builtin_return_address(0))); }
void st_check_wait() { checker.meet(checked::WAITING, reinterpret_cast<uint64_t>(__builtin_return_address(0)), 0, 0, 0); }
void st_check_together(uint32_t mask) {
  checker.meet(checked::AT_SHUFFLE, reinterpret_cast<uint64_t>(__builtin_return_address(0)), mask, 0, checker.thread() % 32);
}
uint32_t st_check_shuffle(uint32_t mask, uint32_t value, uint32_t from) {
  return checker.meet(checked::AT_SHUFFLE, reinterpret_cast<uint64_t>(__builtin_return_address(0)), mask, value, from % 32);
}
uint32_t st_check_ballot(uint32_t mask, bool value) {
  return checker.meet(checked::AT_SHUFFLE, reinterpret_cast<uint64_t>(__builtin_return_address(0)), mask, value, checked::kWarp);
}
void st_check_arrived() { checker.arrived(); }
void st_check_atomic(void* data, int bytes, void* place, void* frame) {
  checker.atomic(static_cast<char*>(data), bytes, reinterpret_cast<uint64_t>(place), static_cast<char*>(frame));
}

// -- what the compiler has put into it: at every piece of straight code, and before every access

void __sanitizer_cov_trace_pc() {
  if (checker.active()) checker.pass(ST_PLACE);
}

#define ST_HOOKS(N)                                                                                      \
  void __tsan_read##N(void* p) { checker.access(static_cast<char*>(p), N, Access::READ, true, ST_PLACE); }   \
  void __tsan_write##N(void* p) { checker.access(static_cast<char*>(p), N, Access::WRITE, true, ST_PLACE); } \
  void __tsan_unaligned_read##N(void* p) { checker.pieces(static_cast<char*>(p), N, Access::READ, ST_PLACE); } \
  void __tsan_unaligned_write##N(void* p) { checker.pieces(static_cast<char*>(p), N, Access::WRITE, ST_PLACE); }
ST_HOOKS(1)
ST_HOOKS(2)
ST_HOOKS(4)
ST_HOOKS(8)
ST_HOOKS(16)
void __tsan_read_range(void* p, unsigned long n) { checker.pieces(static_cast<char*>(p), int(n), Access::READ, ST_PLACE); }
void __tsan_write_range(void* p, unsigned long n) { checker.pieces(static_cast<char*>(p), int(n), Access::WRITE, ST_PLACE); }
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
}
