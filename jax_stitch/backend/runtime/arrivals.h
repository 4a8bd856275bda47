// Barriers of all blocks of a launch, and the block that comes last; CUDA alone.
#pragma once

namespace st {

// Where the blocks of a launch meet: a word of memory that this launch alone has while it runs, a result of its call that
// nobody reads. So no two launches share one, whichever functions, programs or streams they belong to, and none has to be
// cleared: what lies there first is anything. From the lowest bit: a mark, which says that the launch has begun to count;
// how many blocks have arrived; and a bit that turns over when all have, as one of them brings what is missing to it.
// The last to leave takes the mark away, so that it is only ever there while blocks meet. Random memory has it once in
// 2^47 launches; floats have it never: its first four bytes are a signalling NaN, which no arithmetic makes.
constexpr int kMarkBits = 47, kCountBits = 16;
constexpr unsigned long long kMark = 0x53747fa1c3e5ull, kMarked = (1ull << kMarkBits) - 1;

// The longest that a block waits for the others of its launch: they run already, or their launch did not fit the device.
#ifndef ST_PATIENCE
#define ST_PATIENCE 30000000000ull  // nanoseconds
#endif

#ifndef ST_HAS_CLOCK  // the checking mode has its own

#define ST_ARRIVED

ST_FN unsigned long long now() {
  unsigned long long time;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
  return time;
}

// An error in place of a hang: the driver prints the text, and the call fails (CUDA_ERROR_ASSERT).
__device__ __noinline__ void gave_up() {
  __assertfail("every block of the launch has come to the barrier within 30 s (JAX Stitch: the GPU is shared with kernels that "
               "do not end; see docs/gpus.md)", "jax_stitch/backend/runtime/arrivals.h", __LINE__, "grid_barrier", sizeof(char));
}

#endif

// What the calling block adds to the word.
ST_FN unsigned long long share() {
  return (blockIdx.x ? 1ull : (1ull << kCountBits) + 1 - gridDim.x) << kMarkBits;
}

// The word as it was before the calling block was counted. The first block makes the word; what was added to it before is
// gone with what lay there, and added again. No block waits for another here.
ST_FN unsigned long long counted(unsigned long long* arrivals) {
  unsigned long long before = atomicAdd(arrivals, share());
  if ((before & kMarked) != kMark) {
    unsigned long long seen = before + share();
    while ((seen & kMarked) != kMark) {
      before = atomicCAS(arrivals, seen, kMark + share());
      if (before == seen) return kMark;
      seen = before;
    }
    before = atomicAdd(arrivals, share());
  }
  return before;
}

ST_FN bool turned(unsigned long long before, unsigned long long after) { return (before ^ after) >> (kMarkBits + kCountBits); }

ST_FN unsigned long long arrive(unsigned long long* arrivals) {
  __threadfence();
  const unsigned long long before = counted(arrivals);
  ST_ARRIVED
  return before;
}

// Blocks mostly arrive within a few looks. The device's clock is far from its multiprocessors: who waits longer reads it, seldom.
constexpr unsigned kLooks = 64;

ST_FN void grid_barrier(unsigned long long* arrivals) {
  __syncthreads();
  if (threadIdx.x == 0) {
    const unsigned long long before = arrive(arrivals);
    unsigned long long begun = 0;
    for (unsigned looks = 1; !turned(before, *static_cast<volatile unsigned long long*>(arrivals)); ++looks) {
      if (looks % kLooks) continue;
      __nanosleep(32);
      if (looks == kLooks) begun = now();
      else if (now() - begun > ST_PATIENCE) gave_up();
    }
    __threadfence();
  }
  __syncthreads();
}

// After the last barrier of a launch.
ST_FN void leave_grid(unsigned long long* arrivals) {
  if (threadIdx.x) return;
  const unsigned long long before = counted(arrivals);
  if (turned(before, before + share())) atomicExch(arrivals, 0ull);
}

ST_FN bool is_last_block(unsigned long long* arrivals) {
  __shared__ bool last;
  __syncthreads();
  if (threadIdx.x == 0) {
    const unsigned long long before = arrive(arrivals);
    last = turned(before, before + share());
    if (last) atomicExch(arrivals, 0ull);
    __threadfence();
  }
  __syncthreads();
  return last;
}

}  // namespace st
