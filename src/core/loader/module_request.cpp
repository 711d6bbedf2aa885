// SPDX-License-Identifier: Apache-2.0
#include "core/loader/module_request.hpp"

#include <algorithm>
#include <filesystem>
#include <optional>

#include "core/base/file.hpp"
#include "core/base/result.hpp"
#include "core/key/name_expression.hpp"
#include "core/key/nvcc_flags.hpp"
#include "core/loader/addons.hpp"

namespace cukiln {

namespace {

constexpr std::string_view kDefaultStandard = "c++17";

// A source of at most this size is hashed: that is faster than looking up its digest.
constexpr std::size_t kMaxHashedBytes = 4096;

/// Returns the virtual folder for the sources of the index-th folder: `/cukiln/src`,
/// `/cukiln/src.1`.
std::string source_root(std::size_t index) {
  return index == 0 ? std::string(kSourceRoot) : fmt::format("{}.{}", kSourceRoot, index);
}

/// Hashes a source that was read, unless the digest of its stamp is known.
ContentHash digest_of_source(const FileContent& content, const ModuleRequest::SourceFile& file,
                             StatCache* stats) {
  if (stats == nullptr || content.bytes.size() <= kMaxHashedBytes) {
    return hash_of(content.bytes);
  }
  if (const auto known = stats->find(file.path, file.stamp)) {
    return *known;
  }
  const ContentHash digest = hash_of(content.bytes);
  stats->put({file.path, file.stamp, digest, {}, file.recorded_ns});
  return digest;
}

/// Returns the digest that the host's build computed, if there is one.
std::optional<ContentHash> digest_given_with(const Source& source) {
  const auto* const embedded = std::get_if<SourceLiteral>(&source);
  if (embedded == nullptr || embedded->digest.size() != ContentHash{}.bytes.size()) {
    return std::nullopt;
  }
  return digest_from<ContentHash>(embedded->digest);
}

/// Returns a header's text. Errors: invalid_argument (it is a file).
Result<std::string_view> header_text(const ModuleSpec& spec, const Source& header) {
  if (const auto text = text_of(header)) {
    return *text;
  }
  return make_error(ErrorCode::invalid_argument,
                    "module \"{}\": the header \"{}\" has no text; expected a text in memory: name "
                    "the folder of a header in `include` instead",
                    spec.name, name_of(header));
}

Result<void> add_sources(const ModuleSpec& spec, StatCache* stats, ModuleRequest& out) {
  if (spec.sources.empty()) {
    return make_error(ErrorCode::invalid_argument,
                      "module \"{}\" has no source: expected at least one", spec.name);
  }
  std::vector<std::string> folders;
  for (const Source& source : spec.sources) {
    const std::string& name = name_of(source);
    std::string folder;
    SharedBytes text;
    ContentHash digest;
    ModuleRequest::SourceFile file;
    if (const auto in_memory = text_of(source)) {
      if (in_memory->size() > kMaxSourceBytes) {
        return make_error(ErrorCode::invalid_argument, "{} has {} bytes, the limit is {}", name,
                          in_memory->size(), kMaxSourceBytes);
      }
      text = SharedBytes::borrowed(*in_memory);
      const auto known = digest_given_with(source);
      digest = known ? *known : hash_of(text);
    } else {
      file.recorded_ns = Clock::system().now_ns();  // before it is opened: see FileServer::serve
      CUKILN_TRY(FileContent content, read_file(name));
      file.path = absolute_path(name);
      file.stamp = content.stamp;
      digest = digest_of_source(content, file, stats);
      text = std::move(content.bytes);
      folder = std::filesystem::path(file.path).parent_path().string();
    }
    if (const std::size_t nul = text.view().find('\0'); nul != ByteView::npos) {
      return make_error(ErrorCode::invalid_argument,
                        "{} has a NUL byte at offset {}: NVRTC would compile what is before it and "
                        "nothing else",
                        name, nul);
    }
    const auto known = std::find(folders.begin(), folders.end(), folder);
    const std::string root = source_root(static_cast<std::size_t>(known - folders.begin()));
    if (known == folders.end()) {
      folders.push_back(folder);
      out.roots.push_back(
          {root, folder.empty() ? std::vector<std::string>{} : std::vector<std::string>{folder}});
    }
    const std::string virtual_path = root + "/" + std::filesystem::path(name).filename().string();
    out.memory_files.push_back({virtual_path, text, digest});
    out.request.sources.emplace_back(virtual_path, std::move(text), digest);
    out.source_files.push_back(std::move(file));
  }
  for (const Source& header : spec.headers) {
    CUKILN_TRY(const std::string_view text, header_text(spec, header));
    out.memory_files.push_back({std::string(kSourceRoot) + "/" + name_of(header),
                                SharedBytes::borrowed(text), digest_given_with(header)});
  }
  return {};
}

/// Adds the headers that NVRTC is given by name, sorted: their order changes nothing.
Result<void> add_named_headers(const ModuleSpec& spec, ModuleRequest& out) {
  std::vector<VirtualSource>& headers = out.request.headers;
  for (const Source& header : spec.named_headers) {
    CUKILN_TRY(const std::string_view text, header_text(spec, header));
    const std::string& name = name_of(header);
    if (name.empty()) {
      return make_error(ErrorCode::invalid_argument,
                        "module \"{}\": a named header has no name; expected the name by which it "
                        "is included",
                        spec.name);
    }
    const std::size_t nul = text.find('\0');
    if (text.size() > kMaxSourceBytes || nul != std::string_view::npos) {
      return make_error(
          ErrorCode::invalid_argument, "module \"{}\": the named header \"{}\" {}", spec.name, name,
          nul != std::string_view::npos
              ? fmt::format("has a NUL byte at offset {}: NVRTC would read what is "
                            "before it and nothing else",
                            nul)
              : fmt::format("has {} bytes, the limit is {}", text.size(), kMaxSourceBytes));
    }
    const auto digest = digest_given_with(header);
    SharedBytes bytes = SharedBytes::borrowed(text);
    const ContentHash hash = digest ? *digest : hash_of(bytes);
    headers.emplace_back(name, std::move(bytes), hash);
  }
  const auto by_path = [](const VirtualSource& a, const VirtualSource& b) {
    return a.path < b.path;
  };
  std::sort(headers.begin(), headers.end(), by_path);
  const auto twice = std::adjacent_find(
      headers.begin(), headers.end(),
      [](const VirtualSource& a, const VirtualSource& b) { return a.path == b.path; });
  if (twice != headers.end()) {
    return make_error(ErrorCode::invalid_argument,
                      "module \"{}\" has two named headers \"{}\"; expected one of each name",
                      spec.name, twice->path);
  }
  return {};
}

/// Refuses an empty name expression, of which NVRTC's error names neither the module nor the name.
Result<void> check_names(const ModuleSpec& spec) {
  return std::find(spec.names.begin(), spec.names.end(), "") == spec.names.end()
             ? Result<void>()
             : make_error(ErrorCode::invalid_argument,
                          "module \"{}\" has an empty name among its names; expected the names of "
                          "kernels and variables, such as \"scale<float, 4>\"",
                          spec.name);
}

/// Refuses NUL bytes: NVRTC and the file system would see less of a string than the key has.
Result<void> check_no_nul(const ModuleSpec& spec) {
  const auto check = [&](const char* what, const std::string& text) -> Result<void> {
    const std::size_t nul = text.find('\0');
    return nul == std::string::npos
               ? Result<void>()
               : make_error(
                     ErrorCode::invalid_argument,
                     "module \"{}\": the {} \"{}\" has a NUL byte at offset {}; expected none",
                     spec.name, what, text.substr(0, nul), nul);
  };
  for (const Source& source : spec.sources) {
    CUKILN_CHECK(check("source", name_of(source)));
  }
  for (const Source& header : spec.headers) {
    CUKILN_CHECK(check("header", name_of(header)));
  }
  for (const Source& header : spec.named_headers) {
    CUKILN_CHECK(check("named header", name_of(header)));
  }
  CUKILN_CHECK(check("working folder", spec.working_folder));
  const std::pair<const char*, const std::vector<std::string>&> lists[] = {
      {"include folder", spec.include},
      {"flag", spec.flags},
      {"name expression", spec.names},
      {"object", spec.objects}};
  for (const auto& [what, texts] : lists) {
    for (const std::string& text : texts) {
      CUKILN_CHECK(check(what, text));
    }
  }
  for (const auto& [macro, value] : spec.define) {
    CUKILN_CHECK(check("macro", macro));
    CUKILN_CHECK(check("macro's value", value));
  }
  return {};
}

std::string joined(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) {
    text.append(text.empty() ? "" : " ").append(part);
  }
  return text;
}

/// Adds the options that name no folder, in the order that ModuleSpec documents.
void add_options(const ModuleSpec& spec, const TranslatedFlags& flags, Target target,
                 ModuleRequest& out) {
  std::vector<std::string>& arguments = out.request.options.arguments;
  arguments.push_back("--gpu-architecture=" + target.name());
  arguments.push_back("--std=" +
                      (flags.standard.empty() ? std::string(kDefaultStandard) : flags.standard));
  for (const auto& [macro, value] : spec.define) {
    arguments.push_back("--define-macro=" + macro + (value.empty() ? "" : "=" + value));
  }
  arguments.insert(arguments.end(), flags.arguments.begin(), flags.arguments.end());

  std::vector<std::string>& expressions = out.request.options.name_expressions;
  expressions = canonical_names(spec.names, flags.standard);
  std::sort(expressions.begin(), expressions.end());
  expressions.erase(std::unique(expressions.begin(), expressions.end()), expressions.end());
}

/// Adds the include folders, the user's before the toolkit's, each under its virtual root.
void add_include_folders(const ModuleSpec& spec, const TranslatedFlags& flags,
                         const std::vector<std::string>& toolkit_folders, ModuleRequest& out) {
  std::vector<std::string> include;
  for (const std::string& folder : spec.include) {
    include.push_back(absolute_path(folder));
  }
  for (const std::string& folder : flags.include) {
    include.push_back(absolute_path(folder, spec.working_folder));
  }
  std::vector<std::string>& arguments = out.request.options.arguments;
  for (std::size_t i = 0; i < include.size(); ++i) {
    const std::string root = fmt::format("{}/{}", kIncludeRoot, i);
    out.roots.push_back({root, {std::move(include[i])}});
    arguments.push_back("--include-path=" + root);
  }
  if (flags.relative_pre_include) {
    const std::string folder = working_folder_of(spec);
    out.roots.push_back({kWorkRoot, folder.empty() ? std::vector<std::string>{}
                                                   : std::vector<std::string>{folder}});
  }
  const std::string toolkit = kToolkitRoot;
  out.roots.push_back(toolkit_root(toolkit_folders, spec.std_shims));
  arguments.push_back("--include-path=" + toolkit);
  arguments.push_back("--include-path=" + toolkit + "/cccl");
}

/// Adds what names the module in logs and lists. Request and dropped flags are complete before.
void add_labels(const ModuleSpec& spec, ModuleRequest& out) {
  out.source = name_of(spec.sources.front());
  const std::filesystem::path source = out.source;
  out.name = spec.name.empty() ? source.stem().string() : spec.name;
  std::string shown_flags = joined(out.request.options.arguments);
  if (!out.dropped_flags.empty()) {
    shown_flags += kDroppedMark + joined(out.dropped_flags) + "]";
  }
  out.labels = {out.name, source.filename().string(), out.request.target.name(),
                std::move(shown_flags), "nvrtc " + out.request.toolchain.version};
  if (out.request.link) {
    out.labels.compiler += ", nvjitlink " + out.request.link->linker.version;
  }
}

}  // namespace

