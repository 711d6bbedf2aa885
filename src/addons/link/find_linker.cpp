// SPDX-License-Identifier: Apache-2.0
#include "addons/link/find_linker.hpp"

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/file.hpp"
#include "core/base/result.hpp"
#include "core/compile/search_folders.hpp"

namespace cukiln {

namespace {

constexpr std::string_view kLinkerStem = "libnvJitLink.so";

bool is_folder(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored);
}

}  // namespace

Result<std::string> find_linker(const std::string& nvrtc_library, const NvrtcSearch& search) {
  const std::string version = library_version(
      std::string_view(nvrtc_library).substr(nvrtc_library.rfind('/') + 1), "libnvrtc.so");
  const std::string major = version.substr(0, version.find('.'));
  std::vector<std::string> searched;
  std::string found;
  const auto look_in = [&](const std::string& folder) {
    if (!found.empty() || std::find(searched.begin(), searched.end(), folder) != searched.end()) {
      return !found.empty();
    }
    searched.push_back(folder);
    found = newest_of(names_in(folder, kLinkerStem), folder, kLinkerStem, major);
    return !found.empty();
  };
  const auto look_around = [&](const std::string& folder) {
    // Wheels of CUDA 12 have one folder each: nvidia/cuda_nvrtc/lib, nvidia/nvjitlink/lib.
    const std::string wheels = folder_of(folder_of(folder));
    return look_in(folder) || (is_folder(join_path(wheels, "nvjitlink")) &&
                               look_in(join_path(wheels, "nvjitlink/lib")));
  };
  if (look_around(folder_of(nvrtc_library))) {
    return found;
  }
  visit_search_folders(search, look_around);
  if (!found.empty()) {
    return found;
  }
  std::string message = fmt::format(
      "nvJitLink (libnvJitLink.so{}{}) was not found, which links modules. Install CUDA's toolkit, "
      "or the Python package nvidia-nvjitlink{}, of NVRTC's version. Searched:",
      major.empty() ? "" : ".", major, major == "12" ? "-cu12" : "");
  for (const std::string& folder : searched) {
    message += "\n  " + folder;
  }
  return Error(ErrorCode::not_found, std::move(message));
}

}  // namespace cukiln
