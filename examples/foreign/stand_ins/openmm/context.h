// SPDX-License-Identifier: Apache-2.0
// Included before each of OpenMM's kernels: what its CudaContext writes before them as text, for
// single precision and a rectangular periodic box.
#pragma once

#define SYNC_WARPS __syncwarp();
#define SHFL(var, lane) __shfl_sync(0xffffffff, var, lane)
#define BALLOT(var) __ballot_sync(0xffffffff, var)

#define SQRT sqrtf
#define RSQRT rsqrtf
#define RECIP(x) (1.0f / (x))
#define EXP expf
#define LOG logf
#define POW powf
#define COS cosf
#define SIN sinf
#define TAN tanf
#define ACOS acosf
#define ASIN asinf
#define ATAN atanf
#define ERF erff
#define ERFC erfcf
#define FMA fmaf
#define FABS fabsf
#define M_PI 3.14159265358979323846f

typedef float real;
typedef float2 real2;
typedef float3 real3;
typedef float4 real4;
typedef float mixed;
typedef float2 mixed2;
typedef float3 mixed3;
typedef float4 mixed4;
typedef unsigned int tileflags;
#define make_real2 make_float2
#define make_real3 make_float3
#define make_real4 make_float4
#define make_mixed2 make_float2
#define make_mixed3 make_float3
#define make_mixed4 make_float4

#define CUKILN_WRAP(a, origin, shift, axis) \
  a.axis -= floorf((a.axis - (origin)) * invPeriodicBoxSize.axis + (shift)) * periodicBoxSize.axis;
#define APPLY_PERIODIC_TO_DELTA(delta) \
  {                                    \
    CUKILN_WRAP(delta, 0.0f, 0.5f, x)  \
    CUKILN_WRAP(delta, 0.0f, 0.5f, y)  \
    CUKILN_WRAP(delta, 0.0f, 0.5f, z)  \
  }
#define APPLY_PERIODIC_TO_POS(pos)  \
  {                                 \
    CUKILN_WRAP(pos, 0.0f, 0.0f, x) \
    CUKILN_WRAP(pos, 0.0f, 0.0f, y) \
    CUKILN_WRAP(pos, 0.0f, 0.0f, z) \
  }
#define APPLY_PERIODIC_TO_POS_WITH_CENTER(pos, center) \
  {                                                    \
    CUKILN_WRAP(pos, center.x, 0.5f, x)                \
    CUKILN_WRAP(pos, center.y, 0.5f, y)                \
    CUKILN_WRAP(pos, center.z, 0.5f, z)                \
  }

#include <kernels/common.cu>
#include <kernels/vectorOps.cu>
