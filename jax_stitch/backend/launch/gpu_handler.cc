// The FFI handler that launches stitched kernels on an NVIDIA GPU, on XLA's stream: the second way beside XLA's own call
// for PTX. It loads machine code, or PTX where the driver does not take that, and has what XLA's call has not: launches
// of which the driver promises that all blocks run together, and an error that says what failed.
//
// Written against XLA's C interface and, by `driver.h`, the driver's: a C++ compiler is all that it takes to build.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"
#include "frame.h"

namespace {

// Buffers of a call that need no memory from the heap for their addresses.
constexpr int64_t kFewBuffers = 64;
// Blocks of a cluster that every GPU with clusters takes.
constexpr int64_t kPortableCluster = 8;

// A kernel in a device's memory. Calls of the same kernel share it: blocks meet in memory of each launch's own.
struct Code {
  char* id;
  cuda::Context context;
  cuda::Module module;
  cuda::Function function;
  bool has_clusters;  // The kernel says itself how many blocks make one.
  int64_t holders;
  Code* next;
};

pthread_mutex_t codes_lock = PTHREAD_MUTEX_INITIALIZER;
Code* codes;

// What an executable has of a call.
struct Call {
  char *id, *name, *ptx, *cubin;  // `cubin` in base64; empty where there is none.
  int64_t grid, block, shared, cluster, cooperative;
  Code** held;  // For each device that it has run on.
  int64_t held_count;
};

// An error with a message in parts.
XLA_FFI_Error* Failed(const XLA_FFI_Api* api, const Call& call, const char* what, const char* why, const char* log) {
  char message[2048];
  snprintf(message, sizeof message, "The stitched kernel '%s' %s: %s%s%s", call.name, what, why, *log ? ": " : "", log);
  return Failed(api, XLA_FFI_Error_Code_INTERNAL, message);
}

const char* Name(cuda::Status status) {
  const char* name = nullptr;
  return cuda::driver().cuGetErrorName(status, &name) == 0 && name != nullptr ? name : "an unknown error";
}

// Bytes of base64; `size` says how many. To be freed.
char* Decoded(const char* text, size_t* size) {
  const size_t length = strlen(text);
  char* const bytes = static_cast<char*>(malloc(length / 4 * 3 + 1));
  if (bytes == nullptr) abort();
  uint32_t bits = 0;
  int have = 0;
  *size = 0;
  for (size_t i = 0; i < length && text[i] != '='; ++i) {
    const char c = text[i];
    const int value = c >= 'a' ? c - 'a' + 26 : c >= 'A' ? c - 'A' : c >= '0' ? c - '0' + 52 : c == '+' ? 62 : 63;
    bits = bits << 6 | static_cast<uint32_t>(value);
    have += 6;
    if (have < 8) continue;
    have -= 8;
    bytes[(*size)++] = static_cast<char>(bits >> have & 255);
  }
  return bytes;
}

// The context that a stream belongs to, made the calling thread's own for as long as this lives.
class InContext {
 public:
  explicit InContext(cuda::Stream stream) {
    const cuda::Driver& driver = cuda::driver();
    cuda::Context current = nullptr;
    driver.cuCtxGetCurrent(&current);
    if (driver.cuStreamGetCtx(stream, &context_) != 0) context_ = current;
    pushed_ = context_ != nullptr && context_ != current && driver.cuCtxPushCurrent(context_) == 0;
  }
  ~InContext() {
    cuda::Context gone;
    if (pushed_) cuda::driver().cuCtxPopCurrent(&gone);
  }
  cuda::Context context() const { return context_; }

