// SPDX-License-Identifier: Apache-2.0
#include "core/compile/nvrtc_library.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <set>

#include "core/base/file.hpp"
#include "core/base/result.hpp"
#include "core/base/trusted_file.hpp"
#include "core/compile/search_folders.hpp"

#ifndef CUKILN_DEFAULT_CUDA_ROOTS
#define CUKILN_DEFAULT_CUDA_ROOTS ""
#define CUKILN_BUILD_FOLDER "/"
#endif

namespace cukiln {

namespace {

constexpr std::string_view kPrefix = "libnvrtc";
constexpr std::string_view kLibraryStem = "libnvrtc.so";
constexpr std::string_view kBuiltinsStem = "libnvrtc-builtins.so";

bool is_file(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode);
}

bool is_folder(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

std::vector<int> numbers_of(std::string_view version) {
  std::vector<int> numbers;
  while (!version.empty()) {
    const std::size_t dot = std::min(version.find('.'), version.size());
    int number = 0;
    std::from_chars(version.data(), version.data() + dot, number);
    numbers.push_back(number);
    version.remove_prefix(std::min(dot + 1, version.size()));
  }
  return numbers;
}

std::string major_of(const std::string& library) {
  const std::string version = library_version(
      std::string_view(library).substr(library.find_last_of('/') + 1), kLibraryStem);
  return version.substr(0, version.find('.'));
}

/// Returns the version as far as file names state it, `12.6` or `13`: from the library's own name,
/// from that of the builtins library beside it, or from the file that the link libnvrtc.so.12 leads
/// to.
std::vector<int> named_version(const std::string& library, const std::vector<std::string>& names) {
  const auto version_in = [](const std::string& path) {
    const std::string_view name = std::string_view(path).substr(path.find_last_of('/') + 1);
    return numbers_of(library_version(name, kLibraryStem));
  };
  std::vector<int> version = version_in(library);
  if (version.size() < 2) {
    const std::string major = major_of(library);
    const std::string builtins = newest_of(names, folder_of(library), kBuiltinsStem, major);
    if (const std::size_t at = builtins.rfind(".so."); at != std::string::npos) {
      version = numbers_of(std::string_view(builtins).substr(at + 4));
    }
  }
  if (char* const real = version.size() < 2 ? ::realpath(library.c_str(), nullptr) : nullptr) {
    version = version_in(real);
    std::free(real);  // NOLINT: realpath's
  }
  return version;
}

/// Returns why a library is too old; empty if it is new enough, or its version is unknown.
std::string why_too_old(const std::string& library, const std::vector<std::string>& names,
                        Target target) {
  const auto [major, minor] = oldest_nvrtc_for(target);
  if (major == 0) {
    return {};
  }
  const std::vector<int> version = named_version(library, names);
  if (version.empty() || version[0] > major || (version[0] == major && version.size() < 2) ||
      (version[0] == major && version[1] >= minor)) {
    return {};
  }
  return fmt::format("NVRTC {} ({}) is too old for {}, which needs {}.{}", fmt::join(version, "."),
                     library, target.name(), major, minor);
}

std::vector<std::string> existing(const std::vector<std::string>& folders) {
  std::vector<std::string> out;
  std::copy_if(folders.begin(), folders.end(), std::back_inserter(out), is_folder);
  return out;
}

/// Returns the headers beside the library, else those of the same major version, else any. If an
/// error is in headers of another version, its message names both versions.
std::vector<std::string> headers_of(const std::string& library, const NvrtcSearch& search) {
  std::vector<std::string> beside =
      library.empty() ? std::vector<std::string>() : existing(headers_beside(folder_of(library)));
  if (has_cuda_headers(beside)) {
    return beside;
  }
  std::vector<std::string> same_major;
  std::vector<std::string> any;
  const std::string major = major_of(library);
  visit_search_folders(search, [&](const std::string& folder) {
    std::vector<std::string> here = existing(headers_beside(folder));
    if (!has_cuda_headers(here)) {
      return false;
    }
    const std::string version = header_version(here);
    if (!major.empty() && version.substr(0, version.find('.')) == major) {
      same_major = std::move(here);
      return true;
    }
    if (any.empty()) {
      any = std::move(here);
    }
    return false;
  });
  return !same_major.empty() ? same_major : !any.empty() ? any : beside;
}

int number_after(ByteView text, std::string_view name) {
  const std::size_t at = text.find(name);
  if (at == ByteView::npos) {
    return 0;
  }
  const std::size_t digit = text.find_first_not_of(" \t", at + name.size());
  int number = 0;
  if (digit != ByteView::npos) {
    std::from_chars(text.data() + digit, text.data() + text.size(), number);
  }
  return number;
}

}  // namespace

bool has_cuda_headers(const std::vector<std::string>& folders) {
  return std::any_of(folders.begin(), folders.end(), [](const std::string& folder) {
    return is_file(join_path(folder, "cuda_fp16.h")) || is_file(join_path(folder, "cuda_fp16.hpp"));
  });
}

std::vector<std::string> find_headers(const NvrtcSearch& search) {
  std::vector<std::string> folders = search.include_path;
  for (std::string& folder : headers_of({}, search)) {
    folders.push_back(std::move(folder));
  }
  return folders;
}

std::vector<std::string> NvrtcSearch::built_in_roots() {
  std::vector<std::string> roots;
  const auto library = path_of_this_library();
  if (!library || library->rfind(CUKILN_BUILD_FOLDER, 0) != 0) {
    return roots;
  }
  std::string_view rest = CUKILN_DEFAULT_CUDA_ROOTS;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find(':'), rest.size());
    if (end != 0) {
      roots.emplace_back(rest.substr(0, end));
    }
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return roots;
}

