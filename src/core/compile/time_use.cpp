// SPDX-License-Identifier: Apache-2.0
#include "core/compile/time_use.hpp"

#include <deque>
#include <unordered_set>
#include <vector>

#include "core/base/file.hpp"
#include "core/compile/include_scanner.hpp"
#include "core/key/time_macro.hpp"

namespace cukiln {

namespace {

constexpr std::string_view kPreInclude = "--pre-include=";

/// Searches the sources and the files that they include, each once.
class Search {
 public:
  Search(const CompileRequest& request, FileServer& files)
      : files_(files), folders_(include_folders_of(request.options)) {
    for (const VirtualSource& source : request.sources) {
      known_.insert(source.path);
      unsearched_.emplace_back(source.path, source.text);
    }
    for (const VirtualSource& header : request.headers) {
      known_.insert(header.path);
      unsearched_.emplace_back(header.path, header.text);
    }
    for (const std::string& argument : request.options.arguments) {
      if (argument.starts_with(kPreInclude)) {
        add({std::string_view(argument).substr(kPreInclude.size()), true}, kWorkRoot);
      }
    }
  }

  std::optional<TimeUse> run() {
    for (; !unsearched_.empty(); unsearched_.pop_front()) {
      const std::string& path = unsearched_.front().path;
      const ByteView text = unsearched_.front().text;
      if (const std::string_view macro = find_time_macro(text); !macro.empty()) {
        return TimeUse{std::string(macro), files_.real_path(path)};
      }
      for (const IncludeName& include : includes_in(text)) {
        add(include, folder_of(path));
      }
    }
    return std::nullopt;
  }

 private:
  void add(const IncludeName& include, const std::string& beside) {
    if (include.name.empty() || include.name.front() == '/') {
      return;
    }
    bool found = include.quoted && add_file(join_path(beside, include.name));
    for (std::size_t i = 0; i < folders_.size() && !found; ++i) {
      found = add_file(join_path(folders_[i], include.name));
    }
  }

  /// True if the file exists.
  bool add_file(const std::string& path) {
    if (known_.contains(path)) {
      return true;
    }
    if (is_within(path, kToolkitRoot)) {
      return false;
    }
    const FileAnswer& found = files_.serve(path);
    if (found.kind != FileAnswer::Kind::file) {
      return false;
    }
    known_.insert(path);
    unsearched_.emplace_back(path, found.bytes);
    return true;
  }

  FileServer& files_;
  std::vector<std::string> folders_;
  std::unordered_set<std::string> known_;
  std::deque<VirtualSource> unsearched_;
};

}  // namespace

std::optional<TimeUse> find_time_use(const CompileRequest& request, FileServer& files) {
  for (const auto* texts : {&request.options.arguments, &request.options.name_expressions}) {
    for (const std::string& text : *texts) {
      if (const std::string_view macro = find_time_macro(text); !macro.empty()) {
        return TimeUse{std::string(macro), text};
      }
    }
  }
  return Search(request, files).run();
}

}  // namespace cukiln
