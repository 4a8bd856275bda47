// The part of CUDA's driver API that launches kernels, looked up at run time: no header of CUDA's is needed to compile
// this, and no driver to load it. Types and numbers are those of <cuda.h>, which keeps them (tests/launch compares).
#pragma once
#include <dlfcn.h>
#include <stdint.h>

namespace cuda {

using Status = int;
using Context = struct ContextOf*;
using Module = struct ModuleOf*;
using Function = struct FunctionOf*;
using Stream = void*;

enum LaunchAttributeId : int { kCooperative = 2, kClusterDimension = 4 };

struct LaunchAttribute {
  LaunchAttributeId id;
  char pad[4];
  union Value {
    char bytes[64];
    int cooperative;
    struct {
      unsigned x, y, z;
    } cluster;
  } value;
};

struct LaunchConfig {
  unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
  Stream stream;
  LaunchAttribute* attributes;
  unsigned attribute_count;
};

// Of a function.
enum FunctionAttribute : int { kMaxDynamicShared = 8, kRequiredClusterWidth = 11, kNonPortableCluster = 14 };
// Of what is loaded: where the driver's compiler writes what it has to say.
enum JitOption : int { kErrorLog = 5, kErrorLogBytes = 6 };

struct Driver {
  Status (*cuStreamGetCtx)(Stream, Context*);
  Status (*cuCtxGetCurrent)(Context*);
  Status (*cuCtxPushCurrent)(Context);
  Status (*cuCtxPopCurrent)(Context*);
  Status (*cuModuleLoadDataEx)(Module*, const void* image, unsigned count, JitOption*, void** values);
  Status (*cuModuleGetFunction)(Function*, Module, const char* name);
  Status (*cuModuleUnload)(Module);
  Status (*cuFuncGetAttribute)(int*, FunctionAttribute, Function);
  Status (*cuFuncSetAttribute)(Function, FunctionAttribute, int);
  Status (*cuLaunchKernelEx)(const LaunchConfig*, Function, void** parameters, void** extra);
  Status (*cuGetErrorName)(Status, const char**);
  const char* missing;  // What it lacks; null where it is whole.
};

template <class T> void Look(Driver& driver, void* library, T*& function, const char* name) {
  function = reinterpret_cast<T*>(dlsym(library, name));
  if (function == nullptr && driver.missing == nullptr) driver.missing = name;
}

inline Driver Opened() {
  Driver d = {};
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    d.missing = "libcuda.so.1 itself";
    return d;
  }
  Look(d, library, d.cuStreamGetCtx, "cuStreamGetCtx");
  Look(d, library, d.cuCtxGetCurrent, "cuCtxGetCurrent");
  Look(d, library, d.cuCtxPushCurrent, "cuCtxPushCurrent_v2");
  Look(d, library, d.cuCtxPopCurrent, "cuCtxPopCurrent_v2");
  Look(d, library, d.cuModuleLoadDataEx, "cuModuleLoadDataEx");
  Look(d, library, d.cuModuleGetFunction, "cuModuleGetFunction");
  Look(d, library, d.cuModuleUnload, "cuModuleUnload");
  Look(d, library, d.cuFuncGetAttribute, "cuFuncGetAttribute");
  Look(d, library, d.cuFuncSetAttribute, "cuFuncSetAttribute");
  Look(d, library, d.cuLaunchKernelEx, "cuLaunchKernelEx");
  Look(d, library, d.cuGetErrorName, "cuGetErrorName");
  return d;
}

// The driver of this process, opened by the first that asks.
inline const Driver& driver() {
  static const Driver opened = Opened();
  return opened;
}

}  // namespace cuda
