// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include <cukiln/result.hpp>
#include <cukiln/target.hpp>

namespace cukiln {

/// Flags in nvcc's or NVRTC's spelling, taken apart.
struct TranslatedFlags {
  std::vector<std::string> arguments;  ///< for NVRTC, canonical spelling, in the order given
  std::vector<std::string> include;    ///< folders: of `-I`, then of `-isystem`, each as given
  bool relative_pre_include = false;   ///< a file of `-include` is to be found in some folder
  std::vector<Target> targets;         ///< of `-arch`, `-gencode`
  std::string standard;                ///< of `-std`; the last one wins, as with nvcc
  std::vector<std::string> dropped;    ///< without effect on the cubin
  std::vector<std::string> reported;   ///< those of `dropped` that the user should hear about
};

/// Errors: invalid_argument, naming the flag and why: unknown, without its value, or one that NVRTC
/// has but that cannot be cached (it writes files, or gives no cubin).
Result<TranslatedFlags> translate_flags(const std::vector<std::string>& flags);

/// Whether a flag is one that `translate_flags` knows, and whether the next argument is its value
/// (`-Xptxas`, but not `-Xptxas=-v` and not `-O3`).
enum class FlagShape { unknown, alone, value_follows };
FlagShape shape_of(const std::string& flag);

/// Every spelling that `translate_flags` takes.
std::vector<std::string> known_flags();

}  // namespace cukiln
