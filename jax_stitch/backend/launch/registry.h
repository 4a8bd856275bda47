// The stitched kernels that are in memory, by id.
#pragma once
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <atomic>

#include "frame.h"

namespace {

using Kernel = void (*)(void** buffers, int64_t first_block, int64_t last_block);

// A kernel in memory, with the library that it is in, which goes with the last that holds it.
struct Loaded {
  char* id;
  Kernel kernel;
  void* library;
  Loaded* next;  // In the registry.
  std::atomic<int64_t> holders{1};
  std::atomic<bool> used{false};  // Some executable has it, or had it.
};

void Release(Loaded* loaded) {
  if (loaded == nullptr || loaded->holders.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  if (loaded->library != nullptr) dlclose(loaded->library);
  free(loaded->id);
  delete loaded;
}

// The kernels by id: a table of lists.
constexpr size_t kLists = 1024;
pthread_rwlock_t registry_lock = PTHREAD_RWLOCK_INITIALIZER;
Loaded* registry[kLists];

// Where the kernel of an id is, or would be, linked. Call it with the lock.
Loaded** Link(const char* id) {
  size_t hash = 5381;
  for (const char* c = id; *c != 0; ++c) hash = hash * 33 + static_cast<unsigned char>(*c);
  Loaded** link = &registry[hash % kLists];
  while (*link != nullptr && strcmp((*link)->id, id) != 0) link = &(*link)->next;
  return link;
}

// The kernel of an id, held for the caller; null where there is none.
Loaded* Find(const char* id) {
  pthread_rwlock_rdlock(&registry_lock);
  Loaded* const found = *Link(id);
  if (found != nullptr) found->holders.fetch_add(1, std::memory_order_relaxed);
  pthread_rwlock_unlock(&registry_lock);
  return found;
}

}  // namespace
