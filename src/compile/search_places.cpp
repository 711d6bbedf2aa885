#include "compile/search_places.hpp"

#include <dirent.h>
#include <glob.h>
#include <link.h>

#include <algorithm>
#include <functional>
#include <sstream>

#include "base/file.hpp"

namespace cukiln {

namespace {

#if defined(__aarch64__)
constexpr const char* kMultiarch = "aarch64-linux-gnu";
constexpr const char* kToolkitTarget = "targets/sbsa-linux";
#else
constexpr const char* kMultiarch = "x86_64-linux-gnu";
constexpr const char* kToolkitTarget = "targets/x86_64-linux";
#endif

constexpr int kMaxConfigDepth = 8;

bool starts_with(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix;
}

std::string parent_of(const std::string& path) {
  const std::size_t slash = path.find_last_of('/');
  return slash == std::string::npos || slash == 0 ? "/" : path.substr(0, slash);
}

std::string last_of(const std::string& path) { return path.substr(path.find_last_of('/') + 1); }

/// The folders of one Python environment: <prefix>/lib/python3.N/site-packages.
std::vector<std::string> site_packages_of(const std::string& prefix) {
  std::vector<std::string> folders;
  const std::string lib = join_path(prefix, "lib");
  for (const std::string& name : names_in(lib)) {
    if (starts_with(name, "python3")) {
      folders.push_back(join_path(lib, name + "/site-packages"));
      folders.push_back(join_path(lib, name + "/dist-packages"));
    }
  }
  return folders;
}

class Places {
 public:
  void libraries_in(const std::string& folder) {
    const auto same = [&](const SearchPlace& place) { return place.libraries == folder; };
    if (std::none_of(places_.begin(), places_.end(), same)) {
      places_.push_back({folder, headers_beside(folder)});
    }
  }

  /// A folder with NVIDIA's wheels: one folder per major version (13 and up), or one per wheel
  /// (12).
  void wheels_in(const std::string& root) {
    const std::string nvidia = join_path(root, "nvidia");
    bool any = false;
    for (const std::string& name : names_in(nvidia)) {
      if (name.size() > 2 && starts_with(name, "cu") &&
          name.find_first_not_of("0123456789", 2) == std::string::npos) {
        libraries_in(join_path(nvidia, name + "/lib"));
        any = true;
      }
    }
    if (!any) {
      libraries_in(join_path(nvidia, "cu13/lib"));  // named, so that people see what is expected
    }
    libraries_in(join_path(nvidia, "cuda_nvrtc/lib"));
  }

  void toolkit_in(const std::string& root) {
    libraries_in(join_path(root, "lib64"));
    libraries_in(join_path(root, "lib"));
    libraries_in(join_path(root, std::string(kToolkitTarget) + "/lib"));
  }

  std::vector<SearchPlace> take() { return std::move(places_); }

 private:
  std::vector<SearchPlace> places_;
};

/// Folders of libraries named libnvrtc that this process has loaded already: a host that uses NVRTC
/// itself (PyTorch does) has one that works.
std::vector<std::string> loaded_folders() {
  std::vector<std::string> folders;
  const auto look = [](dl_phdr_info* info, std::size_t, void* out) {
    const std::string path = info->dlpi_name != nullptr ? info->dlpi_name : "";
    if (path.find('/') != std::string::npos && starts_with(last_of(path), "libnvrtc.so")) {
      static_cast<std::vector<std::string>*>(out)->push_back(parent_of(path));
    }
    return 0;
  };
  ::dl_iterate_phdr(look, &folders);
  return folders;
}

/// The folders that ld.so's configuration names. Its cache holds the same, in a format of its own.
void add_configured_folders(const std::string& pattern, int depth, std::vector<std::string>& out) {
  glob_t found{};
  if (depth > kMaxConfigDepth || ::glob(pattern.c_str(), 0, nullptr, &found) != 0) {
    return;
  }
  for (std::size_t i = 0; i < found.gl_pathc; ++i) {
    const auto content = read_file(found.gl_pathv[i]);
    if (!content) {
      continue;
    }
    std::istringstream lines{std::string(content->bytes.view())};
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line.substr(0, line.find('#')));
      std::string first;
      words >> first;
      if (first == "include") {
        for (std::string next; words >> next;) {
          add_configured_folders(next.front() == '/' ? next : "/etc/" + next, depth + 1, out);
        }
      } else if (starts_with(first, "/")) {
        out.push_back(first);
      }
    }
  }
  ::globfree(&found);
}

}  // namespace

