#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <cukiln/result.hpp>

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
};

/// The first NVRTC in the order of NVIDIA's cuda-pathfinder: wheels in site-packages, conda, what
/// is loaded or ld.so would load, CUDA_HOME, the usual folders of toolkits; then the default roots.
/// Its headers are those beside it, else the ones of the same version elsewhere, else any. Errors:
/// not_found, naming every place searched.
Result<NvrtcInstall> find_nvrtc(const NvrtcSearch& search);

/// `13.0` from CUDA_VERSION in cuda.h (or CUDART_VERSION in cuda_runtime_api.h); empty: neither is
/// there.
std::string header_version(const std::vector<std::string>& folders);

/// `13` or `13.0.88` from `libnvrtc.so.13.0.88`; empty for another name, and for the `.alt.`
/// variants.
std::string library_version(std::string_view file_name, std::string_view stem);

}  // namespace cukiln
