// The one FFI handler that runs every stitched kernel on the CPU: looks the kernel up by its id, and runs its blocks
// over XLA's own thread pool, so that it uses the cores JAX was given and no others.
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

namespace {

using Kernel = void (*)(void** buffers, int64_t first_block, int64_t last_block);

// Below this many bytes of work, waking another thread costs more than it saves.
constexpr int64_t kInlineBytes = 64 << 10;
// Pieces of the grid per thread: enough to even out threads that are late or disturbed.
constexpr int64_t kPiecesPerThread = 4;
// Rounds of the caller's busy wait for the other threads' last pieces, a few microseconds, before it sleeps.
constexpr int kSpins = 2000;

std::shared_mutex registry_mutex;

std::unordered_map<std::string, Kernel>& Registry() {
  static auto* registry = new std::unordered_map<std::string, Kernel>();
  return *registry;
}

Kernel Find(const std::string& id) {
  std::shared_lock lock(registry_mutex);
  auto found = Registry().find(id);
  return found == Registry().end() ? nullptr : found->second;
}

void Pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// The blocks of one call, handed out in pieces to whichever thread asks next. Helpers that the pool runs late, or
// never, take none: the caller alone can finish, so a call from inside a busy pool cannot deadlock.
class Grid {
 public:
  Grid(Kernel kernel, void** buffers, int64_t blocks, int64_t piece)
      : kernel_(kernel), buffers_(buffers), blocks_(blocks), piece_(piece) {}

  // Runs pieces until none is left.
  void Help() {
    for (;;) {
      const int64_t first = next_.fetch_add(piece_, std::memory_order_relaxed);
      if (first >= blocks_) return;
      const int64_t last = first + piece_ < blocks_ ? first + piece_ : blocks_;
      kernel_(buffers_, first, last);
      if (done_.fetch_add(last - first, std::memory_order_acq_rel) + (last - first) == blocks_) {
        std::lock_guard lock(mutex_);
        finished_.notify_one();
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
  bool Done() const { return done_.load(std::memory_order_acquire) == blocks_; }

  const Kernel kernel_;
  void** const buffers_;
  const int64_t blocks_, piece_;
  std::atomic<int64_t> next_{0}, done_{0};
  std::mutex mutex_;
  std::condition_variable finished_;
};

void Run(Kernel kernel, void** buffers, int64_t blocks, int64_t bytes, ffi::ThreadPool& pool) {
  const int64_t threads = blocks > 1 && bytes >= kInlineBytes ? pool.num_threads() : 1;
  if (threads <= 1) return kernel(buffers, 0, blocks);
  const int64_t wanted = threads * kPiecesPerThread;
  const int64_t piece = blocks <= wanted ? 1 : (blocks + wanted - 1) / wanted;
  const int64_t pieces = (blocks + piece - 1) / piece;
  // Shared, because a helper may start after the call has returned; it then touches nothing but the counter.
  auto grid = std::make_shared<Grid>(kernel, buffers, blocks, piece);
  const int64_t helpers = (threads < pieces ? threads : pieces) - 1;
  for (int64_t i = 0; i < helpers; ++i) pool.Schedule([grid] { grid->Help(); });
  grid->Help();
  grid->Wait();
}

ffi::Error Launch(ffi::RemainingArgs args, ffi::RemainingRets rets, ffi::ThreadPool pool, std::string_view id,
                  std::string_view name, int64_t grid, int64_t bytes) {
  const Kernel kernel = Find(std::string(id));
  if (kernel == nullptr) {
    return ffi::Error(ffi::ErrorCode::kFailedPrecondition,
                      "The stitched kernel '" + std::string(name) +
                          "' is not loaded in this process: this executable was made by another process, and run here "
                          "without tracing its function. Call the stitched function itself, which loads its kernels; "
                          "executables that hold stitched kernels cannot be serialized.");
  }
  std::vector<void*> buffers;
  buffers.reserve(args.size() + rets.size());
  for (size_t i = 0; i < args.size(); ++i) {
    auto buffer = args.get<ffi::AnyBuffer>(i);
    if (buffer.has_error()) return buffer.error();
    buffers.push_back(buffer->untyped_data());
  }
  for (size_t i = 0; i < rets.size(); ++i) {
    auto buffer = rets.get<ffi::AnyBuffer>(i);
    if (buffer.has_error()) return buffer.error();
    buffers.push_back((*buffer)->untyped_data());
  }
  Run(kernel, buffers.data(), grid, bytes, pool);
  return ffi::Error::Success();
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxStitchLaunch, Launch,
                              ffi::Ffi::Bind()
                                  .RemainingArgs()
                                  .RemainingRets()
                                  .Ctx<ffi::ThreadPool>()
                                  .Attr<std::string_view>("kernel")
                                  .Attr<std::string_view>("name")
                                  .Attr<int64_t>("grid")
                                  .Attr<int64_t>("bytes"));

// Makes the function at `address` known as `id`, for the life of the process.
extern "C" void jax_stitch_register(const char* id, void* address) {
  std::unique_lock lock(registry_mutex);
  Registry()[id] = reinterpret_cast<Kernel>(address);
}
