// Defines CUKILN_BLOCK_SCALED_MMA for targets that have tcgen05's block-scaled MMA, and for the CPU emulator.
#pragma once

// sm_110f has no block-scaled tcgen05.mma, unlike sm_110a and the family targets of sm_100.
#if defined(CUKILN_MACHINE) || defined(__CUDA_ARCH_FEAT_SM100_ALL) ||                      \
    defined(__CUDA_ARCH_FEAT_SM103_ALL) || defined(__CUDA_ARCH_FEAT_SM107_ALL) ||          \
    defined(__CUDA_ARCH_FEAT_SM110_ALL) ||                                                 \
    (defined(__CUDA_ARCH_FAMILY_SPECIFIC__) &&                                             \
     (__CUDA_ARCH_FAMILY_SPECIFIC__ == 1000 || __CUDA_ARCH_FAMILY_SPECIFIC__ == 1030 ||    \
      __CUDA_ARCH_FAMILY_SPECIFIC__ == 1070))
#define CUKILN_BLOCK_SCALED_MMA
#endif