 private:
  cuda::Context context_ = nullptr;
  bool pushed_ = false;
};

// Loads a kernel into the current context. Returns an error, or null.
XLA_FFI_Error* Load(const XLA_FFI_Api* api, const Call& call, Code* code) {
  const cuda::Driver& driver = cuda::driver();
  char log[1024] = "";
  cuda::JitOption options[] = {cuda::kErrorLog, cuda::kErrorLogBytes};
  void* values[] = {log, reinterpret_cast<void*>(sizeof log - 1)};
  cuda::Status status = -1;
  if (*call.cubin) {
    size_t size;
    char* const image = Decoded(call.cubin, &size);
    status = driver.cuModuleLoadDataEx(&code->module, image, 2, options, values);
    free(image);
  }
  if (status != 0) {  // Of another version or chip than the driver's: its own compiler makes code of the PTX.
    log[0] = 0;
    values[1] = reinterpret_cast<void*>(sizeof log - 1);
    status = driver.cuModuleLoadDataEx(&code->module, call.ptx, 2, options, values);
  }
  if (status != 0) return Failed(api, call, "cannot be loaded", Name(status), log);
  status = driver.cuModuleGetFunction(&code->function, code->module, call.name);
  int width = 0;
  if (status == 0 && driver.cuFuncGetAttribute(&width, cuda::kRequiredClusterWidth, code->function) != 0) width = 0;
  code->has_clusters = width > 0;
  if (status == 0 && call.shared > 0) {
    status = driver.cuFuncSetAttribute(code->function, cuda::kMaxDynamicShared, static_cast<int>(call.shared));
  }
  if (status == 0 && call.cluster > kPortableCluster) {
    status = driver.cuFuncSetAttribute(code->function, cuda::kNonPortableCluster, 1);
  }
  if (status == 0) return nullptr;
  driver.cuModuleUnload(code->module);
  return Failed(api, call, "cannot be made ready", Name(status), "");
}

// The call's code in the current context, loaded if it has to be.
XLA_FFI_Error* Find(const XLA_FFI_Api* api, Call& call, cuda::Context context, Code** found) {
  XLA_FFI_Error* error = nullptr;
  pthread_mutex_lock(&codes_lock);
  Code* code = nullptr;
  for (int64_t i = 0; i < call.held_count && code == nullptr; ++i) {
    if (call.held[i]->context == context) code = call.held[i];
  }
  if (code == nullptr) {
    for (code = codes; code != nullptr; code = code->next) {
      if (code->context == context && strcmp(code->id, call.id) == 0) break;
    }
    if (code == nullptr) {
      code = static_cast<Code*>(calloc(1, sizeof(Code)));
      if (code == nullptr) abort();
      code->context = context;
      error = Load(api, call, code);
      if (error != nullptr) {
        free(code);
        code = nullptr;
      } else {
        code->id = Copy(call.id, strlen(call.id));
        code->next = codes;
        codes = code;
      }
    }
    if (code != nullptr) {
      ++code->holders;
      const size_t size = (call.held_count + 1) * sizeof(Code*);
      call.held = static_cast<Code**>(realloc(call.held, size));
      if (call.held == nullptr) abort();
      call.held[call.held_count++] = code;
    }
  }
  pthread_mutex_unlock(&codes_lock);
  *found = code;
  return error;
}

// The executable is gone: code that no other has goes too.
void Unbind(void* object) {
  Call* const call = static_cast<Call*>(object);
  if (call == nullptr) return;
  pthread_mutex_lock(&codes_lock);
  for (int64_t i = 0; i < call->held_count; ++i) {
    Code* const code = call->held[i];
    if (--code->holders != 0) continue;
    Code** link = &codes;
    while (*link != code) link = &(*link)->next;
    *link = code->next;
    const cuda::Driver& driver = cuda::driver();
    if (driver.cuCtxPushCurrent(code->context) == 0) {  // Not where the process ends, and the driver has.
      cuda::Context gone;
      driver.cuModuleUnload(code->module);
      driver.cuCtxPopCurrent(&gone);
    }
    free(code->id);
    free(code);
  }
  pthread_mutex_unlock(&codes_lock);
  free(call->id), free(call->name), free(call->ptx), free(call->cubin), free(call->held);
  free(call);
}

XLA_FFI_TypeId call_id = {0};
XLA_FFI_TypeInfo call_info = {XLA_FFI_TypeInfo_STRUCT_SIZE, nullptr, Unbind};

char* Text(const XLA_FFI_Attrs& attributes, const char* name) {
  const auto* span = static_cast<XLA_FFI_ByteSpan*>(Attribute(attributes, name, XLA_FFI_AttrType_STRING));
  return span == nullptr ? nullptr : Copy(span->ptr, span->len);
}

// The executable's part of a call, and the stream that it runs on; or an error.
XLA_FFI_Error* Asked(XLA_FFI_CallFrame* frame, Call** call, cuda::Stream* stream) {
  XLA_FFI_State_Get_Args state = {XLA_FFI_State_Get_Args_STRUCT_SIZE, nullptr, frame->ctx,
                                  XLA_FFI_ExecutionStage_INSTANTIATE, &call_id, nullptr};
  if (XLA_FFI_Error* error = frame->api->XLA_FFI_State_Get(&state)) return error;
  *call = static_cast<Call*>(state.state);
  if (cuda::driver().missing != nullptr) {
    return Failed(frame->api, **call, "cannot be launched", "CUDA's driver lacks", cuda::driver().missing);
  }
  XLA_FFI_Stream_Get_Args asked = {XLA_FFI_Stream_Get_Args_STRUCT_SIZE, nullptr, frame->ctx, nullptr};
  if (XLA_FFI_Error* error = frame->api->XLA_FFI_Stream_Get(&asked)) return error;
  *stream = asked.stream;
  return nullptr;
}

XLA_FFI_Error* Launched(XLA_FFI_CallFrame* frame, const Call& call, const Code& code, cuda::Stream stream) {
  const int64_t inputs = frame->args.size, count = inputs + frame->rets.size;
  void* few[2 * kFewBuffers];
  void** const buffers = count <= kFewBuffers ? few : static_cast<void**>(malloc(2 * count * sizeof(void*)));
  if (buffers == nullptr) abort();
  void** const parameters = buffers + count;
  for (int64_t i = 0; i < count; ++i) {
    const auto* buffer = static_cast<XLA_FFI_Buffer*>(i < inputs ? frame->args.args[i] : frame->rets.rets[i - inputs]);
    buffers[i] = buffer->data;
    parameters[i] = &buffers[i];
  }
  cuda::LaunchAttribute attributes[2] = {};
  cuda::LaunchConfig config = {static_cast<unsigned>(call.grid),   1, 1, static_cast<unsigned>(call.block), 1, 1,
                               static_cast<unsigned>(call.shared), stream, attributes, 0};
  if (call.cooperative) {
    cuda::LaunchAttribute& attribute = attributes[config.attribute_count++];
    attribute.id = cuda::kCooperative;
    attribute.value.cooperative = 1;
  }
  if (call.cluster > 1 && !code.has_clusters) {
    cuda::LaunchAttribute& attribute = attributes[config.attribute_count++];
    attribute.id = cuda::kClusterDimension;
    attribute.value.cluster = {static_cast<unsigned>(call.cluster), 1, 1};
  }
  const cuda::Status status = cuda::driver().cuLaunchKernelEx(&config, code.function, parameters, nullptr);
  if (buffers != few) free(buffers);
  return status == 0 ? nullptr : Failed(frame->api, call, "cannot be launched", Name(status), "");
}

}  // namespace