std::string newest_of(const std::vector<std::string>& names, const std::string& folder,
                      std::string_view stem, std::string_view major) {
  std::string best;
  std::vector<int> best_version;
  for (const std::string& name : names) {
    const std::string version = library_version(name, stem);
    if (name != stem && version.empty()) {
      continue;
    }
    const bool fits = major.empty() || version.substr(0, version.find('.')) == major;
    const std::string path = join_path(folder, name);
    if (!fits || (!best.empty() && numbers_of(version) <= best_version) || !is_file(path)) {
      continue;
    }
    best = path;
    best_version = numbers_of(version);
  }
  return best;
}

std::string library_version(std::string_view file_name, std::string_view stem) {
  if (file_name.substr(0, stem.size()) != stem) {
    return {};
  }
  file_name.remove_prefix(stem.size());
  if (file_name.size() < 2 || file_name.front() != '.' ||
      file_name.find_first_not_of("0123456789.") != std::string_view::npos) {
    return {};
  }
  return std::string(file_name.substr(1));
}

std::pair<int, int> oldest_nvrtc_for(Target target) noexcept {
  const int capability = target.capability;
  if (capability == 107) return {13, 4};
  if (capability == 88 || (capability >= 110 && capability < 120)) return {13, 0};
  if (target.suffix == 'f' || capability == 103 || capability > 120) return {12, 9};
  if (capability >= 100) return {12, 8};
  if (target.suffix == 'a') return {12, 0};
  return {0, 0};
}

bool is_older(std::string_view version, std::pair<int, int> than) {
  std::vector<int> numbers = numbers_of(version);
  numbers.resize(2);
  return std::pair(numbers[0], numbers[1]) < than;
}

std::vector<Target> targets_of_nvrtc(const std::vector<std::uint32_t>& capabilities,
                                     std::string_view version) {
  constexpr std::pair<char, int> kSuffixes[] = {{'\0', 0}, {'a', 90}, {'f', 100}};
  std::vector<Target> targets;
  for (const std::uint32_t capability : capabilities) {
    for (const auto& [suffix, first] : kSuffixes) {
      const Target target{static_cast<int>(capability), suffix};
      const bool knows = suffix == '\0' || !is_older(version, oldest_nvrtc_for(target));
      if (target.capability >= first && knows) {
        targets.push_back(target);
      }
    }
  }
  return targets;
}

std::string header_version(const std::vector<std::string>& folders) {
  for (const std::string& folder : folders) {
    int number = 0;
    if (const auto driver = read_file(join_path(folder, "cuda.h"))) {
      number = number_after(driver->bytes, "#define CUDA_VERSION ");
    }
    if (number == 0) {
      if (const auto runtime = read_file(join_path(folder, "cuda_runtime_api.h"))) {
        number = number_after(runtime->bytes, "#define CUDART_VERSION ");
      }
    }
    if (number != 0) {
      return fmt::format("{}.{}", number / 1000, number % 1000 / 10);
    }
  }
  return {};
}

Result<NvrtcInstall> find_nvrtc(const NvrtcSearch& search) {
  NvrtcInstall install;
  std::vector<std::string> names;  // in the library's folder
  if (!search.nvrtc_library.empty()) {
    install.searched.push_back(search.nvrtc_library);
    if (!is_file(search.nvrtc_library)) {
      return make_error(ErrorCode::not_found,
                        "NVRTC was not found: nvrtc_library is {}, which is not a file; set it to "
                        "the path of libnvrtc.so",
                        search.nvrtc_library);
    }
    install.library = search.nvrtc_library;
    names = names_in(folder_of(install.library), kBuiltinsStem);
    install.too_old = why_too_old(install.library, names, search.target);
  } else {
    std::set<std::pair<dev_t, ino_t>> seen;  // /lib may be a link to /usr/lib, and both be searched
    // The first library that is too old. Used if no other is found, so that NVRTC's error shows.
    std::string too_old;
    visit_search_folders(search, [&](const std::string& folder) {
      install.searched.push_back(folder);
      struct stat status {};
      if (::stat(folder.c_str(), &status) != 0 ||
          !seen.emplace(status.st_dev, status.st_ino).second) {
        return false;
      }
      names = names_in(folder, kPrefix);
      std::string here = newest_of(names, folder, kLibraryStem, {});
      if (here.empty()) {
        return false;
      }
      if (std::string why = why_too_old(here, names, search.target); !why.empty()) {
        install.passed_over.push_back(std::move(why));
        too_old = too_old.empty() ? std::move(here) : too_old;
        return false;
      }
      install.library = std::move(here);
      return true;
    });
    if (install.library.empty() && !too_old.empty()) {
      install.library = std::move(too_old);
      install.too_old = std::move(install.passed_over.front());
      install.passed_over.clear();
      names = names_in(folder_of(install.library), kBuiltinsStem);
    }
  }
  if (install.library.empty()) {
    std::string message =
        "NVRTC (libnvrtc.so) was not found. Install CUDA's toolkit; or, in a virtual environment, "
        "the Python packages nvidia-cuda-nvrtc and nvidia-cuda-runtime, and set nvrtc_library to "
        "its path. Searched:";
    if (search.system) {
      message += "\n  libraries that are loaded, or that ld.so would load (/etc/ld.so.cache)";
    }
    for (const std::string& folder : install.searched) {
      message += "\n  " + folder;
    }
    return Error(ErrorCode::not_found, std::move(message));
  }
  install.builtins =
      newest_of(names, folder_of(install.library), kBuiltinsStem, major_of(install.library));
  install.headers = search.include_path;
  for (std::string& folder : headers_of(install.library, search)) {
    install.headers.push_back(std::move(folder));
  }
  return install;
}

}  // namespace cukiln