std::string absolute_path(const std::string& path, const std::string& folder) {
  if (!path.empty() && path.front() == '/') {
    return path;
  }
  std::error_code ignored;
  const auto absolute = std::filesystem::absolute(std::filesystem::path(folder) / path, ignored);
  return ignored ? path : absolute.string();
}

std::string working_folder_of(const ModuleSpec& spec) {
  if (!spec.working_folder.empty()) {
    return absolute_path(spec.working_folder);
  }
  std::error_code gone;
  const std::filesystem::path here = std::filesystem::current_path(gone);
  return gone ? std::string() : here.string();
}

std::vector<std::string> canonical_names(const std::vector<std::string>& names,
                                         const std::string& standard) {
  std::vector<std::string> canonical;
  for (const std::string& name : names) {
    canonical.push_back(canonical_name(name, standard == "c++03"));
  }
  return canonical;
}

VirtualRoot toolkit_root(std::vector<std::string> folders, bool std_shims) {
  if (std_shims) {
    folders.emplace_back(kStdFolder);
  }
  return {kToolkitRoot, std::move(folders)};
}

void ModuleRequest::trust_recorded_toolkit() {
  for (VirtualRoot& root : roots) {
    root.as_recorded = root.as_recorded || root.prefix == kToolkitRoot;
  }
}

