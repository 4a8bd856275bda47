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
// Buffers of a call that need no memory from the heap for their addresses.
constexpr int64_t kFewBuffers = 64;

// What an executable has of a call: its attributes, and the kernel, which it holds for as long as it lives, also while
// it runs.
struct Bound {
  Loaded* kernel;  // Null where the executable was there before its kernel.
  char* id;
  char* name;
  int64_t* phases;
  int64_t phase_count, bytes, pooled, inputs, outputs;  // Of those of the call, the kernel's: the first.
  int32_t alone;   // The next calls that are for one thread.
  int32_t pause;   // As many were such the last time, unless a call by several threads has been shorter since.
  int32_t missed;  // Calls by several threads in a row that were no shorter.
};

void Unbind(void* object) {
  Bound* const bound = static_cast<Bound*>(object);
  if (bound == nullptr) return;
  Release(bound->kernel);
  free(bound->id);
  free(bound->name);
  free(bound->phases);
  free(bound);
}

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

// `meeting` is the buffer after the others: where the threads that run blocks meet, if there are several. Whether it was useful that there were.
bool Run(const XLA_FFI_CallFrame* frame, Kernel kernel, void** buffers, void** meeting, int64_t first, int64_t blocks,
         int64_t bytes, bool pooled) {
  *meeting = nullptr;
  int64_t shares = Least(blocks, bytes / kBytesPerThread);
  const int64_t threads = shares > 1 ? Threads(frame) : 1;
  shares = Least(shares, threads);
  if (shares <= 1 || blocks > kMostBlocks) {
    kernel(buffers, first, first + blocks);
    return true;
  }
  alignas(64) char area[kMeetingBytes] = {};  // Nobody runs a block once the caller is here again.
  *meeting = area;
  Grid* const grid = new Grid(kernel, buffers, first, blocks, shares);
  const int64_t helpers = shares - 1;
  const int64_t coming = pooled ? Schedule(frame, grid, helpers) : Employ(helpers, threads - 1, RunHelper, grid);
  for (int64_t i = coming; i < helpers; ++i) grid->Leave();  // In the helper's place: the others do its part.
  grid->Help();
  grid->Wait();
  grid->Leave();
  return reinterpret_cast<int32_t*>(area)[kUseless] == 0;
}

// After a call by several threads: how many calls are by one, until it is tried again.
void Plan(Bound& bound, bool useful) {
  const int32_t pause = __atomic_load_n(&bound.pause, __ATOMIC_RELAXED);
  const int32_t missed = useful ? 0 : __atomic_load_n(&bound.missed, __ATOMIC_RELAXED) + 1;
  if (useful && pause == 0 && __atomic_load_n(&bound.missed, __ATOMIC_RELAXED) == 0) return;  // The line stays shared.
  const int32_t next = missed < kTries ? (useful ? 0 : pause) : pause == 0 ? 1 : Least(2 * pause, kMostCallsAlone);
  __atomic_store_n(&bound.missed, missed < kTries ? missed : 0, __ATOMIC_RELAXED);
  __atomic_store_n(&bound.pause, next, __ATOMIC_RELAXED);
  if (missed >= kTries) __atomic_store_n(&bound.alone, next, __ATOMIC_RELAXED);
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
  const auto* id = static_cast<XLA_FFI_ByteSpan*>(Attribute(attributes, "kernel", XLA_FFI_AttrType_STRING));
  const auto* name = static_cast<XLA_FFI_ByteSpan*>(Attribute(attributes, "name", XLA_FFI_AttrType_STRING));
  const auto* phases = static_cast<XLA_FFI_Array*>(Attribute(attributes, "phases", XLA_FFI_AttrType_ARRAY));
  const int64_t *bytes = Number(attributes, "bytes"), *pooled = Number(attributes, "pooled"), *inputs = Number(attributes, "inputs"),
                *outputs = Number(attributes, "outputs");
  if (id == nullptr || name == nullptr || phases == nullptr || phases->dtype != XLA_FFI_DataType_S64 ||
      phases->size == 0 || bytes == nullptr || pooled == nullptr || inputs == nullptr || outputs == nullptr) {
    return Failed(frame->api, XLA_FFI_Error_Code_INVALID_ARGUMENT,
                  "A call of a stitched kernel lacks an attribute: it was made by another version of JAX Stitch.");
  }
  auto* const bound = static_cast<Bound*>(malloc(sizeof(Bound)));
  if (bound == nullptr) abort();
  const size_t size = phases->size * sizeof(int64_t);
  *bound = {nullptr, Copy(id->ptr, id->len), Copy(name->ptr, name->len),
            reinterpret_cast<int64_t*>(Copy(static_cast<const char*>(phases->data), size)),
            static_cast<int64_t>(phases->size), *bytes, *pooled, *inputs, *outputs, 0, 0, 0};
  bound->kernel = Find(bound->id);
  if (bound->kernel != nullptr) bound->kernel->used = true;
  XLA_FFI_State_Set_Args state = {XLA_FFI_State_Set_Args_STRUCT_SIZE, nullptr, frame->ctx,
                                  XLA_FFI_ExecutionStage_INSTANTIATE, &bound_id, bound};
  XLA_FFI_Error* const error = frame->api->XLA_FFI_State_Set(&state);
  if (error != nullptr) Unbind(bound);
  return error;
}

