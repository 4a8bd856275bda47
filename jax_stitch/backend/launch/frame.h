// What handlers ask of XLA's calls, in its C interface: attributes, errors, what a handler is.
#pragma once
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "xla/ffi/api/c_api.h"

namespace {

// The bytes with a zero behind them, as memory of their own.
char* Copy(const char* bytes, size_t size) {
  char* copy = static_cast<char*>(malloc(size + 1));
  if (copy == nullptr) abort();
  memcpy(copy, bytes, size);
  copy[size] = 0;
  return copy;
}

XLA_FFI_Error* Failed(const XLA_FFI_Api* api, XLA_FFI_Error_Code code, const char* message) {
  XLA_FFI_Error_Create_Args error = {XLA_FFI_Error_Create_Args_STRUCT_SIZE, nullptr, message, code};
  return api->XLA_FFI_Error_Create(&error);
}

// The value of an attribute; null where there is none of this type.
void* Attribute(const XLA_FFI_Attrs& attributes, const char* name, XLA_FFI_AttrType type) {
  for (int64_t i = 0; i < attributes.size; ++i) {
    const XLA_FFI_ByteSpan& found = *attributes.names[i];
    if (found.len != strlen(name) || memcmp(found.ptr, name, found.len) != 0) continue;
    return attributes.types[i] == type ? attributes.attrs[i] : nullptr;
  }
  return nullptr;
}

const int64_t* Number(const XLA_FFI_Attrs& attributes, const char* name) {
  const auto* scalar = static_cast<XLA_FFI_Scalar*>(Attribute(attributes, name, XLA_FFI_AttrType_SCALAR));
  if (scalar == nullptr || scalar->dtype != XLA_FFI_DataType_S64) return nullptr;
  return static_cast<const int64_t*>(scalar->value);
}

// XLA asks each handler once which version of the interface it was compiled with, and what state it makes.
XLA_FFI_Error* Describe(XLA_FFI_CallFrame* frame, XLA_FFI_TypeId state, XLA_FFI_Handler_Traits traits) {
  auto* const extension = reinterpret_cast<XLA_FFI_Metadata_Extension*>(frame->extension_start);
  XLA_FFI_Metadata* const metadata = extension->metadata;
  metadata->api_version = {XLA_FFI_Api_Version_STRUCT_SIZE, nullptr, XLA_FFI_API_MAJOR, XLA_FFI_API_MINOR};
  metadata->traits = traits;
  metadata->state_type_id = state;
  return nullptr;
}

bool IsQuestion(const XLA_FFI_CallFrame* frame) {
  return frame->extension_start != nullptr && frame->extension_start->type == XLA_FFI_Extension_Metadata;
}

}  // namespace