bool ModuleRequest::trusts_recorded_toolkit(const DependencySet& set) const {
  if (std::none_of(roots.begin(), roots.end(),
                   [](const VirtualRoot& root) { return root.as_recorded; })) {
    return false;  // nearly always: every hit asks
  }
  const FileServer server(roots, nullptr);
  return std::any_of(set.observations.begin(), set.observations.end(), [&](const Observation& one) {
    return one.kind == Observation::Kind::file && server.is_as_recorded(one.path);
  });
}

std::unique_ptr<FileServer> ModuleRequest::files(StatCache* stats) const {
  auto server = std::make_unique<FileServer>(roots, stats);
  for (const MemoryFile& file : memory_files) {
    server->add_memory_file(file.path, file.text, file.digest);
  }
  return server;
}

std::optional<ModuleRequest> ModuleRequest::with_true_digests(StatCache& stats) const {
  std::optional<ModuleRequest> corrected;
  for (std::size_t i = 0; i < request.sources.size(); ++i) {
    const VirtualSource& asked = request.sources[i];
    const SourceFile& file = source_files[i];
    const ContentHash found = file.path.empty() ? asked.digest : hash_of(asked.text);
    if (found == asked.digest) {
      continue;
    }
    if (!corrected) {
      corrected = *this;
    }
    stats.put({file.path, file.stamp, found, {}, file.recorded_ns});
    corrected->request.sources[i].digest = found;
    for (MemoryFile& memory : corrected->memory_files) {
      memory.digest = memory.path == asked.path ? std::optional(found) : memory.digest;
    }
  }
  if (corrected) {
    corrected->canonical = corrected->request.canonical();
    corrected->digest = CompileRequest::digest_of(corrected->canonical);
  }
  return corrected;
}