// Each time that the call runs.
extern "C" XLA_FFI_Error* JaxStitchLaunch(XLA_FFI_CallFrame* frame) {
  if (IsQuestion(frame)) return Describe(frame, XLA_FFI_UNKNOWN_TYPE_ID, 0);
  XLA_FFI_State_Get_Args state = {XLA_FFI_State_Get_Args_STRUCT_SIZE, nullptr, frame->ctx,
                                  XLA_FFI_ExecutionStage_INSTANTIATE, &bound_id, nullptr};
  if (XLA_FFI_Error* error = frame->api->XLA_FFI_State_Get(&state)) return error;
  Bound& bound = *static_cast<Bound*>(state.state);
  const int64_t count = bound.inputs + bound.outputs + 1;
  // What comes after them is not for the kernel.
  if (frame->args.size < bound.inputs || frame->rets.size < bound.outputs) {
    return Failed(frame->api, XLA_FFI_Error_Code_INVALID_ARGUMENT, "A call of a stitched kernel lacks a buffer.");
  }
  Loaded* const late = bound.kernel != nullptr ? nullptr : Find(bound.id);
  const Loaded* const loaded = bound.kernel != nullptr ? bound.kernel : late;
  if (loaded == nullptr) return NotLoaded(frame->api, bound.name);
  void* few[kFewBuffers];
  void** const buffers = count <= kFewBuffers ? few : static_cast<void**>(malloc(count * sizeof(void*)));
  if (buffers == nullptr) abort();
  for (int64_t i = 0; i < bound.inputs; ++i) buffers[i] = static_cast<XLA_FFI_Buffer*>(frame->args.args[i])->data;
  for (int64_t i = 0; i < bound.outputs; ++i) {
    const auto& buffer = *static_cast<XLA_FFI_Buffer*>(frame->rets.rets[i]);
    buffers[bound.inputs + i] = buffer.data;
    WantHugePages(buffer);
  }
  int64_t first = 0, bytes = bound.bytes / bound.phase_count;
  const int32_t alone = __atomic_load_n(&bound.alone, __ATOMIC_RELAXED);
  if (alone > 0) {
    __atomic_store_n(&bound.alone, alone - 1, __ATOMIC_RELAXED);
    bytes = 0;
  }
  for (int64_t i = 0; i < bound.phase_count; ++i) {  // Each phase reads what the one before has written.
    const bool useful = Run(frame, loaded->kernel, buffers, buffers + count - 1, first, bound.phases[i], bytes, bound.pooled != 0);
    if (bytes > 0) Plan(bound, useful);
    first += bound.phases[i];
  }
  if (buffers != few) free(buffers);
  Release(late);
  return nullptr;
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
