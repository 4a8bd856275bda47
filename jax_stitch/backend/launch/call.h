// A call of kernels as an executable has it.
#pragma once
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "frame.h"
#include "registry.h"

namespace {

// Steps that do not wait for one another: the next level reads what this one wrote.
struct Level {
  int64_t first, end;  // Steps.
  int64_t bytes;       // How much work they are.
  int32_t alone;       // The next calls that are for one thread.
  int32_t pause;       // As many were such the last time, unless a call by several threads has been shorter since.
  int32_t missed;      // Calls by several threads in a row that were no shorter.
};

// Blocks of a kernel.
struct Step {
  int64_t kernel, first, blocks;
};

// What a call has of a kernel. An executable holds it for as long as it lives, also while it runs.
struct Bound {
  Loaded* kernel;  // Null where the executable was there before its kernel.
  char* id;
  int64_t count;          // Of buffers.
  const int64_t* places;  // Of them: a buffer's number among those of the call, or -1 - bytes into the call's last result.
};

// What an executable has of a call.
struct Call {
  char* name;
  int64_t* numbers;  // The attribute that says what is done: the places are in it.
  Bound* kernels;
  Step* steps;
  Level* levels;
  int64_t kernel_count, step_count, level_count;
  int64_t inputs, outputs, buffers;  // Of those of the call, the kernels': the first; and of the kernels, all in all.
  bool pooled;
};

void Unbind(void* object) {
  Call* const call = static_cast<Call*>(object);
  if (call == nullptr) return;
  for (int64_t k = 0; k < call->kernel_count; ++k) {
    Release(call->kernels[k].kernel);
    free(call->kernels[k].id);
  }
  free(call->name);
  free(call->numbers);
  free(call->kernels);
  free(call->steps);
  free(call->levels);
  free(call);
}

// Memory for so many of a kind, all zero.
template <typename T>
T* Zeros(int64_t count) {
  T* const memory = static_cast<T*>(calloc(count > 0 ? count : 1, sizeof(T)));
  if (memory == nullptr) abort();
  return memory;
}

// Reads what a call does: how many kernels; of each how many buffers and where they are; then levels until the end, each
// its bytes and how many steps, of each the kernel, the first block, and how many. False where it is anything else.
bool Read(Call& call, const int64_t* numbers, int64_t size, const char* ids) {
  call.numbers = reinterpret_cast<int64_t*>(Copy(reinterpret_cast<const char*>(numbers), size * sizeof(int64_t)));
  const int64_t *at = call.numbers, *const end = at + size;
  if (at == end || *at < 1 || *at > end - at) return false;
  call.kernels = Zeros<Bound>(*at);
  call.steps = Zeros<Step>(size);
  call.levels = Zeros<Level>(size);
  for (int64_t left = *at++; left > 0; --left) {
    if (at == end || *at < 0 || *at >= end - at) return false;
    const char* const stop = strchr(ids, '\n');
    const size_t length = stop != nullptr ? stop - ids : strlen(ids);
    call.kernels[call.kernel_count++] = {nullptr, Copy(ids, length), *at, at + 1};
    call.buffers += *at + 1;
    ids += length + (stop != nullptr);
    at += *at + 1;
  }
  while (at != end) {
    if (end - at < 2 || at[1] < 1 || at[1] > (end - at - 2) / 3) return false;
    Level& level = call.levels[call.level_count++];
    level = {call.step_count, call.step_count + at[1], at[0], 0, 0, 0};
    for (at += 2; call.step_count < level.end; at += 3) {
      if (at[0] < 0 || at[0] >= call.kernel_count) return false;
      call.steps[call.step_count++] = {at[0], at[1], at[2]};
    }
  }
  return call.level_count > 0;
}

}  // namespace
