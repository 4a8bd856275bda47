// The one FFI handler that runs every stitched kernel on the CPU: looks the kernel up by its id, and runs its blocks by
// as many threads as XLA has, on the cores JAX was given and no others: those of XLA's pool, or, in a program that leaves
// the pool nothing to do, a crew of our own, whose threads are awake when the next call comes. Not both: a thread of the
// pool that waits busily, on the core of one of ours that is about to be free, holds that up.
//
// Written against XLA's C interface, with the C library and POSIX threads: the headers of XLA's C++ interface and of the
// C++ library's mutexes and containers take a compiler ten times as long, on every machine's first use.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifdef __linux__
#include <sys/mman.h>
#endif

#include "call.h"
#include "crew.h"
#include "frame.h"
#include "freed_memory.h"
#include "grid.h"
#include "registry.h"
#include "yielding.h"
#include "xla/ffi/api/c_api.h"

namespace {

// The least work that is worth another thread, some 10 microseconds: waking one that has slept for long takes 30.
constexpr int64_t kBytesPerThread = 256 << 10;
// What kernels have where their threads meet (`KernelSource`), and which of its words says that those made a call no shorter.
constexpr int64_t kMeetingBytes = 512, kUseless = 1;
// After so many such in a row come calls by one thread: one the first time, then twice as many each time, up to so many.
// (What woke a thread too late for the first may have it there for the third.)
constexpr int32_t kTries = 4, kMostCallsAlone = 32;
// Pointers of a call that need no memory from the heap.
constexpr int64_t kFewPointers = 256;

XLA_FFI_TypeId bound_id = {0};
XLA_FFI_TypeInfo bound_info = {XLA_FFI_TypeInfo_STRUCT_SIZE, nullptr, Unbind};

void Forget(const XLA_FFI_Api* api, XLA_FFI_Error* error) {
  XLA_FFI_Error_Destroy_Args destroyed = {XLA_FFI_Error_Destroy_Args_STRUCT_SIZE, nullptr, error};
  api->XLA_FFI_Error_Destroy(&destroyed);
}

// A helper's task: the grid is its own to leave.
void RunHelper(void* grid) {
  static_cast<Grid*>(grid)->Help();
  static_cast<Grid*>(grid)->Leave();
}

// Bytes of an element; 0 of the types that kernels have no buffers of.
uintptr_t Width(XLA_FFI_DataType type) {
  switch (type) {
    case XLA_FFI_DataType_PRED:
    case XLA_FFI_DataType_S8:
    case XLA_FFI_DataType_U8:
      return 1;
    case XLA_FFI_DataType_S16:
    case XLA_FFI_DataType_U16:
    case XLA_FFI_DataType_F16:
    case XLA_FFI_DataType_BF16:
      return 2;
    case XLA_FFI_DataType_S32:
    case XLA_FFI_DataType_U32:
    case XLA_FFI_DataType_F32:
      return 4;
    case XLA_FFI_DataType_S64:
    case XLA_FFI_DataType_U64:
    case XLA_FFI_DataType_F64:
      return 8;
    default:
      return 0;
  }
}

// Asks for huge pages behind a large result: XLA allocates it again at every call, and its first touch in pages of 4 KB
// takes longer than most kernels do. Where huge pages are off, or the memory has been touched before, this does nothing.
void WantHugePages(const XLA_FFI_Buffer& buffer) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  constexpr uintptr_t kHuge = uintptr_t{2} << 20;
  uintptr_t bytes = Width(buffer.dtype);
  for (int64_t i = 0; i < buffer.rank; ++i) bytes *= static_cast<uintptr_t>(buffer.dims[i]);
  const uintptr_t first = (reinterpret_cast<uintptr_t>(buffer.data) + kHuge - 1) / kHuge * kHuge;
  const uintptr_t last = (reinterpret_cast<uintptr_t>(buffer.data) + bytes) / kHuge * kHuge;
  if (first < last) madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
#endif
}

// How many threads XLA has for this call; 0 where it does not tell.
int64_t Threads(const XLA_FFI_CallFrame* frame) {
  int64_t count = 0;
  XLA_FFI_ThreadPool_NumThreads_Args asked = {XLA_FFI_ThreadPool_NumThreads_Args_STRUCT_SIZE, nullptr, frame->ctx,
                                              &count};
  if (XLA_FFI_Error* error = frame->api->XLA_FFI_ThreadPool_NumThreads(&asked)) Forget(frame->api, error);
  return count;
}

