// SPDX-License-Identifier: Apache-2.0
#include "cli/recorded_manifest.hpp"

#include <algorithm>

#include "core/base/file.hpp"
#include "core/base/hasher.hpp"
#include "core/base/result.hpp"

namespace cukiln::cli {

namespace {

namespace fs = std::filesystem;

bool are_files(const Json& list) {
  return std::all_of(list.begin(), list.end(), [](const Json& file) {
    return file.is_object() && file.contains("path") && file["path"].is_string() &&
           (!file.contains("text") || file["text"].is_string());
  });
}

bool are_paths(const Json& list) {
  return list.is_array() &&
         std::all_of(list.begin(), list.end(), [](const Json& path) { return path.is_string(); });
}

bool has_everything(const Json& recorded) {
  if (!recorded.is_object()) {
    return false;
  }
  for (const char* field : {"sources", "headers", "include", "flags", "names"}) {
    if (!recorded.contains(field) || !recorded[field].is_array()) {
      return false;
    }
  }
  return are_files(recorded["sources"]) && are_files(recorded["headers"]) &&
         recorded.contains("define") && recorded["define"].is_object() &&
         recorded.contains("name") && recorded["name"].is_string() && recorded.contains("target") &&
         recorded["target"].is_string() &&
         (!recorded.contains("working_folder") || recorded["working_folder"].is_string()) &&
         (!recorded.contains("named_headers") || recorded["named_headers"].is_object()) &&
         (!recorded.contains("std_shims") || recorded["std_shims"].is_boolean()) &&
         (!recorded.contains("link") || recorded["link"].is_string()) &&
         (!recorded.contains("objects") || are_paths(recorded["objects"]));
}

std::string path_of(const Json& file) { return file["path"].get<std::string>(); }

}  // namespace

RecordedManifest::RecordedManifest(const std::string& path)
    : path_(fs::absolute(path).lexically_normal()),
      folder_(path_.parent_path()),
      texts_(folder_ / (path_.stem().string() + ".sources")) {}

Result<void> RecordedManifest::add(const std::string& line) {
  const Json recorded = Json::parse(line, nullptr, false);
  if (!has_everything(recorded)) {
    ++skipped_;  // truncated, or not a request
    return {};
  }
  Json key = recorded;
  key.erase("target");
  const std::string target = recorded["target"].get<std::string>();
  if (const auto earlier = known_.find(key.dump()); earlier != known_.end()) {
    Json& targets = modules_[earlier->second]["targets"];
    if (std::find(targets.begin(), targets.end(), target) == targets.end()) {
      targets.push_back(target);
    }
    return {};
  }
  CUKILN_TRY(Json sources, sources_of(recorded));
  if (sources.empty()) {
    ++skipped_;
    return {};
  }
  known_.emplace(key.dump(), modules_.size());
  Json module{{"name", unique_name(recorded["name"].get<std::string>())},
              {"sources", std::move(sources)}};
  for (const char* field : {"include", "define", "flags", "names"}) {
    if (!recorded[field].empty()) {
      module[field] = recorded[field];
    }
  }
  if (module.contains("include")) {
    for (Json& folder : module["include"]) {
      folder = relative(folder.get<std::string>());
    }
  }
  if (recorded.contains("working_folder")) {
    module["working_folder"] = relative(recorded["working_folder"].get<std::string>());
  }
  for (const char* field : {"named_headers", "std_shims", "link"}) {
    if (recorded.contains(field)) {
      module[field] = recorded[field];
    }
  }
  if (recorded.contains("objects")) {
    for (const Json& object : recorded["objects"]) {
      module["objects"].push_back(relative(object.get<std::string>()));
    }
  }
  module["targets"] = Json::array({target});
  modules_.push_back(std::move(module));
  return {};
}

Result<void> RecordedManifest::write() const {
  const Json manifest{{"format", 1}, {"modules", modules_}};
  return write_output(path_.string(),
                      manifest.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

std::string RecordedManifest::relative(const std::string& path) const {
  return fs::path(path).lexically_relative(folder_).string();
}

std::string RecordedManifest::unique_name(const std::string& name) {
  std::string unique = name;
  for (int n = 2; !names_.insert(unique).second; ++n) {
    unique = fmt::format("{}-{}", name, n);
  }
  return unique;
}

/// Returns an empty list if files are mixed with texts in memory: a manifest has files only.
Result<Json> RecordedManifest::sources_of(const Json& recorded) const {
  const Json& files = recorded["sources"];
  const auto is_text = [](const Json& file) { return file.contains("text"); };
  if (!files.empty() && std::all_of(files.begin(), files.end(), is_text)) {
    return write_texts(recorded);
  }
  Json sources = Json::array();
  if (std::none_of(files.begin(), files.end(), is_text) && recorded["headers"].empty()) {
    for (const Json& file : files) {
      sources.push_back(relative(path_of(file)));
    }
  }
  return sources;
}

/// Writes texts to files, each header where the source's includes find it.
Result<Json> RecordedManifest::write_texts(const Json& recorded) const {
  // As many folders as keep `../` inside.
  std::ptrdiff_t depth = 0;
  for (const Json& header : recorded["headers"]) {
    const fs::path path = path_of(header);
    depth = std::max(depth, std::count(path.begin(), path.end(), ".."));
  }
  Json texts = recorded;
  texts.erase("target");
  fs::path folder = texts_ / hash_of(texts.dump()).hex().substr(0, 16);
  for (; depth > 0; --depth) {
    folder /= "src";
  }
  const auto write = [&](const Json& file, const fs::path& name) -> Result<std::string> {
    std::string to = (folder / name).lexically_normal().string();
    std::error_code failed;
    fs::create_directories(fs::path(to).parent_path(), failed);
    CUKILN_CHECK(write_output(to, file["text"].get<std::string>()));
    return to;
  };
  for (const Json& header : recorded["headers"]) {
    if (header.contains("text") && fs::path(path_of(header)).is_relative()) {
      CUKILN_CHECK(write(header, path_of(header)));
    }
  }
  Json sources = Json::array();
  for (const Json& file : recorded["sources"]) {
    CUKILN_TRY(const std::string written, write(file, fs::path(path_of(file)).filename()));
    sources.push_back(relative(written));
  }
  return sources;
}

}  // namespace cukiln::cli
