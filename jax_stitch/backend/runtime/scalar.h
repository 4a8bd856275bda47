// Everything a generated kernel does to one element: types, conversions, integer and floating-point operations, with
// HLO's semantics. One source for CUDA (NVRTC, no other header needed) and for a host compiler (C++17), all in
// namespace `st`.
//
// Sub-word floats are storage only: `load` them to float, compute, `store` them back. Functions are named after
// their HLO opcodes. The second operand of a binary operation converts to the type of the first, so literals need no
// suffix.
#pragma once
#include "scalar_types.h"
#include "scalar_integer.h"
#ifdef __CUDACC__
#include "scalar_math_cuda.h"
#else
#include "scalar_math_host.h"
#include "scalar_base2_host.h"
#include "scalar_hyperbolic_host.h"
#endif
#include "scalar_float.h"
#include "scalar_convert.h"
