// SPDX-License-Identifier: Apache-2.0
#include "core/compile/search_folders.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <link.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <functional>
#include <memory>
#include <new>

#include "core/base/file.hpp"
#include "core/base/fork_gate.hpp"

namespace cukiln {

namespace {

#if defined(__aarch64__)
constexpr const char* kMultiarch = "aarch64-linux-gnu";
constexpr const char* kToolkitTarget = "targets/sbsa-linux";
#else
constexpr const char* kMultiarch = "x86_64-linux-gnu";
constexpr const char* kToolkitTarget = "targets/x86_64-linux";
#endif

constexpr const char* kLoaderCache = "/etc/ld.so.cache";

std::string last_of(const std::string& path) { return path.substr(path.find_last_of('/') + 1); }

/// Visits each folder once, until the visitor returns true.
class FolderVisitor {
 public:
  explicit FolderVisitor(const std::function<bool(const std::string&)>& visit) : visit_(visit) {}

  bool done() const noexcept { return done_; }

  void libraries_in(const std::string& folder) {
    if (!done_ && std::find(visited_.begin(), visited_.end(), folder) == visited_.end()) {
      visited_.push_back(folder);
      done_ = visit_(folder);
    }
  }

  /// Visits a folder with NVIDIA's wheels, which have one folder for each major version (from 13
  /// on) or for each wheel (12).
  void wheels_in(const std::string& root) {
    if (done_) {
      return;
    }
    const std::string nvidia = join_path(root, "nvidia");
    bool any = false;
    for (const std::string& name : names_in(nvidia, "cu")) {
      if (name.size() > 2 && name.find_first_not_of("0123456789", 2) == std::string::npos) {
        libraries_in(join_path(nvidia, name + "/lib"));
        any = true;
      }
    }
    if (!any) {
      libraries_in(join_path(nvidia, "cu13/lib"));  // so that errors name the expected folder
    }
    libraries_in(join_path(nvidia, "cuda_nvrtc/lib"));
  }

  /// Visits the wheels of one Python environment: <prefix>/lib/python3.N/site-packages.
  void environment_in(const std::string& prefix) {
    if (done_ || prefix.empty()) {
      return;
    }
    const std::string lib = join_path(prefix, "lib");
    for (const std::string& name : names_in(lib, "python3")) {
      wheels_in(join_path(lib, name + "/site-packages"));
      wheels_in(join_path(lib, name + "/dist-packages"));
    }
  }

  void toolkit_in(const std::string& root) {
    libraries_in(join_path(root, "lib64"));
    libraries_in(join_path(root, "lib"));
    libraries_in(join_path(root, std::string(kToolkitTarget) + "/lib"));
  }

 private:
  const std::function<bool(const std::string&)>& visit_;
  std::vector<std::string> visited_;
  bool done_ = false;
};

/// Folders that the libraries of this process name.
struct LoadedFolders {
  /// Of libnvrtc: a host that uses NVRTC itself, as PyTorch does, has one that works.
  std::vector<std::string> nvrtc;
  /// Of Python's packages, in which the modules of a running Python are.
  std::vector<std::string> packages;

