// `backend/launch/driver.h` beside CUDA's own header, for test_gpu_handler.py.
#include <cuda.h>
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

#include "driver.h"

#define ST_SAME(what, theirs) static_assert(int(cuda::what) == int(theirs), #what)
#define ST_AT(field, theirs) static_assert(offsetof(cuda::LaunchConfig, field) == offsetof(CUlaunchConfig, theirs), #field)
ST_AT(grid_x, gridDimX);
ST_AT(grid_z, gridDimZ);
ST_AT(block_x, blockDimX);
ST_AT(shared_bytes, sharedMemBytes);
ST_AT(stream, hStream);
ST_AT(attributes, attrs);
ST_AT(attribute_count, numAttrs);
static_assert(sizeof(cuda::LaunchConfig) == sizeof(CUlaunchConfig), "launches");
static_assert(sizeof(cuda::LaunchAttribute) == sizeof(CUlaunchAttribute), "attributes");
static_assert(offsetof(cuda::LaunchAttribute, value) == offsetof(CUlaunchAttribute, value), "values");
ST_SAME(kCooperative, CU_LAUNCH_ATTRIBUTE_COOPERATIVE);
ST_SAME(kClusterDimension, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
ST_SAME(kMaxDynamicShared, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
ST_SAME(kRequiredClusterWidth, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH);
ST_SAME(kNonPortableCluster, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED);
ST_SAME(kErrorLog, CU_JIT_ERROR_LOG_BUFFER);
ST_SAME(kErrorLogBytes, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES);