// Once for each call in an executable, when that is compiled or loaded: perhaps where there is no GPU.
extern "C" XLA_FFI_Error* JaxStitchGpuBind(XLA_FFI_CallFrame* frame) {
  if (IsQuestion(frame)) return Describe(frame, call_id, XLA_FFI_HANDLER_TRAITS_COMMAND_BUFFER_COMPATIBLE);
  const XLA_FFI_Attrs& given = frame->attrs;
  auto* const call = static_cast<Call*>(calloc(1, sizeof(Call)));
  if (call == nullptr) abort();
  call->id = Text(given, "id"), call->name = Text(given, "name");
  call->ptx = Text(given, "ptx"), call->cubin = Text(given, "cubin");
  const int64_t* const numbers[] = {Number(given, "grid"), Number(given, "block"), Number(given, "shared"),
                                    Number(given, "cluster"), Number(given, "cooperative")};
  int64_t* const wanted[] = {&call->grid, &call->block, &call->shared, &call->cluster, &call->cooperative};
  bool whole = call->id != nullptr && call->name != nullptr && call->ptx != nullptr && call->cubin != nullptr;
  for (int i = 0; i < 5; ++i) {
    whole = whole && numbers[i] != nullptr;
    if (numbers[i] != nullptr) *wanted[i] = *numbers[i];
  }
  if (!whole) {
    Unbind(call);
    return Failed(frame->api, XLA_FFI_Error_Code_INVALID_ARGUMENT,
                  "A call of a stitched kernel lacks an attribute: it was made by another version of JAX Stitch.");
  }
  XLA_FFI_State_Set_Args state = {XLA_FFI_State_Set_Args_STRUCT_SIZE, nullptr, frame->ctx,
                                  XLA_FFI_ExecutionStage_INSTANTIATE, &call_id, call};
  XLA_FFI_Error* const error = frame->api->XLA_FFI_State_Set(&state);
  if (error != nullptr) Unbind(call);
  return error;
}

// Before each run, outside of any capture: code is loaded here.
extern "C" XLA_FFI_Error* JaxStitchGpuPrepare(XLA_FFI_CallFrame* frame) {
  if (IsQuestion(frame)) return Describe(frame, XLA_FFI_UNKNOWN_TYPE_ID, XLA_FFI_HANDLER_TRAITS_COMMAND_BUFFER_COMPATIBLE);
  Call* call;
  Code* code;
  cuda::Stream stream;
  if (XLA_FFI_Error* error = Asked(frame, &call, &stream)) return error;
  const InContext here(stream);
  return Find(frame->api, *call, here.context(), &code);
}

// Each time that the call runs, or is captured.
extern "C" XLA_FFI_Error* JaxStitchGpuLaunch(XLA_FFI_CallFrame* frame) {
  if (IsQuestion(frame)) return Describe(frame, XLA_FFI_UNKNOWN_TYPE_ID, XLA_FFI_HANDLER_TRAITS_COMMAND_BUFFER_COMPATIBLE);
  Call* call;
  Code* code;
  cuda::Stream stream;
  if (XLA_FFI_Error* error = Asked(frame, &call, &stream)) return error;
  const InContext here(stream);
  if (XLA_FFI_Error* error = Find(frame->api, *call, here.context(), &code)) return error;
  return Launched(frame, *call, *code, stream);
}

// The type of what executables have, for XLA.
extern "C" void* jax_stitch_gpu_call_id() { return &call_id; }
extern "C" void* jax_stitch_gpu_call_info() { return &call_info; }
