#pragma once

#include <string>
#include <vector>

#include <cukiln/result.hpp>
#include <cukiln/target.hpp>

namespace cukiln {

/// Flags in nvcc's or NVRTC's spelling, taken apart.
struct TranslatedFlags {
  std::vector<std::string> arguments;  ///< for NVRTC, canonical spelling, in the order given
  std::vector<std::string> include;    ///< the folders of `-I`, in the order given
  std::vector<Target> targets;         ///< of `-arch`, `-gencode`
  std::string standard;                ///< of `-std`; the last one wins, as with nvcc
  std::vector<std::string> dropped;    ///< host-only, or NVRTC's default: without effect here
};

/// Errors: invalid_argument, naming the flag and why: unknown, without its value, or one that NVRTC
/// has but that cannot be cached (it writes files, hides headers, or gives no cubin).
Result<TranslatedFlags> translate_flags(const std::vector<std::string>& flags);

/// Whether a flag is one that `translate_flags` knows, and whether the next argument is its value
/// (`-Xptxas`, but not `-Xptxas=-v` and not `-O3`).
enum class FlagShape { unknown, alone, value_follows };
FlagShape shape_of(const std::string& flag);

}  // namespace cukiln
