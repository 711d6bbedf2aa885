// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <cukiln/result.hpp>
#include <cukiln/target.hpp>

namespace cukiln {

/// Where NVRTC and CUDA's headers may be, as the host's settings say. Nothing here reads the
/// environment: whoever does fills this in.
struct NvrtcSearch {
  std::string nvrtc_library;               ///< this one and no other
  std::vector<std::string> include_path;   ///< header folders, before those that are found
  std::vector<std::string> site_packages;  ///< of the running Python, if there is one
  std::string virtual_env;                 ///< $VIRTUAL_ENV
  std::string conda_prefix;                ///< $CONDA_PREFIX
  std::string cuda_home;                   ///< $CUDA_HOME, else $CUDA_PATH
  std::string home;                        ///< for wheels of `pip install --user`
  std::vector<std::string> library_path;   ///< $LD_LIBRARY_PATH
  std::vector<std::string> default_roots;  ///< searched last
  Target target;                           ///< what it has to know; {}: nothing in particular
  bool system = true;  ///< also what this process has loaded, ld.so's cache and /usr/local/cuda*

  /// The folders that the build was configured with (CUKILN_DEFAULT_CUDA_ROOTS).
  static std::vector<std::string> built_in_roots();
};

/// What was found.
struct NvrtcInstall {
  std::string library;
  std::string builtins;               ///< empty: none beside the library
  std::vector<std::string> headers;   ///< folders of CUDA's own headers, in order; may be empty
  std::vector<std::string> searched;  ///< every place looked at, in order
  std::vector<std::string>
      passed_over;      ///< NVRTCs before it that are too old for the target, and why
  std::string too_old;  ///< why it is too old itself, and yet the best; empty: nothing says so
};

/// The first NVRTC in the order of NVIDIA's cuda-pathfinder: wheels in site-packages, conda, what
/// is loaded or ld.so would load, CUDA_HOME, the usual folders of toolkits; then the default roots.
/// One that is too old for the target, by its files' names, is passed over when a newer one
/// follows. Its headers are those beside it, else the ones of the same version elsewhere, else any.
/// Errors: not_found, naming every place searched.
Result<NvrtcInstall> find_nvrtc(const NvrtcSearch& search);

/// Major and minor version of the first NVRTC that knows a target; 0, 0: every one that is
/// supported. Source: PTX ISA, "Release notes": the targets of 8.0, 8.7, 8.8 and 9.0.
std::pair<int, int> oldest_nvrtc_for(Target target) noexcept;

/// `13.0` from CUDA_VERSION in cuda.h (or CUDART_VERSION in cuda_runtime_api.h); empty: neither is
/// there.
std::string header_version(const std::vector<std::string>& folders);

/// `13` or `13.0.88` from `libnvrtc.so.13.0.88`; empty for another name, and for the `.alt.`
/// variants.
std::string library_version(std::string_view file_name, std::string_view stem);

}  // namespace cukiln
