// SPDX-License-Identifier: Apache-2.0
// The manifest of the kernels that come with cukiln, their sources inside the library. It is an
// ordinary one: `cukiln preload cache/manifests/shipped.json` in a checkout compiles the files on
// disk instead of these copies, and has the same keys.
#include <algorithm>
#include <map>

#include "core/base/result.hpp"
#include "embedded/kernels_src.hpp"
#include "embedded/manifests.hpp"

#include <cukiln/nvfp4/nvfp4.hpp>

namespace cukiln::nvfp4 {

namespace {

constexpr std::string_view kPrefix = "../../kernels_src/";
constexpr std::string_view kFolder = "kernels_src/";

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
  /// Adds to a module the embedded files whose names are in `text` behind `#include "`, and those
  /// whose names are in theirs. By the last part of the name alone: one too many does no harm.
  void add_to(ModuleSpec& module, std::string_view text, std::string_view family) {
    for (const embedded::File* file : asked_for_by(text)) {
      const std::string path = seen_from(family, file->name);
      const bool known = std::any_of(module.headers.begin(), module.headers.end(),
                                     [&](const Source& header) { return name_of(header) == path; });
      if (!known) {
        module.headers.emplace_back(SourceLiteral{path, file->bytes, file->blake2b_256});
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

Result<Source> embedded_source(const std::string& path) {
  const std::string name = path.substr(std::min(kPrefix.size(), path.size()));
  for (const embedded::File& file : embedded::kernels_src()) {
    if (file.name == name) {
      return Source(SourceLiteral{std::string(kFolder) + name, file.bytes, file.blake2b_256});
    }
  }
  return make_error(ErrorCode::internal, "kernels_src/{} is not in this build", name);
}

constexpr std::string_view kManifest = "shipped.json";

Result<Manifest> embedded_manifest() {
  CUKILN_TRY(Manifest read, Manifest::parse(shipped_text(kManifest), embedded_source));
  std::vector<ModuleSpec> modules = std::move(read).modules();
  EmbeddedHeaders headers;
  for (ModuleSpec& module : modules) {
    std::string_view family = name_of(module.sources.front());  // kernels_src/nvfp4/amax_gsa.cu
    family = family.substr(0, family.rfind('/') + 1).substr(kFolder.size());
    for (const Source& source : module.sources) {
      headers.add_to(module, *text_of(source), family);
    }
  }
  return Manifest(std::move(modules));
}

}  // namespace

std::string_view v0::shipped_text(std::string_view file) noexcept {
  for (const embedded::File& each :
       file == kManifest ? embedded::manifests() : embedded::kernels_src()) {
    if (each.name == file || each.name.substr(each.name.rfind('/') + 1) == file) {
      return each.bytes;
    }
  }
  return {};
}

Manifest v0::manifest() {
  return guarded(embedded_manifest).value_or(Manifest());  // a test reads the same and fails first
}

Result<PreloadReport> v0::preload_all(KernelLoader& loader, const PreloadOptions& options,
                                      const Progress& progress) {
  return loader.preload(manifest(), options, progress);
}

}  // namespace cukiln::nvfp4
