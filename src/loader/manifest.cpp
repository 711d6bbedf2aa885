// SPDX-License-Identifier: Apache-2.0
#include <cukiln/manifest.hpp>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <set>

#include <nlohmann/json.hpp>

#include "base/file.hpp"
#include "base/result.hpp"
#include "embedded/kernels_src.hpp"
#include "embedded/manifests.hpp"
#include "loader/embedded_digest.hpp"

namespace cukiln {

namespace {

using Json = nlohmann::json;
constexpr int kFormat = 1;

/// A list or an object by its kind alone: one that is nested too deep would end the process.
std::string shown(const Json& value) {
  if (value.is_structured()) {
    return value.is_array() ? "a list" : "an object";
  }
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  return text.size() > 80 ? text.substr(0, 77) + "..." : text;
}

Error wrong(const std::string& where, std::string_view expected, const Json& given) {
  return make_error(ErrorCode::invalid_argument, "manifest, {}: expected {}, found {}", where,
                    expected, shown(given));
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

using ResolveSource = std::function<Result<Source>(const std::string& path)>;
using ResolveFolder = std::function<std::string(const std::string& path)>;

Result<ModuleSpec> read_module(const Json& object, const std::string& where,
                               const std::string& own_folder, const ResolveSource& resolve_source,
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
        CUKILN_TRY(Source source, resolve_source(path));
        module.sources.push_back(std::move(source));
      }
    } else if (key == "include") {
      CUKILN_TRY(const auto folders, strings_of(value, at));
      std::transform(folders.begin(), folders.end(), std::back_inserter(module.include),
                     resolve_folder);
    } else if (key == "define") {
      CUKILN_CHECK(read_define(value, at, module));
    } else if (key == "flags") {
      CUKILN_TRY(module.flags, strings_of(value, at));
    } else if (key == "working_folder") {
      if (!value.is_string() || value.get_ref<const std::string&>().empty()) {
        return wrong(at, "a folder", value);
      }
      module.working_folder = resolve_folder(value.get<std::string>());
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
      return make_error(
          ErrorCode::invalid_argument,
          "manifest, {}: unknown field; expected name, sources, include, define, flags, "
          "working_folder, names or targets",
          at);
    }
  }
  if (module.name.empty() || module.sources.empty()) {
    return wrong(where, "at least \"name\" and one of \"sources\"", object);
  }
  return module;
}

/// `line 3, column 5: unexpected ']'; …`: parsed again, as only what the parser throws has the
/// place.
std::string why_not_json(std::string_view text) {
  constexpr std::string_view kMark = "parse error at ";
  try {
    [[maybe_unused]] const Json parsed = Json::parse(text);  // GCC warns of a cast to void too
  } catch (const Json::exception& caught) {
    const std::string_view what = caught.what();
    const std::size_t at = what.find(kMark);
    return std::string(at == std::string_view::npos ? what : what.substr(at + kMark.size()));
  }
  return {};
}

