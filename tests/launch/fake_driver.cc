// A driver in place of CUDA's, for test_gpu_handler.py: it writes down what it is asked for, and has the test run kernels.
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <atomic>

using Ran = int (*)(const void* config, const char* function, void** parameters);

static char said[1 << 16];
static char images[64][64];
static std::atomic<int> loaded{0};
static Ran run;
static int refused_cubins, broken, current = 1;

static void say(const char* what, long value, const char* text = "") {
  const size_t at = strlen(said);
  snprintf(said + at, sizeof said - at, "%s %ld %s\n", what, value, text);
}

extern "C" {

const char* fake_said() { return said; }
void fake_forget() { said[0] = 0; }
void fake_set(Ran ran, int refuse_cubins, int broken_launches) {
  run = ran, refused_cubins = refuse_cubins, broken = broken_launches;
}

int cuStreamGetCtx(void* stream, void** context) {
  *context = reinterpret_cast<void*>(reinterpret_cast<intptr_t>(stream) & 0xff);
  return 0;
}
int cuCtxGetCurrent(void** context) { return *context = reinterpret_cast<void*>(intptr_t(current)), 0; }
int cuCtxPushCurrent_v2(void* context) { return say("push", reinterpret_cast<intptr_t>(context)), 0; }
int cuCtxPopCurrent_v2(void**) { return say("pop", 0), 0; }
int cuModuleLoadDataEx(void** module, const void* image, unsigned count, int* options, void** values) {
  const char* const text = static_cast<const char*>(image);
  const bool cubin = strncmp(text, "CUBIN", 5) == 0;
  if (count != 2 || options[0] != 5 || options[1] != 6) return 1;
  if (cubin && refused_cubins) return snprintf(static_cast<char*>(values[0]), 99, "too new"), 209;
  if (strstr(text, "wrong") != nullptr) return snprintf(static_cast<char*>(values[0]), 99, "line 1: wrong"), 218;
  const int number = ++loaded;
  snprintf(images[number], sizeof images[number], "%s", text);
  *module = images[number];
  say("load", number, cubin ? "cubin" : "ptx");
  return 0;
}
int cuModuleGetFunction(void** function, void* module, const char* name) {
  *function = module;
  say("function", 0, name);
  return 0;
}
int cuModuleUnload(void* module) { return say("unload", 0, static_cast<char*>(module)), 0; }
int cuFuncGetAttribute(int* value, int attribute, void* function) {
  *value = attribute == 11 && strstr(static_cast<char*>(function), "clustered") ? 2 : 0;
  return 0;
}
int cuFuncSetAttribute(void*, int attribute, int value) {
  char text[32];
  snprintf(text, sizeof text, "%d", value);
  return say("attribute", attribute, text), 0;
}
int cuLaunchKernelEx(const void* config, void* function, void** parameters, void** extra) {
  if (broken || extra != nullptr) return 720;
  return run(config, static_cast<char*>(function), parameters);
}
int cuGetErrorName(int status, const char** name) {
  *name = status == 720 ? "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE" : status == 218 ? "CUDA_ERROR_INVALID_PTX" : "CUDA_ERROR_OTHER";
  return 0;
}
}