// Has up to `count` threads of XLA's pool help with a grid; how many will.
int64_t Schedule(const XLA_FFI_CallFrame* frame, Grid* grid, int64_t count) {
  int64_t scheduled = 0;
  for (int64_t i = 0; i < count; ++i) {
    XLA_FFI_ThreadPool_Schedule_Args task = {XLA_FFI_ThreadPool_Schedule_Args_STRUCT_SIZE, nullptr, frame->ctx,
                                             RunHelper, grid};
    XLA_FFI_Error* const error = frame->api->XLA_FFI_ThreadPool_Schedule(&task);
    scheduled += error == nullptr;
    if (error != nullptr) Forget(frame->api, error);
  }
  return scheduled;
}

// A call as it runs: the kernels that are loaded, and the buffers of each, with one behind them for where the threads
// that run its blocks meet, if there are several.
struct Running {
  const XLA_FFI_CallFrame* frame;
  const Call* call;
  Loaded** kernels;
  void*** buffers;
};

// How many threads take work of so many bytes that is in so many parts.
int64_t Shares(const Running& running, int64_t parts, int64_t bytes, int64_t* threads) {
  const int64_t shares = Least(parts, bytes / kBytesPerThread);
  *threads = shares > 1 ? Threads(running.frame) : 1;
  return Least(shares, *threads);
}

// Has a grid run by so many threads, of which this is one.
void Share(const Running& running, Grid* grid, int64_t shares, int64_t threads) {
  const int64_t helpers = shares - 1;
  const int64_t coming =
      running.call->pooled ? Schedule(running.frame, grid, helpers) : Employ(helpers, threads - 1, RunHelper, grid);
  for (int64_t i = coming; i < helpers; ++i) grid->Leave();  // In the helper's place: the others do its part.
  grid->Help();
  grid->Wait();
  grid->Leave();
}

// Runs the blocks of a step. Whether it was useful that several threads did, if they did.
bool RunStep(const Running& running, const Step& step, int64_t bytes) {
  const Kernel kernel = running.kernels[step.kernel]->kernel;
  void** const buffers = running.buffers[step.kernel];
  void** const meeting = buffers + running.call->kernels[step.kernel].count;
  *meeting = nullptr;
  int64_t threads;
  const int64_t shares = Shares(running, step.blocks, bytes, &threads);
  if (shares <= 1 || step.blocks > kMostBlocks) {
    kernel(buffers, step.first, step.first + step.blocks);
    return true;
  }
  alignas(64) char area[kMeetingBytes] = {};  // Nobody runs a block once the caller is here again.
  *meeting = area;
  Share(running, new Grid(kernel, buffers, step.first, step.blocks, shares), shares, threads);
  return reinterpret_cast<int32_t*>(area)[kUseless] == 0;
}

// Runs some of a call's steps, each as a whole; they do not wait for one another.
void RunSteps(void** object, int64_t first, int64_t end) {
  const Running& running = *reinterpret_cast<const Running*>(object);
  for (int64_t i = first; i < end; ++i) RunStep(running, running.call->steps[i], 0);
}

bool RunLevel(Running& running, const Level& level, int64_t bytes) {
  const int64_t steps = level.end - level.first;
  if (steps == 1) return RunStep(running, running.call->steps[level.first], bytes);
  int64_t threads;
  const int64_t shares = Shares(running, steps, bytes, &threads);
  void** const object = reinterpret_cast<void**>(&running);
  if (shares <= 1) {
    RunSteps(object, level.first, level.end);
  } else {
    Share(running, new Grid(RunSteps, object, level.first, steps, shares), shares, threads);
  }
  return true;
}

// After a call by several threads: how many calls are by one, until it is tried again.
void Plan(Level& level, bool useful) {
  const int32_t pause = __atomic_load_n(&level.pause, __ATOMIC_RELAXED);
  const int32_t missed = useful ? 0 : __atomic_load_n(&level.missed, __ATOMIC_RELAXED) + 1;
  if (useful && pause == 0 && __atomic_load_n(&level.missed, __ATOMIC_RELAXED) == 0) return;  // The line stays shared.
  const int32_t next = missed < kTries ? (useful ? 0 : pause) : pause == 0 ? 1 : Least(2 * pause, kMostCallsAlone);
  __atomic_store_n(&level.missed, missed < kTries ? missed : 0, __ATOMIC_RELAXED);
  __atomic_store_n(&level.pause, next, __ATOMIC_RELAXED);
  if (missed >= kTries) __atomic_store_n(&level.alone, next, __ATOMIC_RELAXED);
}