Result<LinkMode> link_mode_of(const ModuleSpec& spec) {
  static constexpr std::string_view kBeginnings[] = {"-dc",        "-dlto",   "-rdc",
                                                     "--device-c", "--dlink", "--relocatable"};
  const bool may_link = std::any_of(spec.flags.begin(), spec.flags.end(), [](const auto& flag) {
    return std::any_of(std::begin(kBeginnings), std::end(kBeginnings),
                       [&](std::string_view beginning) { return flag.starts_with(beginning); });
  });
  LinkMode mode = spec.link;
  if (mode == LinkMode::none && may_link) {  // every lookup asks: rarely
    CUKILN_TRY(const TranslatedFlags flags, translate_flags(spec.flags));
    mode = flags.link;
  }
  if (mode != LinkMode::none) {
    CUKILN_CHECK(check_can_link(spec.name));
  }
  return mode;
}

Result<std::vector<Target>> explicit_targets(const ModuleSpec& spec) {
  if (!spec.targets.empty()) {
    return spec.targets;
  }
  CUKILN_TRY(TranslatedFlags flags, translate_flags(spec.flags));
  return std::move(flags.targets);
}

Result<ModuleRequest> make_module_request(const ModuleSpec& spec, Target target,
                                          const Toolchain& toolchain,
                                          const std::vector<std::string>& toolkit_folders,
                                          StatCache* stats, const Toolchain& linker) {
  CUKILN_CHECK(check_no_nul(spec));
  CUKILN_CHECK(check_names(spec));
  ModuleRequest out;
  out.spec = &spec;
  CUKILN_TRY(TranslatedFlags flags, translate_flags(spec.flags));
  CUKILN_CHECK(add_sources(spec, stats, out));
  CUKILN_CHECK(add_named_headers(spec, out));
  add_options(spec, flags, target, out);
  add_include_folders(spec, flags, toolkit_folders, out);
  out.request.target = target;
  out.request.toolchain = toolchain;
  CUKILN_TRY(const LinkMode mode, link_mode_of(spec));
  if (mode != LinkMode::none) {
    CUKILN_CHECK(addons().add_link(spec, mode, linker, out));
  } else if (!spec.objects.empty()) {
    return make_error(ErrorCode::invalid_argument,
                      "module \"{}\" has the object {} and does not link: expected link to be "
                      "rdc or lto",
                      spec.name, spec.objects.front());
  }
  out.request.options.arguments.emplace_back("--ptxas-options=-v");  // the resources, in the log
  out.canonical = out.request.canonical();
  out.digest = CompileRequest::digest_of(out.canonical);
  out.kernel_names = canonical_names(spec.names, flags.standard);
  out.dropped_flags = std::move(flags.dropped);
  out.reported_flags = std::move(flags.reported);
  add_labels(spec, out);
  return out;
}

ModuleRequest part_of(const ModuleRequest& whole, std::size_t index,
                      std::vector<std::string> names) {
  ModuleRequest part = whole;
  const VirtualSource& source = whole.request.sources[index];
  part.request.sources = {source};
  part.source_files = {whole.source_files[index]};
  part.request.link.reset();
  std::sort(names.begin(), names.end());
  part.request.options.name_expressions = names;
  part.kernel_names = std::move(names);
  part.canonical = part.request.canonical();
  part.digest = CompileRequest::digest_of(part.canonical);
  part.source = source.path.substr(source.path.rfind('/') + 1);
  part.labels.source = part.source;
  part.labels.compiler = "nvrtc " + part.request.toolchain.version;
  return part;
}

}  // namespace cukiln
