// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include <cukiln/module_spec.hpp>
#include <cukiln/result.hpp>
#include <cukiln/target.hpp>

namespace cukiln {

/// Flags in nvcc's or NVRTC's spelling, sorted by what they mean.
struct TranslatedFlags {
  std::vector<std::string> arguments;  ///< for NVRTC: canonical spelling, in the order given
  std::vector<std::string> include;    ///< folders of `-I`, then those of `-isystem`, as given
  bool relative_pre_include = false;   ///< `-include` names a file by a relative path
  std::vector<Target> targets;         ///< from `-arch` and `-gencode`
  std::string standard;                ///< from `-std`; the last one wins, as with nvcc
  LinkMode link = LinkMode::none;      ///< from `-rdc=true`, `-dc` and `-dlto`
  std::vector<std::string> dropped;    ///< flags without effect on the cubin
  std::vector<std::string> reported;   ///< those of `dropped` that are reported to the user
};

/// Translates nvcc's flags to NVRTC's. Errors: invalid_argument, naming the flag and the reason: it
/// is unknown, lacks its value, or cannot be cached because it writes files or returns no cubin.
Result<TranslatedFlags> translate_flags(const std::vector<std::string>& flags);

/// Whether `translate_flags` knows a flag, and whether the next argument is its value (as for
/// `-Xptxas`, but not for `-Xptxas=-v` or `-O3`).
enum class FlagShape { unknown, alone, value_follows };
FlagShape shape_of(const std::string& flag);

/// Checks arguments for NVRTC that another process has translated: only what `translate_flags` can
/// give passes, of ptxas's options only a list, and `--split-compile` up to 16 threads. Errors:
/// invalid_argument, naming the argument. `any_spelling`: those of a program of NVRTC's own
/// interface, which are as its host wrote them.
Result<void> check_arguments(const std::vector<std::string>& arguments, bool any_spelling = false);

/// Every spelling that `translate_flags` accepts.
std::vector<std::string> known_flags();

}  // namespace cukiln
