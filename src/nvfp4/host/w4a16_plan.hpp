// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "nvfp4/host/sm90_plan.hpp"
#include "nvfp4/host/w4a16_table.hpp"

namespace cukiln::nvfp4::w4a16 {

// The tiles of W4a16Gemm's kernels: as in sm90_plan.hpp. Of the shapes with many tokens whose times
// are known, the last hundred were not used for the fit.

inline constexpr sm90::DecodeTile kDecodeTiles[] = {
    {"w4a16_gemm_decode_8x2", 8, 16, 33856, 4.6, 7.0},
    {"w4a16_gemm_decode_8x4", 8, 32, 50240, 6.6, 10.4},
    {"w4a16_gemm_decode_8x7", 8, 56, 91200, 9.8, 16.0},
    {"w4a16_gemm_decode_8x5", 8, 40, 74816, 8.0, 13.2},
    {"w4a16_gemm_decode_8x18", 8, 144, 181312, 22.8, 45.0},
    {"w4a16_gemm_decode_16x2", 16, 16, 33856, 7.0, 11.5},
    {"w4a16_gemm_decode_16x4", 16, 32, 50240, 9.0, 17.3},
    {"w4a16_gemm_decode_16x7", 16, 56, 91200, 12.7, 21.5},
    {"w4a16_gemm_decode_16x5", 16, 40, 74816, 9.8, 18.6},
    {"w4a16_gemm_decode_16x8", 16, 64, 83008, 13.4, 24.0},
    {"w4a16_gemm_decode_16x10", 16, 80, 115776, 15.8, 32.4},
};

inline constexpr sm90::PrefillTile kPrefillTiles[] = {
    {"w4a16_gemm_prefill_32x128", 32, 128, 97392, 2, 1.01},
    {"w4a16_gemm_prefill_64x128", 64, 128, 112736, 2, 1.09},
    {"w4a16_gemm_prefill_64x256", 64, 256, 227456, 1, 1.09},
    {"w4a16_gemm_prefill_128x128", 128, 128, 178272, 1, 0.781, 2, sm90::PrefillKind::paired,
     "w4a16_gemm_prefill_128x128_pair"},
    {"w4a16_gemm_prefill_96x128", 96, 128, 213120, 1, 0.705},
    {"w4a16_gemm_prefill_160x128", 160, 128, 206432, 1, 0.906},
    {"w4a16_gemm_prefill_192x128", 192, 128, 180816, 1, 1.01},
    {"w4a16_gemm_prefill_224x128", 224, 128, 205392, 1, 1.1},
    {"w4a16_gemm_prefill_256x128", 256, 128, 229968, 1, 1.25},
    {"w4a16_gemm_skinny_32x64_2", 32, 64, 107664, 2, 0.49, 2, sm90::PrefillKind::skinny},
    {"w4a16_gemm_skinny_32x64_3", 32, 64, 200960, 1, 0.247, 3, sm90::PrefillKind::skinny},
    {"w4a16_gemm_skinny_64x64_3", 64, 64, 194720, 1, 0.284, 3, sm90::PrefillKind::skinny},
    {"w4a16_gemm_skinny_128x64_2", 128, 64, 228464, 1, 0.406, 2, sm90::PrefillKind::skinny},
    {"w4a16_gemm_prefill_256x128_helped", 256, 128, 229968, 1, 1.12, 2, sm90::PrefillKind::tail,
     "w4a16_gemm_prefill_256x128_helper"},
};

inline constexpr sm90::Tiles kTiles = sm90::make_tiles(kDecodeTiles, kPrefillTiles, false,
                                                       {3.43, 1.28, 0, 2.23, 0.424, 0.275, 0.511});
inline constexpr auto kTunedRows =
    find_kernels(kMeasuredRows, [](std::uint32_t i) { return kTiles.kernel_name(i); });
inline constexpr GemmTable kTuned = {kTunedRows.data(), kTunedRows.size(), kMeasuredSms};

}  // namespace cukiln::nvfp4::w4a16
