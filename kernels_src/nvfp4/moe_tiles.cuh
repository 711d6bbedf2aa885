// The tile list that moe_route makes and the other kernels of a mixture of experts read.
//
// A slot is an entry of topk_ids: token * topk + rank. Valid slots, sorted by expert and within an expert
// by slot, have positions 0, 1, ...; a tile is up to a fixed number of consecutive positions of one expert.
#pragma once

#include "nvfp4_numerics.cuh"

namespace cukiln {
namespace nvfp4 {

struct alignas(16) MoeTile {
  u32 expert;
  u32 first;  // first position
  u32 count;
  u32 unused;
};

}  // namespace nvfp4
}  // namespace cukiln