XLA_FFI_Error* NotLoaded(const XLA_FFI_Api* api, const char* name) {
  static const char kBefore[] = "The stitched kernel '";
  static const char kAfter[] =
      "' is not loaded in this process: this executable was made by another process, and run here without tracing its "
      "function. Call the stitched function itself, which loads its kernels; executables that hold stitched kernels "
      "cannot be serialized.";
  const size_t before = sizeof kBefore - 1, length = strlen(name);
  char* const message = static_cast<char*>(malloc(before + length + sizeof kAfter));
  if (message == nullptr) abort();
  memcpy(message, kBefore, before);
  memcpy(message + before, name, length);
  memcpy(message + before + length, kAfter, sizeof kAfter);
  XLA_FFI_Error* const error = Failed(api, XLA_FFI_Error_Code_FAILED_PRECONDITION, message);
  free(message);
  return error;
}

}  // namespace

// Once for each call in an executable, when that is loaded.
extern "C" XLA_FFI_Error* JaxStitchBind(XLA_FFI_CallFrame* frame) {
  if (IsQuestion(frame)) return Describe(frame, bound_id, 0);
  const XLA_FFI_Attrs& attributes = frame->attrs;
  const auto* ids = static_cast<XLA_FFI_ByteSpan*>(Attribute(attributes, "kernels", XLA_FFI_AttrType_STRING));
  const auto* name = static_cast<XLA_FFI_ByteSpan*>(Attribute(attributes, "name", XLA_FFI_AttrType_STRING));
  const auto* work = static_cast<XLA_FFI_Array*>(Attribute(attributes, "work", XLA_FFI_AttrType_ARRAY));
  const int64_t *pooled = Number(attributes, "pooled"), *inputs = Number(attributes, "inputs"),
                *outputs = Number(attributes, "outputs");
  Call* const call = Zeros<Call>(1);
  bool is_whole = ids != nullptr && name != nullptr && work != nullptr && work->dtype == XLA_FFI_DataType_S64 &&
                  pooled != nullptr && inputs != nullptr && outputs != nullptr;
  if (is_whole) {
    call->name = Copy(name->ptr, name->len);
    call->inputs = *inputs;
    call->outputs = *outputs;
    call->pooled = *pooled != 0;
    char* const text = Copy(ids->ptr, ids->len);
    is_whole = Read(*call, static_cast<const int64_t*>(work->data), work->size, text);
    free(text);
  }
  if (!is_whole) {
    Unbind(call);
    return Failed(frame->api, XLA_FFI_Error_Code_INVALID_ARGUMENT,
                  "A call of a stitched kernel lacks an attribute: it was made by another version of JAX Stitch.");
  }
  for (int64_t k = 0; k < call->kernel_count; ++k) {
    Bound& bound = call->kernels[k];
    bound.kernel = Find(bound.id);
    if (bound.kernel != nullptr) bound.kernel->used = true;
  }
  XLA_FFI_State_Set_Args state = {XLA_FFI_State_Set_Args_STRUCT_SIZE, nullptr, frame->ctx,
                                  XLA_FFI_ExecutionStage_INSTANTIATE, &bound_id, call};
  XLA_FFI_Error* const error = frame->api->XLA_FFI_State_Set(&state);
  if (error != nullptr) Unbind(call);
  return error;
}

