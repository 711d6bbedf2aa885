// SPDX-License-Identifier: Apache-2.0
#include <cukiln/manifest.hpp>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <set>

#include <nlohmann/json.hpp>

#include "core/base/file.hpp"
#include "core/base/result.hpp"
#include "core/loader/module_json.hpp"

namespace cukiln {

namespace {

using Json = nlohmann::json;
constexpr int kFormat = 1;

/// Formats a value for an error: a list or an object by its kind only, because formatting a deeply
/// nested one would overflow the stack.
std::string shown(const Json& value) {
  if (value.is_structured()) {
    return value.is_array() ? "a list" : "an object";
  }
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  return text.size() > 80 ? text.substr(0, 77) + "..." : text;
}

Error wrong(const std::string& where, std::string_view expected, const Json& value) {
  return make_error(ErrorCode::invalid_argument, "manifest, {}: expected {}, found {}", where,
                    expected, shown(value));
}

Result<std::vector<std::string>> strings_of(const Json& value, const std::string& where) {
  if (!value.is_array()) {
    return wrong(where, "a list of strings", value);
  }
  std::vector<std::string> out;
  for (const Json& item : value) {
    if (!item.is_string() || item.get_ref<const std::string&>().empty()) {
      return wrong(fmt::format("{}[{}]", where, out.size()), "a non-empty string", item);
    }
    out.push_back(item.get<std::string>());
  }
  return out;
}

Result<void> read_define(const Json& value, const std::string& where, ModuleSpec& module) {
  if (!value.is_object()) {
    return wrong(where, "an object of macros", value);
  }
  for (const auto& [macro, definition] : value.items()) {
    if (definition.is_string()) {
      module.define[macro] = definition.get<std::string>();
    } else if (definition.is_boolean()) {
      module.define[macro] = definition.get<bool>() ? "1" : "0";
    } else if (definition.is_number()) {
      module.define[macro] = definition.dump();
    } else {
      return wrong(where + "." + macro, "a string, number or boolean", definition);
    }
  }
  return {};
}

Result<void> read_named_headers(const Json& value, const std::string& where, ModuleSpec& module) {
  if (!value.is_object()) {
    return wrong(where, "an object of names and texts", value);
  }
  for (const auto& [name, text] : value.items()) {
    if (name.empty() || !text.is_string()) {
      return wrong(where + "." + name, name.empty() ? "a name" : "a text", text);
    }
    module.named_headers.emplace_back(SourceText{name, text.get<std::string>()});
  }
  return {};
}

Result<LinkMode> read_link(const Json& value, const std::string& where) {
  for (const LinkMode mode : {LinkMode::none, LinkMode::rdc, LinkMode::lto}) {
    if (value.is_string() && value.get_ref<const std::string&>() == name_of(mode)) {
      return mode;
    }
  }
  return wrong(where, "\"none\", \"rdc\" or \"lto\"", value);
}

using ResolveFolder = std::function<std::string(const std::string& path)>;

Result<ModuleSpec> read_module(const Json& object, const std::string& where,
                               const std::string& own_folder, const Manifest::SourceOf& source_of,
                               const ResolveFolder& resolve_folder) {
  if (!object.is_object()) {
    return wrong(where, "an object", object);
  }
  ModuleSpec module;
  module.working_folder = own_folder;
  for (const auto& [key, value] : object.items()) {
    const std::string at = where + "." + key;
    if (key == "name") {
      if (!value.is_string() || value.get_ref<const std::string&>().empty()) {
        return wrong(at, "a non-empty string", value);
      }
      module.name = value.get<std::string>();
    } else if (key == "sources") {
      CUKILN_TRY(const auto paths, strings_of(value, at));
      for (const std::string& path : paths) {
        CUKILN_TRY(Source source, source_of(path));
        module.sources.push_back(std::move(source));
      }
    } else if (key == "include") {
      CUKILN_TRY(const auto folders, strings_of(value, at));
      std::transform(folders.begin(), folders.end(), std::back_inserter(module.include),
                     resolve_folder);
    } else if (key == "define") {
      CUKILN_CHECK(read_define(value, at, module));
    } else if (key == "named_headers") {
      CUKILN_CHECK(read_named_headers(value, at, module));
    } else if (key == "flags") {
      CUKILN_TRY(module.flags, strings_of(value, at));
    } else if (key == "working_folder") {
      if (!value.is_string() || value.get_ref<const std::string&>().empty()) {
        return wrong(at, "a folder", value);
      }
      module.working_folder = resolve_folder(value.get<std::string>());
    } else if (key == "link") {
      CUKILN_TRY(module.link, read_link(value, at));
    } else if (key == "objects") {
      CUKILN_TRY(const auto paths, strings_of(value, at));
      std::transform(paths.begin(), paths.end(), std::back_inserter(module.objects),
                     resolve_folder);
    } else if (key == "std_shims") {
      if (!value.is_boolean()) {
        return wrong(at, "true or false", value);
      }
      module.std_shims = value.get<bool>();
    } else if (key == "names") {
      CUKILN_TRY(module.names, strings_of(value, at));
    } else if (key == "targets") {
      CUKILN_TRY(const auto targets, strings_of(value, at));
      for (const std::string& text : targets) {
        auto target = Target::parse(text);
        if (!target) {
          return std::move(target).error().with_context("manifest, " + at);
        }
        module.targets.push_back(*target);
      }
    } else {
      return make_error(ErrorCode::invalid_argument,
                        "manifest, {}: unknown field; expected name, sources, include, define, "
                        "named_headers, flags, working_folder, std_shims, link, objects, names or "
                        "targets",
                        at);
    }
  }
  if (module.name.empty() || module.sources.empty()) {
    return wrong(where, "at least \"name\" and one of \"sources\"", object);
  }
  return module;
}

constexpr std::string_view kShape = "{\"format\":1,\"modules\":[…]}";

/// Returns `line 3, column 5: unexpected ']'`. Parses again, because only the parser's exception
/// has the place. What the parser was doing and what it expected there is left out: the caller says
/// what is expected.
std::string why_not_json(std::string_view text) {
  constexpr std::string_view kPlace = "parse error at ";
  constexpr std::string_view kDoing = "syntax error while parsing ";
  constexpr std::string_view kDash = " - ";
  constexpr std::string_view kExpected = "; expected ";
  try {
    [[maybe_unused]] const Json parsed = Json::parse(text);
  } catch (const Json::exception& caught) {
    std::string what = caught.what();
    if (const std::size_t at = what.find(kPlace); at != std::string::npos) {
      what.erase(0, at + kPlace.size());
    }
    const std::size_t doing = what.find(kDoing);
    const std::size_t dash = what.find(kDash, doing);
    if (doing != std::string::npos && dash != std::string::npos) {
      what.erase(doing, dash + kDash.size() - doing);
    }
    return what.substr(0, what.rfind(kExpected));
  }
  return {};
}

Result<Manifest> read_manifest(std::string_view text, const Manifest::SourceOf& source_of,
                               const ResolveFolder& resolve_folder) {
  const Json root =
      Json::parse(text, nullptr, /*allow_exceptions=*/false, /*ignore_comments=*/false);
  if (root.is_discarded()) {
    return make_error(ErrorCode::invalid_argument,
                      "the manifest is not JSON: {}; expected {}, without comments, and without a "
                      "comma after the last element",
                      why_not_json(text), kShape);
  }
  for (const char* field : {"format", "modules"}) {
    if (!root.is_object() || !root.contains(field)) {
      return make_error(
          ErrorCode::invalid_argument, "the manifest is {}; expected {}",
          root.is_object() ? fmt::format("an object without \"{}\"", field) : shown(root), kShape);
    }
  }
  if (root["format"] != kFormat) {
    return make_error(ErrorCode::invalid_argument,
                      "manifest, format: expected {}, found {}; a newer cukiln may have written it",
                      kFormat, shown(root["format"]));
  }
  if (!root["modules"].is_array()) {
    return wrong("modules", "a list of modules", root["modules"]);
  }
  Manifest manifest;
  const std::string own_folder = resolve_folder(".");
  std::set<std::string> names;
  std::size_t index = 0;
  for (const Json& object : root["modules"]) {
    const std::string where = fmt::format("modules[{}]", index++);
    CUKILN_TRY(ModuleSpec module,
               read_module(object, where, own_folder, source_of, resolve_folder));
    if (!names.insert(module.name).second) {
      return make_error(ErrorCode::invalid_argument,
                        "manifest, {}.name: \"{}\" is taken by an earlier module; names are unique",
                        where, module.name);
    }
    manifest.add(std::move(module));
  }
  return manifest;
}

std::string below(const std::string& folder, const std::string& path) {
  return (std::filesystem::path(folder) / path).lexically_normal().string();
}

}  // namespace

Result<Manifest> Manifest::parse(std::string_view json, const std::string& folder) {
  return guarded([&]() -> Result<Manifest> {
    return read_manifest(
        json,
        [&](const std::string& path) -> Result<Source> {
          return Source(SourceFile{below(folder, path)});
        },
        [&](const std::string& path) { return below(folder, path); });
  });
}

Result<Manifest> Manifest::parse(std::string_view json, const SourceOf& source_of) {
  return guarded(
      [&] { return read_manifest(json, source_of, [](const std::string& path) { return path; }); });
}

Result<Manifest> Manifest::load(const std::string& path) {
  return guarded([&]() -> Result<Manifest> {
    CUKILN_TRY(const FileContent content, read_file(path));
    auto manifest = parse(content.bytes, std::filesystem::path(path).parent_path().string());
    if (!manifest) {
      return std::move(manifest).error().with_context(path);
    }
    return manifest;
  });
}

Manifest Manifest::for_targets(const std::vector<Target>& targets) const& {
  return Manifest(*this).for_targets(targets);
}

Manifest Manifest::for_targets(const std::vector<Target>& targets) && {
  for (ModuleSpec& module : modules_) {
    module.targets = targets;
  }
  return std::move(*this);
}

}  // namespace cukiln