  void add(std::string_view path) {
    if (path.substr(path.rfind('/') + 1).starts_with("libnvrtc.so") && path.front() == '/') {
      nvrtc.push_back(folder_of(std::string(path)));
    }
    for (const std::string_view name : {"/site-packages/", "/dist-packages/"}) {
      if (const std::size_t at = path.find(name); at != std::string_view::npos) {
        const std::string_view folder = path.substr(0, at + name.size() - 1);
        if (std::find(packages.begin(), packages.end(), folder) == packages.end()) {
          packages.emplace_back(folder);
        }
      }
    }
  }
};

LoadedFolders loaded_folders() {
  struct Found {
    LoadedFolders folders;
    bool no_memory = false;
  } found;
  // An exception must not pass through libc: unwinding its frames may allocate.
  const auto on_library = [](dl_phdr_info* info, std::size_t, void* out) noexcept {
    auto& to = *static_cast<Found*>(out);
    try {
      if (info->dlpi_name != nullptr) {
        to.folders.add(info->dlpi_name);
      }
    } catch (const std::bad_alloc&) {
      to.no_memory = true;
    }
    return to.no_memory ? 1 : 0;
  };
  const ForkGate::Pass pass;  // the dynamic linker has a lock of its own
  ::dl_iterate_phdr(on_library, &found);
  if (found.no_memory) {
    throw std::bad_alloc();
  }
  return std::move(found.folders);
}

/// Returns the prefixes of the Python that this process may be: /venv for /venv/bin/python, by the
/// name that it was started with, since a virtual environment has but a link to the program.
std::vector<std::string> prefixes_of_program() {
  std::vector<std::string> prefixes;
  std::array<char, PATH_MAX> program{};
  if (::readlink("/proc/self/exe", program.data(), program.size() - 1) < 0) {
    program[0] = '\0';
  }
  const auto* const executed = reinterpret_cast<const char*>(::getauxval(AT_EXECFN));
  for (const char* const path : {static_cast<const char*>(::program_invocation_name), executed,
                                 static_cast<const char*>(program.data())}) {
    const std::string_view name = path != nullptr ? path : "";
    if (name.find('/') == std::string_view::npos) {
      continue;
    }
    std::array<char, PATH_MAX> folder;  // NOLINT: written before it is read
    if (::realpath(folder_of(std::string(name)).c_str(), folder.data()) == nullptr) {
      continue;
    }
    std::string prefix = folder_of(folder.data());
    if (last_of(std::string(name)).starts_with("python") ||
        ::access(join_path(prefix, "pyvenv.cfg").c_str(), F_OK) == 0) {
      prefixes.push_back(std::move(prefix));
    }
  }
  return prefixes;
}

/// Returns the folders of libnvrtc libraries that ld.so would load, from its cache, whose paths are
/// zero-terminated strings one after the other. Listing the folders of its configuration would take
/// a hundred times as long. The cache is read in chunks, because page faults of a buffer for all of
/// it would cost more than the read.
std::vector<std::string> cached_folders() {
  static constexpr std::string_view kName = "/libnvrtc.so";
  std::vector<std::string> folders;
  const UniqueFd cache(::open(kLoaderCache, O_RDONLY | O_CLOEXEC));
  std::array<char, 2 * PATH_MAX> chunk;  // NOLINT: read into before it is read from
  std::size_t kept = 0;                  // bytes of a string that ends in the next chunk
  for (;;) {
    const ssize_t got = ::read(cache.get(), chunk.data() + kept, chunk.size() - kept);
    if (got <= 0) {
      return folders;
    }
    const std::string_view text(chunk.data(), kept + static_cast<std::size_t>(got));
    const std::size_t end = text.rfind('\0') + 1;  // npos + 1: 0
    for (std::size_t at = text.find(kName); at < end; at = text.find(kName, at + 1)) {
      const std::size_t start = text.rfind('\0', at) + 1;
      if (text[start] == '/') {
        folders.emplace_back(text.substr(start, at - start));
      }
    }
    kept = text.size() - end;
    kept = kept < chunk.size() ? kept : 0;  // no path is that long
    std::copy(text.end() - static_cast<std::ptrdiff_t>(kept), text.end(), chunk.begin());
  }
}

}  // namespace

std::vector<std::string> names_in(const std::string& folder, std::string_view prefix) {
  std::vector<std::string> names;
  const std::unique_ptr<DIR, int (*)(DIR*)> listing(::opendir(folder.c_str()), &::closedir);
  if (listing != nullptr) {
    while (const dirent* entry = ::readdir(listing.get())) {
      // Filters before it copies: a system folder has thousands of names, and every start lists it.
      if (const std::string_view name = entry->d_name; name.substr(0, prefix.size()) == prefix) {
        names.emplace_back(name);
      }
    }
  }
  std::sort(names.begin(), names.end(), std::greater<>());
  return names;
}

std::vector<std::string> headers_beside(const std::string& folder) {
  const std::string root = folder_of(folder);
  if (last_of(root) == "cuda_nvrtc") {  // wheels of CUDA 12: one folder each
    const std::string nvidia = folder_of(root);
    return {join_path(nvidia, "cuda_runtime/include"), join_path(nvidia, "cuda_cccl/include"),
            join_path(nvidia, "cuda_runtime/include/cccl")};
  }
  std::vector<std::string> headers{join_path(root, "include"), join_path(root, "include/cccl")};
  if (last_of(folder) == kMultiarch) {  // /usr/lib/<multiarch> and /usr/include
    headers = {join_path(folder_of(root), "include")};
  } else {
    const std::string target = join_path(root, std::string(kToolkitTarget) + "/include");
    headers.push_back(target);  // conda
    headers.push_back(join_path(target, "cccl"));
  }
  return headers;
}

void visit_search_folders(const NvrtcSearch& search,
                          const std::function<bool(const std::string&)>& visit) {
  FolderVisitor visitor(visit);
  const auto libraries_in_all = [&](const std::vector<std::string>& folders) {
    for (const std::string& folder : folders) {
      visitor.libraries_in(folder);
    }
  };
  for (const std::string& folder : search.site_packages) {
    visitor.wheels_in(folder);
  }
  LoadedFolders loaded;
  if (search.system && !visitor.done()) {
    loaded = loaded_folders();
    for (const std::string& folder : loaded.packages) {
      visitor.wheels_in(folder);
    }
    for (const std::string& prefix : prefixes_of_program()) {
      visitor.environment_in(prefix);
    }
  }
  visitor.environment_in(search.virtual_env);
  visitor.environment_in(search.conda_prefix);
  visitor.environment_in(search.home.empty() ? std::string() : join_path(search.home, ".local"));
  if (!search.conda_prefix.empty()) {
    visitor.toolkit_in(search.conda_prefix);
  }
  libraries_in_all(loaded.nvrtc);
  libraries_in_all(search.library_path);
  if (search.system && !visitor.done()) {
    libraries_in_all(cached_folders());
  }
  if (!search.cuda_home.empty()) {
    visitor.toolkit_in(search.cuda_home);
  }
  if (search.system && !visitor.done()) {
    visitor.toolkit_in("/usr/local/cuda");
    for (const std::string& name : names_in("/usr/local", "cuda-")) {
      visitor.toolkit_in("/usr/local/" + name);
    }
    visitor.toolkit_in("/opt/cuda");
    visitor.environment_in("/usr/local");
  }
  for (const std::string& root : search.default_roots) {
    visitor.wheels_in(root);
    visitor.toolkit_in(root);
  }
  if (search.system) {  // last: these folders are large, and ld.so's cache covers them already
    visitor.libraries_in(std::string("/usr/lib/") + kMultiarch);
    visitor.libraries_in("/usr/lib64");
  }
}

}  // namespace cukiln
