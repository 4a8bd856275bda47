// The one FFI handler that runs every stitched kernel on the CPU: looks the kernel up by its id, and runs its blocks
// over XLA's own thread pool, so that it uses the cores JAX was given and no others.
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <dlfcn.h>
#ifdef __linux__
#include <sys/mman.h>
#endif

#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

namespace {

using Kernel = void (*)(void** buffers, int64_t first_block, int64_t last_block);

// The least work that is worth another thread: waking one costs a few microseconds.
constexpr int64_t kBytesPerThread = 64 << 10;
// Pieces of each thread's share of the grid: enough to even out threads that are late or disturbed.
constexpr int64_t kPiecesPerShare = 4;
// Rounds of the caller's busy wait for the other threads' last pieces, a few microseconds, before it sleeps.
constexpr int kSpins = 2000;

std::shared_mutex registry_mutex;

// A kernel in memory, with the library that it is in, which goes with it.
struct Loaded {
  Loaded(Kernel kernel, void* library) : kernel(kernel), library(library) {}
  ~Loaded() {
    if (library != nullptr) dlclose(library);
  }
  Loaded(const Loaded&) = delete;
  const Kernel kernel;
  void* const library;
  std::atomic<bool> used{false};  // Some executable has it, or had it.
};

std::unordered_map<std::string, std::shared_ptr<Loaded>>& Registry() {
  static auto* registry = new std::unordered_map<std::string, std::shared_ptr<Loaded>>();
  return *registry;
}

std::shared_ptr<Loaded> Find(const std::string& id) {
  std::shared_lock lock(registry_mutex);
  auto found = Registry().find(id);
  return found == Registry().end() ? nullptr : found->second;
}

// What an executable has of a call: it holds the kernel for as long as it lives, also while it runs.
struct Bound {
  static ffi::TypeId id;
  std::shared_ptr<Loaded> kernel;  // Null where the executable was there before its kernel.
};
ffi::TypeId Bound::id = {};
ffi::TypeInfo bound_info = ffi::MakeTypeInfo<Bound>();

ffi::ErrorOr<std::unique_ptr<Bound>> Bind(std::string_view id, std::string_view, ffi::Span<const int64_t>, int64_t,
                                          int64_t) {
  auto bound = std::make_unique<Bound>();
  bound->kernel = Find(std::string(id));
  if (bound->kernel != nullptr) bound->kernel->used = true;
  return bound;
}

void Pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// A number for each thread that ever ran blocks.
int64_t ThreadOrdinal() {
  static std::atomic<int64_t> count{0};
  thread_local const int64_t ordinal = count.fetch_add(1, std::memory_order_relaxed);
  return ordinal;
}

// The blocks of one call. Each thread has a share of its own, the same at every call, so that what one call left in
// a core's cache the next finds there; it takes its share in pieces, then helps with the others'. Helpers that the
// pool runs late, or never, take none: the caller alone can finish, so a call from inside a busy pool cannot
// deadlock.
class Grid {
 public:
  Grid(Kernel kernel, void** buffers, int64_t first, int64_t blocks, int64_t shares)
      : kernel_(kernel), buffers_(buffers), blocks_(blocks), shares_(shares) {
    for (int64_t i = 0; i < shares; ++i) {
      shares_[i].next = first + blocks * i / shares;
      shares_[i].end = first + blocks * (i + 1) / shares;
      shares_[i].piece = (shares_[i].end - shares_[i].next + kPiecesPerShare - 1) / kPiecesPerShare;
    }
  }

  // Runs pieces until none is left.
  void Help() {
    const int64_t count = static_cast<int64_t>(shares_.size()), own = ThreadOrdinal();
    for (int64_t i = 0; i < count; ++i) {
      Share& share = shares_[(own + i) % count];
      for (;;) {
        const int64_t first = share.next.fetch_add(share.piece, std::memory_order_relaxed);
        if (first >= share.end) break;
        const int64_t last = std::min(first + share.piece, share.end);
        kernel_(buffers_, first, last);
        if (done_.fetch_add(last - first, std::memory_order_acq_rel) + (last - first) == blocks_) {
          std::lock_guard lock(mutex_);
          finished_.notify_one();
        }
      }
    }
  }

  // Returns once every block has run; their writes are then visible.
  void Wait() {
    for (int i = 0; i < kSpins; ++i) {
      if (Done()) return;
      Pause();
    }
    std::unique_lock lock(mutex_);
    finished_.wait(lock, [this] { return Done(); });
  }

 private:
  struct alignas(64) Share {
    std::atomic<int64_t> next;
    int64_t end, piece;
  };

  bool Done() const { return done_.load(std::memory_order_acquire) == blocks_; }

  const Kernel kernel_;
  void** const buffers_;
  const int64_t blocks_;
  std::vector<Share> shares_;
  alignas(64) std::atomic<int64_t> done_{0};
  std::mutex mutex_;
  std::condition_variable finished_;
};

// Asks for huge pages behind a large result: XLA allocates it anew at every call, and its first touch in pages of 4 KB
// takes longer than most kernels do. Where huge pages are off, or the memory has been touched before, this does nothing.
void WantHugePages(void* data, size_t bytes) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  constexpr uintptr_t kHuge = uintptr_t{2} << 20;
  const uintptr_t first = (reinterpret_cast<uintptr_t>(data) + kHuge - 1) / kHuge * kHuge;
  const uintptr_t last = (reinterpret_cast<uintptr_t>(data) + bytes) / kHuge * kHuge;
  if (first < last) madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
#endif
}

