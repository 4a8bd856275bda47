// A typed FFI handler that launches a kernel with the driver on XLA's stream: what the PTX custom call is measured
// against. The driver is looked up at run time, so that this compiles, and loads, where there is none.
#include <dlfcn.h>

#include <cstdint>
#include <vector>

#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

namespace {

constexpr int kFailed = -1;

template <typename Function>
Function Driver(const char* name) {
  static void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  return driver == nullptr ? nullptr : reinterpret_cast<Function>(dlsym(driver, name));
}

ffi::Error Launch(void* stream, ffi::RemainingArgs args, ffi::RemainingRets rets, int64_t function, int64_t grid,
                  int64_t block, int64_t shared) {
  using LaunchKernel = int (*)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*,
                               void**, void**);
  static const auto launch = Driver<LaunchKernel>("cuLaunchKernel");
  std::vector<void*> buffers;
  for (size_t i = 0; i < args.size(); ++i) buffers.push_back(args.get<ffi::AnyBuffer>(i)->untyped_data());
  for (size_t i = 0; i < rets.size(); ++i) buffers.push_back((*rets.get<ffi::AnyBuffer>(i))->untyped_data());
  std::vector<void*> parameters;
  for (void*& buffer : buffers) parameters.push_back(&buffer);
  const int status = launch == nullptr ? kFailed
                                       : launch(reinterpret_cast<void*>(function), grid, 1, 1, block, 1, 1, shared,
                                                stream, parameters.data(), nullptr);
  if (status != 0) return ffi::Error::Internal("cuLaunchKernel failed with status " + std::to_string(status));
  return ffi::Error::Success();
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(BenchLaunch, Launch,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::PlatformStream<void*>>()
                                  .RemainingArgs()
                                  .RemainingRets()
                                  .Attr<int64_t>("function")
                                  .Attr<int64_t>("grid")
                                  .Attr<int64_t>("block")
                                  .Attr<int64_t>("shared"),
                              {ffi::Traits::kCmdBufferCompatible});

// The CUfunction of a kernel in machine code or PTX, loaded into the first device's primary context, which is XLA's;
// 0 where there is no driver or it refuses.
extern "C" int64_t BenchLoad(const char* code, const char* name) {
  const auto init = Driver<int (*)(unsigned)>("cuInit");
  const auto retain = Driver<int (*)(void**, int)>("cuDevicePrimaryCtxRetain");
  const auto enter = Driver<int (*)(void*)>("cuCtxSetCurrent");
  const auto load = Driver<int (*)(void**, const void*)>("cuModuleLoadData");
  const auto find = Driver<int (*)(void**, void*, const char*)>("cuModuleGetFunction");
  if (!init || !retain || !enter || !load || !find) return 0;
  void *context = nullptr, *module = nullptr, *function = nullptr;
  if (init(0) != 0 || retain(&context, 0) != 0 || enter(context) != 0) return 0;
  if (load(&module, code) != 0 || find(&function, module, name) != 0) return 0;
  return reinterpret_cast<int64_t>(function);
}