std::vector<std::string> names_in(const std::string& folder, std::string_view prefix) {
  std::vector<std::string> names;
  if (DIR* listing = ::opendir(folder.c_str())) {
    while (const dirent* entry = ::readdir(listing)) {
      // Filtered here: a system folder has thousands of names, and this is part of every start.
      if (const std::string_view name = entry->d_name; name.substr(0, prefix.size()) == prefix) {
        names.emplace_back(name);
      }
    }
    ::closedir(listing);
  }
  std::sort(names.begin(), names.end(), std::greater<>());
  return names;
}

std::vector<std::string> headers_beside(const std::string& folder) {
  const std::string root = parent_of(folder);
  if (last_of(root) == "cuda_nvrtc") {  // wheels of CUDA 12: one folder each
    const std::string nvidia = parent_of(root);
    return {join_path(nvidia, "cuda_runtime/include"), join_path(nvidia, "cuda_cccl/include"),
            join_path(nvidia, "cuda_runtime/include/cccl")};
  }
  std::vector<std::string> headers{join_path(root, "include"), join_path(root, "include/cccl")};
  if (last_of(folder) == kMultiarch) {  // /usr/lib/<multiarch> and /usr/include
    headers = {join_path(parent_of(root), "include")};
  } else {
    const std::string target = join_path(root, std::string(kToolkitTarget) + "/include");
    headers.push_back(target);  // conda
    headers.push_back(join_path(target, "cccl"));
  }
  return headers;
}

std::vector<SearchPlace> search_places(const NvrtcSearch& search) {
  Places places;
  std::vector<std::string> site_packages = search.site_packages;
  for (const std::string* prefix : {&search.virtual_env, &search.conda_prefix}) {
    if (!prefix->empty()) {
      const auto more = site_packages_of(*prefix);
      site_packages.insert(site_packages.end(), more.begin(), more.end());
    }
  }
  if (!search.home.empty()) {
    const auto more = site_packages_of(join_path(search.home, ".local"));
    site_packages.insert(site_packages.end(), more.begin(), more.end());
  }
  for (const std::string& folder : site_packages) {
    places.wheels_in(folder);
  }
  if (!search.conda_prefix.empty()) {
    places.toolkit_in(search.conda_prefix);
  }
  if (search.system) {
    for (const std::string& folder : loaded_folders()) {
      places.libraries_in(folder);
    }
  }
  for (const std::string& folder : search.library_path) {
    places.libraries_in(folder);
  }
  if (search.system) {
    std::vector<std::string> configured;
    add_configured_folders("/etc/ld.so.conf", 0, configured);
    for (const std::string& folder : configured) {
      places.libraries_in(folder);
    }
  }
  if (!search.cuda_home.empty()) {
    places.toolkit_in(search.cuda_home);
  }
  if (search.system) {
    places.toolkit_in("/usr/local/cuda");
    for (const std::string& name : names_in("/usr/local")) {
      if (starts_with(name, "cuda-")) {
        places.toolkit_in("/usr/local/" + name);
      }
    }
    places.toolkit_in("/opt/cuda");
    places.libraries_in(std::string("/usr/lib/") + kMultiarch);
    places.libraries_in("/usr/lib64");
    for (const std::string& folder : site_packages_of("/usr/local")) {
      places.wheels_in(folder);
    }
  }
  for (const std::string& root : search.default_roots) {
    places.wheels_in(root);
    places.toolkit_in(root);
  }
  return places.take();
}

}  // namespace cukiln