// Each time that the call runs.
extern "C" XLA_FFI_Error* JaxStitchLaunch(XLA_FFI_CallFrame* frame) {
  if (IsQuestion(frame)) return Describe(frame, XLA_FFI_UNKNOWN_TYPE_ID, 0);
  XLA_FFI_State_Get_Args state = {XLA_FFI_State_Get_Args_STRUCT_SIZE, nullptr, frame->ctx,
                                  XLA_FFI_ExecutionStage_INSTANTIATE, &bound_id, nullptr};
  if (XLA_FFI_Error* error = frame->api->XLA_FFI_State_Get(&state)) return error;
  Call& call = *static_cast<Call*>(state.state);
  // What comes after them is not for the kernels.
  if (frame->args.size < call.inputs || frame->rets.size < call.outputs) {
    return Failed(frame->api, XLA_FFI_Error_Code_INVALID_ARGUMENT, "A call of a stitched kernel lacks a buffer.");
  }
  void* few[kFewPointers];
  const int64_t count = call.inputs + call.outputs, pointers = count + call.buffers + 2 * call.kernel_count;
  void** const memory = pointers <= kFewPointers ? few : Zeros<void*>(pointers);
  void **const own = memory, **buffers = own + count;
  auto*** const of_kernel = reinterpret_cast<void***>(buffers + call.buffers);
  auto** const kernels = reinterpret_cast<Loaded**>(of_kernel + call.kernel_count);
  for (int64_t i = 0; i < call.inputs; ++i) own[i] = static_cast<XLA_FFI_Buffer*>(frame->args.args[i])->data;
  for (int64_t i = 0; i < call.outputs; ++i) {
    const auto& buffer = *static_cast<XLA_FFI_Buffer*>(frame->rets.rets[i]);
    own[call.inputs + i] = buffer.data;
    WantHugePages(buffer);
  }
  char* const on_the_way = count > 0 ? static_cast<char*>(own[count - 1]) : nullptr;
  bool is_late = false;
  XLA_FFI_Error* error = nullptr;
  for (int64_t k = 0; k < call.kernel_count; ++k) {
    const Bound& bound = call.kernels[k];
    kernels[k] = bound.kernel != nullptr ? bound.kernel : Find(bound.id);
    is_late |= bound.kernel == nullptr;
    if (kernels[k] == nullptr && error == nullptr) error = NotLoaded(frame->api, call.name);
    of_kernel[k] = buffers;
    for (int64_t i = 0; i < bound.count; ++i) {
      const int64_t place = bound.places[i];
      *buffers++ = place >= 0 ? own[place] : on_the_way + (-1 - place);
    }
    ++buffers;  // Where threads meet.
  }
  Running running = {frame, &call, kernels, of_kernel};
  for (int64_t i = 0; i < call.level_count && error == nullptr; ++i) {  // Each reads what the one before has written.
    Level& level = call.levels[i];
    int64_t bytes = level.bytes;
    const int32_t alone = __atomic_load_n(&level.alone, __ATOMIC_RELAXED);
    if (alone > 0) {
      __atomic_store_n(&level.alone, alone - 1, __ATOMIC_RELAXED);
      bytes = 0;
    }
    const bool useful = RunLevel(running, level, bytes);
    if (bytes > 0) Plan(level, useful);
  }
  if (is_late) {
    for (int64_t k = 0; k < call.kernel_count; ++k) {
      if (call.kernels[k].kernel == nullptr) Release(kernels[k]);
    }
  }
  if (memory != few) free(memory);
  return error;
}

// The type of what executables have, for XLA.
extern "C" void* jax_stitch_bound_id() { return &bound_id; }
extern "C" void* jax_stitch_bound_info() { return &bound_info; }

// Makes the function at `address` known as `id`. Its library is closed when it is forgotten and no executable has it.
extern "C" void jax_stitch_register(const char* id, void* address, void* library) {
  KeepFreedMemory();
  auto* const loaded = new Loaded{Copy(id, strlen(id)), reinterpret_cast<Kernel>(address), library, nullptr};
  pthread_rwlock_wrlock(&registry_lock);
  Loaded** const link = Link(id);
  Loaded* const before = *link;
  if (before != nullptr) loaded->next = before->next;
  *link = loaded;
  pthread_rwlock_unlock(&registry_lock);
  Release(before);
}

// Nobody can make new executables that call this kernel. One that none has called stays: it may be for an executable
// that is loaded from a file.
extern "C" void jax_stitch_forget(const char* id, void* address) {
  pthread_rwlock_wrlock(&registry_lock);
  Loaded** const link = Link(id);
  Loaded* gone = *link;
  if (gone != nullptr && reinterpret_cast<void*>(gone->kernel) == address && gone->used) {
    *link = gone->next;
  } else {
    gone = nullptr;
  }
  pthread_rwlock_unlock(&registry_lock);
  Release(gone);
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
