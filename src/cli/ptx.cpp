// SPDX-License-Identifier: Apache-2.0
#include "cli/ptx.hpp"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "cli/shipped.hpp"
#include "core/base/hasher.hpp"
#include "core/base/result.hpp"
#include "core/key/compile_request.hpp"
#include "core/loader/addons.hpp"
#include "core/loader/loader_services.hpp"
#include "core/loader/make_entry.hpp"

namespace cukiln::cli {

namespace {

constexpr std::string_view kArchitecture = "--gpu-architecture=";

/// Returns the recorded options with the target's virtual architecture instead of the real one, and
/// with relocatable code instead of LTO, of which there is no PTX.
CompileOptions to_ptx(CompileOptions options, Target target) {
  std::replace(options.arguments.begin(), options.arguments.end(), std::string(kLtoArgument),
               std::string(kRdcArgument));
  for (std::string& argument : options.arguments) {
    if (argument.starts_with(kArchitecture)) {
      const std::string name = target.name();  // sm_100a
      argument = std::string(kArchitecture) + "compute" + name.substr(name.find('_'));
    }
  }
  return options;
}

/// Returns the sources of an entry. Errors: incompatible (the store does not have the texts).
Result<std::vector<VirtualSource>> sources_of(const RequestFields& fields, ByteView joined) {
  const std::vector<ByteView> texts = source_texts_in(joined, fields.sources);
  std::vector<VirtualSource> sources;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const RequestFields::Source& source = fields.sources[i];
    if (hash_of(texts[i]) != source.digest) {
      return make_error(ErrorCode::incompatible,
                        "the store has cubins, not PTX, and this entry without the text of {}, so "
                        "that it cannot be compiled again; use 'nvcc -ptx' on the file",
                        source.path);
    }
    sources.emplace_back(source.path, SharedBytes(std::string(texts[i])), source.digest);
  }
  return sources;
}

/// Returns the PTX of a link's sources, each behind a line with its path if there are several.
std::string joined_ptx(const LinkParts& built) {
  if (built.parts.size() == 1) {
    return std::string(built.parts.front().image.view());
  }
  std::string text;
  for (const LinkParts::Part& part : built.parts) {
    text += fmt::format("{}// {}\n{}", text.empty() ? "" : "\n", part.name, part.image.view());
  }
  return text;
}

/// Adds the headers of the shipped kernels whose source has this file name.
void add_shipped_headers(const std::string& source_path, ModuleRequest& module) {
  const std::string name = std::filesystem::path(source_path).filename().string();
  const Manifest shipped = shipped_manifest().value_or(Manifest());
  for (const ModuleSpec& spec : shipped.modules()) {
    const std::string& path = name_of(spec.sources.front());
    if (std::filesystem::path(path).filename() == name) {
      for (const Source& header : spec.headers) {
        module.memory_files.push_back({std::string(kSourceRoot) + "/" + name_of(header),
                                       SharedBytes{std::string(*text_of(header))}, std::nullopt});
      }
    }
  }
}

}  // namespace

Result<std::string> compile_to_ptx(KernelLoader& loader, const StoreEntry& entry,
                                   const std::string& source_text,
                                   const std::vector<VirtualSource>& headers) {
  CUKILN_TRY(const RequestFields fields, RequestFields::parse(entry.request_canonical));
  if (fields.program) {
    if (fields.output() == OutputKind::ptx) {
      return std::string(entry.cubin.image.view());
    }
    return make_error(
        ErrorCode::incompatible,
        "this entry is a {} of a program of NVRTC's own interface; its PTX is an entry "
        "of its own, stored once the program asks for it",
        name_of(fields.output()));
  }
  ModuleRequest module;
  CUKILN_TRY(module.request.sources, sources_of(fields, source_text));
  // CUDA's headers come from their present folders. The user's folders are not recorded, because
  // rows hold no real path.
  LoaderServices services(loader);
  Compiler& compiler = services.compiler(fields.target);
  module.roots = {services.toolkit_root_of(entry, fields.target)};
  for (const VirtualSource& source : module.request.sources) {
    module.roots.push_back({source.path.substr(0, source.path.rfind('/')), {}});
    module.memory_files.push_back({source.path, source.text, source.digest});
  }
  for (const VirtualSource& header : headers) {
    module.memory_files.push_back({header.path, header.text, header.digest});
  }
  if (fields.sources.size() == 1) {
    add_shipped_headers(fields.sources.front().path, module);
  }
  StatCache* const stats = &services.stat_cache();
  const FileServer::Mismatch mismatch = module.files(stats)->check(entry.dependencies);
  if (mismatch.what != FileServer::Mismatch::What::none) {
    return make_error(
        ErrorCode::incompatible,
        "the store has cubins, not PTX, and the entry cannot be compiled again here: {} has "
        "changed or is missing; name the source's folder, and those of its compile, with -I",
        mismatch.path);
  }
  CUKILN_TRY(module.request.toolchain, compiler.toolchain());
  module.request.options = to_ptx(fields.options, fields.target);
  module.request.target = fields.target;
  const auto compile = [&](const ModuleRequest& one) -> Result<BuiltPart> {
    const auto files = one.files(stats);
    const CompileJob job{{one.request, entry.labels.name}, FileSource(*files), {}};
    CUKILN_TRY(CompileOutcome outcome, compiler.compile(job));
    return BuiltPart{std::move(outcome.result.cubin), {}};
  };
  if (!fields.link) {
    CUKILN_TRY(const BuiltPart whole, compile(module));
    return std::string(whole.cubin.image.view());
  }
  module.source_files.resize(module.request.sources.size());
  LinkStep& link = module.request.link.emplace();
  for (const RequestFields::Source& object : fields.link->objects) {
    link.objects.emplace_back(object.path, SharedBytes(), object.digest);
  }
  CUKILN_CHECK(check_can_link(entry.labels.name));
  CUKILN_TRY(const LinkParts built, addons().build_parts(module, *module.files(stats), compile, 1));
  return joined_ptx(built);
}

}  // namespace cukiln::cli
