// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <cukiln/result.hpp>
#include <cukiln/target.hpp>

namespace cukiln {

/// The places where NVRTC and CUDA's headers may be. The loader fills this in from settings and
/// environment; this layer reads neither.
struct NvrtcSearch {
  std::string nvrtc_library;               ///< if set, the only library considered
  std::vector<std::string> include_path;   ///< header folders, searched before those found
  std::vector<std::string> site_packages;  ///< folders of the running Python, if there is one
  std::string virtual_env;                 ///< $VIRTUAL_ENV
  std::string conda_prefix;                ///< $CONDA_PREFIX
  std::string cuda_home;                   ///< $CUDA_HOME, else $CUDA_PATH
  std::string home;                        ///< for wheels of `pip install --user`
  std::vector<std::string> library_path;   ///< $LD_LIBRARY_PATH
  std::vector<std::string> default_roots;  ///< searched last
  Target target;                           ///< that NVRTC must support; {} for any
  bool system = true;  ///< search this process's libraries and program, ld.so's cache and
                       ///< /usr/local/cuda* too

  /// Returns the folders that the build was configured with (CUKILN_DEFAULT_CUDA_ROOTS), for what
  /// runs in the build's folder; none for what was installed, which outlives the checkout.
  static std::vector<std::string> built_in_roots();
};

/// An NVRTC found by find_nvrtc.
struct NvrtcInstall {
  std::string library;
  std::string builtins;                  ///< the builtins library; empty if none is beside it
  std::vector<std::string> headers;      ///< folders of CUDA's own headers, in order; may be empty
  std::vector<std::string> searched;     ///< every folder searched, in order
  std::vector<std::string> passed_over;  ///< libraries before it, and why they are too old
  std::string too_old;  ///< why this one is too old, if no newer one was found; else empty
};

/// Finds the first NVRTC in the order of NVIDIA's cuda-pathfinder: wheels in site-packages (the
/// given ones, those of the running Python, those of the environment), conda,
/// libraries that are loaded or that ld.so would load, CUDA_HOME, the usual folders of toolkits;
/// then the default roots. A library whose file name says that it is too old for the target is
/// passed over if a newer one follows. Its headers are those beside it, else those of the same
/// major version elsewhere, else any. Errors: not_found, naming every folder searched.
Result<NvrtcInstall> find_nvrtc(const NvrtcSearch& search);

/// Returns major and minor version of the first NVRTC that supports a target; {0, 0} if every one
/// that cukiln supports does. Source: PTX ISA, "Release notes": the targets of 8.0, 8.7, 8.8
/// and 9.0; for 107 the targets of NVRTC 13.4.
std::pair<int, int> oldest_nvrtc_for(Target target) noexcept;

/// True if a version, `13.0.88`, is older than major and minor of another.
bool is_older(std::string_view version, std::pair<int, int> than);

/// Returns all targets of an NVRTC, given what its nvrtcGetSupportedArchs lists: each capability,
/// and with the suffixes `a` (from 90 on) and `f` (from 100 on) that its version knows.
std::vector<Target> targets_of_nvrtc(const std::vector<std::uint32_t>& capabilities,
                                     std::string_view version);

/// True if CUDA's own headers are in one of the folders.
bool has_cuda_headers(const std::vector<std::string>& folders);

/// Returns the folders with CUDA's headers that an NVRTC of any version would use, the configured
/// ones first: for a machine without NVRTC.
std::vector<std::string> find_headers(const NvrtcSearch& search);

/// Returns the CUDA version of header folders, `13.0`, from CUDA_VERSION in cuda.h or
/// CUDART_VERSION in cuda_runtime_api.h; empty if neither is there.
std::string header_version(const std::vector<std::string>& folders);

/// Returns the version in a library's file name: `13` for `libnvrtc.so.13`, `13.0.88` for
/// `libnvrtc.so.13.0.88`; empty for other names, `.alt.` variants included.
std::string library_version(std::string_view file_name, std::string_view stem);

/// Returns the newest library named `stem` among a folder's `names`; of major version `major`,
/// unless that is empty.
std::string newest_of(const std::vector<std::string>& names, const std::string& folder,
                      std::string_view stem, std::string_view major);

}  // namespace cukiln