void Run(Kernel kernel, void** buffers, int64_t first, int64_t blocks, int64_t bytes, ffi::ThreadPool& pool) {
  int64_t shares = std::min(blocks, bytes / kBytesPerThread);
  if (shares > 1) shares = std::min(shares, pool.num_threads());
  if (shares <= 1) return kernel(buffers, first, first + blocks);
  // Shared, because a helper may start after the call has returned; it then touches nothing but the counters.
  auto grid = std::make_shared<Grid>(kernel, buffers, first, blocks, shares);
  for (int64_t i = 1; i < shares; ++i) pool.Schedule([grid] { grid->Help(); });
  grid->Help();
  grid->Wait();
}

ffi::Error Launch(ffi::RemainingArgs args, ffi::RemainingRets rets, ffi::ThreadPool pool, Bound* bound,
                  std::string_view id, std::string_view name, ffi::Span<const int64_t> phases, int64_t bytes,
                  int64_t inputs) {
  const std::shared_ptr<Loaded> late = bound->kernel != nullptr ? nullptr : Find(std::string(id));
  const Loaded* const loaded = bound->kernel != nullptr ? bound->kernel.get() : late.get();
  if (loaded == nullptr) {
    return ffi::Error(ffi::ErrorCode::kFailedPrecondition,
                      "The stitched kernel '" + std::string(name) +
                          "' is not loaded in this process: this executable was made by another process, and run here "
                          "without tracing its function. Call the stitched function itself, which loads its kernels; "
                          "executables that hold stitched kernels cannot be serialized.");
  }
  std::vector<void*> buffers;
  buffers.reserve(inputs + rets.size());
  for (int64_t i = 0; i < inputs; ++i) {  // What comes after them is not for the kernel.
    auto buffer = args.get<ffi::AnyBuffer>(i);
    if (buffer.has_error()) return buffer.error();
    buffers.push_back(buffer->untyped_data());
  }
  for (size_t i = 0; i < rets.size(); ++i) {
    auto buffer = rets.get<ffi::AnyBuffer>(i);
    if (buffer.has_error()) return buffer.error();
    buffers.push_back((*buffer)->untyped_data());
    WantHugePages(buffers.back(), (*buffer)->size_bytes());
  }
  int64_t first = 0;
  for (const int64_t blocks : phases) {  // Each phase reads what the one before has written.
    Run(loaded->kernel, buffers.data(), first, blocks, bytes / static_cast<int64_t>(phases.size()), pool);
    first += blocks;
  }
  return ffi::Error::Success();
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxStitchBind, Bind,
                              ffi::Ffi::BindInstantiate()
                                  .Attr<std::string_view>("kernel")
                                  .Attr<std::string_view>("name")
                                  .Attr<ffi::Span<const int64_t>>("phases")
                                  .Attr<int64_t>("bytes")
                                  .Attr<int64_t>("inputs"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxStitchLaunch, Launch,
                              ffi::Ffi::Bind()
                                  .RemainingArgs()
                                  .RemainingRets()
                                  .Ctx<ffi::ThreadPool>()
                                  .Ctx<ffi::State<Bound>>()
                                  .Attr<std::string_view>("kernel")
                                  .Attr<std::string_view>("name")
                                  .Attr<ffi::Span<const int64_t>>("phases")
                                  .Attr<int64_t>("bytes")
                                  .Attr<int64_t>("inputs"));

// The type of what executables have, for XLA.
extern "C" void* jax_stitch_bound_id() { return &Bound::id; }
extern "C" void* jax_stitch_bound_info() { return &bound_info; }

// Makes the function at `address` known as `id`. Its library is closed when it is forgotten and no executable has it.
extern "C" void jax_stitch_register(const char* id, void* address, void* library) {
  auto loaded = std::make_shared<Loaded>(reinterpret_cast<Kernel>(address), library);
  std::unique_lock lock(registry_mutex);
  Registry()[id].swap(loaded);
  lock.unlock();  // What was there goes after that.
}

// Nobody can make new executables that call this kernel. One that none has called stays: it may be for an executable
// that is loaded from a file.
extern "C" void jax_stitch_forget(const char* id, void* address) {
  std::shared_ptr<Loaded> gone;
  std::unique_lock lock(registry_mutex);
  auto found = Registry().find(id);
  if (found == Registry().end() || reinterpret_cast<void*>(found->second->kernel) != address) return;
  if (!found->second->used) return;
  gone.swap(found->second);
  Registry().erase(found);
  lock.unlock();
}

// A piece of memory of the calling thread, for whatever kernel it runs: piece `slot`, of at least so many bytes.
extern "C" char* jax_stitch_thread_memory(int slot, size_t bytes) {
  struct Piece {
    char* data = nullptr;
    size_t size = 0;
    ~Piece() { free(data); }
  };
  static thread_local Piece pieces[257];
  Piece& piece = pieces[slot];
  if (piece.size < bytes) {
    free(piece.data);
    piece.size = (bytes + 63) / 64 * 64;
    piece.data = static_cast<char*>(aligned_alloc(64, piece.size));
  }
  return piece.data;
}
