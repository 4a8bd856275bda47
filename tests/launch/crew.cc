// A crew that several callers employ at a time, now and then after it has fallen asleep: prints how many tasks were given, how many
// were done, how many by a thread that rounds otherwise than its caller or runs a second task meanwhile; then, without an argument,
// what a forked process gets.
#include "crew.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

std::atomic<long> given{0}, done{0}, wrong{0};

struct Task {
  Rounding rounding = GetRounding();
  std::atomic<int> left{0};
};

void Do(void* argument) {
  static thread_local bool busy = false;
  Task& task = *static_cast<Task*>(argument);
  if (busy || GetRounding() != task.rounding) ++wrong;
  busy = true;
  for (int i = 0; i < 20; ++i) Pause();
  busy = false;
  ++done;
  --task.left;
}

void Call(unsigned seed, int calls) {
  for (int i = 0; i < calls; ++i) {
    Task task;
    const int wanted = 1 + rand_r(&seed) % 3;
    task.left = 1;  // Nobody is late for what is still being given.
    const int64_t employed = Employ(wanted, 3, Do, &task);
    if (employed < 0 || employed > wanted) ++wrong;
    given += employed;
    task.left += static_cast<int>(employed) - 1;
    while (task.left > 0) std::this_thread::yield();
    if (rand_r(&seed) % 50 == 0) usleep(200);
  }
}

int main(int count, char**) {
  std::thread others[2];
  for (unsigned k = 0; k < 2; ++k) {
    others[k] = std::thread([k] {
#if defined(__x86_64__)
      SetRounding(GetRounding() | (k ? 0x8040 : 0));  // Subnormal numbers are zero, as in XLA's threads.
#endif
      Call(k, 3000);
    });
  }
  for (auto& other : others) other.join();
  printf("%ld %ld %ld ", given.load(), done.load(), wrong.load());
  fflush(stdout);
  if (count > 1) return 0;  // The thread sanitizer starts no threads in a forked process.
  const pid_t child = fork();
  if (child == 0) {
    Task task;
    task.left = 1;
    const int64_t employed = Employ(1, 1, Do, &task);
    for (int i = 0; i < 5000 && task.left > 0; ++i) usleep(1000);
    _exit(employed == 1 && task.left == 0 ? 0 : 1);
  }
  int status = 1;
  waitpid(child, &status, 0);
  printf("%d\n", WEXITSTATUS(status));
  return 0;
}
