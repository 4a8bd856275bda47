// The handler for GPUs on the CPU, for test_gpu_handler.py: the frames are XLA's own, only the stream is made up.
#include "xla/ffi/api/c_api.h"

static XLA_FFI_Handler *bind, *prepare, *launch;
static void* stream;

static XLA_FFI_Error* Stream(XLA_FFI_Stream_Get_Args* args) {
  args->stream = stream;
  return nullptr;
}

static XLA_FFI_Error* With(XLA_FFI_Handler* handler, XLA_FFI_CallFrame* frame) {
  if (frame->extension_start != nullptr) return handler(frame);
  const XLA_FFI_Api* const api = frame->api;
  XLA_FFI_Api changed = *api;
  changed.XLA_FFI_Stream_Get = Stream;
  frame->api = &changed;
  XLA_FFI_Error* const error = handler(frame);
  frame->api = api;
  return error;
}

extern "C" {
void shim_set(XLA_FFI_Handler* b, XLA_FFI_Handler* p, XLA_FFI_Handler* l) { bind = b, prepare = p, launch = l; }
void shim_stream(void* value) { stream = value; }
XLA_FFI_Error* JaxStitchGpuBind(XLA_FFI_CallFrame* frame) { return With(bind, frame); }
XLA_FFI_Error* JaxStitchGpuPrepare(XLA_FFI_CallFrame* frame) { return With(prepare, frame); }
XLA_FFI_Error* JaxStitchGpuLaunch(XLA_FFI_CallFrame* frame) { return With(launch, frame); }
// Whether a handler says of itself that its calls may be captured in command buffers.
int shim_traits(XLA_FFI_Handler* handler) {
  XLA_FFI_Metadata metadata = {};
  XLA_FFI_Metadata_Extension extension = {};
  extension.extension_base.type = XLA_FFI_Extension_Metadata;
  extension.metadata = &metadata;
  XLA_FFI_CallFrame frame = {};
  frame.extension_start = &extension.extension_base;
  return handler(&frame) == nullptr ? int(metadata.traits) : -1;
}
}