Result<Manifest> read_manifest(std::string_view text, const ResolveSource& resolve_source,
                               const ResolveFolder& resolve_folder) {
  const Json root =
      Json::parse(text, nullptr, /*allow_exceptions=*/false, /*ignore_comments=*/false);
  if (root.is_discarded()) {
    return make_error(ErrorCode::invalid_argument,
                      "the manifest is not JSON: {}; expected {{\"format\":1,\"modules\":[…]}}, "
                      "without comments, and without a comma after the last element",
                      why_not_json(text));
  }
  if (!root.is_object() || !root.contains("format") || root["format"] != kFormat) {
    return make_error(
        ErrorCode::invalid_argument,
        "manifest, format: expected {}, found {}; a newer cukiln may have written it", kFormat,
        root.is_object() && root.contains("format") ? shown(root["format"]) : "nothing");
  }
  if (!root.contains("modules") || !root["modules"].is_array()) {
    return make_error(ErrorCode::invalid_argument, "manifest, modules: expected a list of modules");
  }
  Manifest manifest;
  const std::string own_folder = resolve_folder(".");
  std::set<std::string> names;
  std::size_t index = 0;
  for (const Json& object : root["modules"]) {
    const std::string where = fmt::format("modules[{}]", index++);
    CUKILN_TRY(ModuleSpec module,
               read_module(object, where, own_folder, resolve_source, resolve_folder));
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

/// `nvfp4/tile.cuh` from `nvfp4/` is `tile.cuh`, from `sampling/` it is `../nvfp4/tile.cuh`. The
/// paths of std::filesystem would do it too, and take most of a start's time to make the manifest.
std::string seen_from(std::string_view family, std::string_view header) {
  if (header.substr(0, family.size()) == family) {
    return std::string(header.substr(family.size()));
  }
  std::string path;
  for (const char c : family) {
    path += c == '/' ? "../" : "";
  }
  path += header;
  return path;
}

/// The headers that came with the library, by the text that asks for them.
class EmbeddedHeaders {
 public:
  /// Gives a module the embedded files whose names are in `text` behind `#include "`, and those
  /// whose names are in theirs. By the last part of the name alone: one too many does no harm.
  void add_to(ModuleSpec& module, std::string_view text, std::string_view family) {
    for (const embedded::File* file : asked_for_by(text)) {
      const std::string path = seen_from(family, file->name);
      const bool known = std::any_of(module.headers.begin(), module.headers.end(),
                                     [&](const Source& header) { return header.path == path; });
      if (!known) {
        module.headers.push_back(Source::literal(path, file->bytes));
        add_to(module, file->bytes, family);
      }
    }
  }

 private:
  using Files = std::vector<const embedded::File*>;

  /// A text is read once: most headers belong to several modules.
  const Files& asked_for_by(std::string_view text) {
    static constexpr std::string_view kInclude = "#include \"";
    const auto [at_text, is_new] = asked_for_.try_emplace(text.data());
    Files& files = at_text->second;
    if (!is_new) {
      return files;
    }
    for (std::size_t at = text.find(kInclude); at != std::string_view::npos;
         at = text.find(kInclude, at + 1)) {
      std::string_view name = text.substr(at + kInclude.size());
      name = name.substr(0, name.find('"'));
      name = name.substr(name.rfind('/') + 1);
      for (const embedded::File& file : embedded::kernels_src()) {
        if (file.name.substr(file.name.rfind('/') + 1) == name) {
          files.push_back(&file);
        }
      }
    }
    return files;
  }

  std::map<const char*, Files> asked_for_;  // embedded text stays where it is
};

}  // namespace

std::optional<ContentHash> embedded_digest_of(ByteView text) noexcept {
  for (const embedded::File& file : embedded::kernels_src()) {
    if (file.bytes.data() == text.data() && file.bytes.size() == text.size()) {
      return digest_from<ContentHash>(file.blake2b_256);
    }
  }
  return std::nullopt;
}

Result<Manifest> Manifest::parse(std::string_view json, const std::string& folder) {
  return guarded([&]() -> Result<Manifest> {
    return read_manifest(
        json,
        [&](const std::string& path) -> Result<Source> {
          return Source::file(below(folder, path));
        },
        [&](const std::string& path) { return below(folder, path); });
  });
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

Manifest Manifest::shipped() {
  // The shipped manifest is an ordinary one: `cukiln preload cache/manifests/shipped.json` in a
  // checkout compiles the files on disk instead of these copies, and gives the same keys.
  static constexpr std::string_view kPrefix = "../../kernels_src/";
  static constexpr std::string_view kFolder = "kernels_src/";
  const auto source_of = [](const std::string& path) -> Result<Source> {
    const std::string name = path.substr(std::min(kPrefix.size(), path.size()));
    for (const embedded::File& file : embedded::kernels_src()) {
      if (file.name == name) {
        return Source::literal(std::string(kFolder) + name, file.bytes);
      }
    }
    return make_error(ErrorCode::internal, "kernels_src/{} is not in this build", name);
  };
  std::string_view json;
  for (const embedded::File& file : embedded::manifests()) {
    if (file.name == "shipped.json") {
      json = file.bytes;
    }
  }
  auto manifest = read_manifest(json, source_of, [](const std::string& path) { return path; });
  if (!manifest) {
    return {};  // a test reads the same file and fails first
  }
  EmbeddedHeaders headers;
  for (ModuleSpec& module : manifest->modules_) {
    std::string_view family = module.sources.front().path;  // kernels_src/nvfp4/amax_gsa.cu
    family = family.substr(0, family.rfind('/') + 1).substr(kFolder.size());
    for (const Source& source : module.sources) {
      headers.add_to(module, source.content(), family);
    }
  }
  return *std::move(manifest);
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
