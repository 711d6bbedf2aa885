// SPDX-License-Identifier: Apache-2.0
#include "core/loader/loader_services.hpp"

#include <algorithm>
#include <utility>

#include "core/base/hasher.hpp"
#include "core/base/result.hpp"
#include "core/key/std_headers.hpp"
#include "core/loader/addons.hpp"
#include "core/loader/loader_impl.hpp"
#include "core/loader/make_entry.hpp"
#include "core/loader/replaced_nvrtc.hpp"

namespace cukiln {

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

/// Whether an entry's compile was served the standard headers for device code: it looked for none
/// of them in vain. An entry that looked for none at all holds either way.
bool had_std_shims(const DependencySet& set) {
  return std::none_of(set.observations.begin(), set.observations.end(), [](const auto& one) {
    return one.kind == Observation::Kind::absent && is_std_header(one.path);
  });
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

}  // namespace

void LoaderServices::set_remote(RemoteTier* remote) noexcept {
  loader_.impl_->builder->set_remote(remote);
}

Result<std::vector<Target>> LoaderServices::targets_of(const ModuleSpec& module) {
  std::vector<DeviceInfo> visible;
  if (module.targets.empty()) {
    if (auto devices = loader_.impl_->devices({})) {
      visible = *std::move(devices);
    }
  }
  return loader_.impl_->targets_of(module, visible);
}

Result<std::vector<Target>> LoaderServices::targets_without_devices(const ModuleSpec& module) {
  return loader_.impl_->targets_of(module, {});
}

Result<LoaderServices::Resolved> LoaderServices::resolve(const ModuleSpec& module, Target target) {
  CUKILN_TRY(auto resolved, loader_.impl_->resolve(module, target, Builder::Purpose::inspect));
  const auto& entry = resolved.found.entry;
  return Resolved{resolved.request.name, resolved.request.request.target,
                  entry ? std::optional(entry->key) : std::nullopt,
                  entry ? std::string() : resolved.found.miss.text(),
                  entry && resolved.request.trusts_recorded_toolkit(entry->dependencies)};
}

std::string LoaderServices::toolchain_mismatch(const StoreEntry& entry) {
  const auto fields = RequestFields::parse(entry.request_canonical);
  if (!fields) {
    return fields.error().message();
  }
  Compiler& compiler = loader_.impl_->compiler->for_target(fields->target);
  const auto here = compiler.toolchain();
  if (here && here->version != fields->toolchain.version) {
    return fmt::format("compiled by nvrtc {}, and this machine has {}", fields->toolchain.version,
                       here->version);
  }
  if (here && here->content != fields->toolchain.content) {
    return fmt::format("compiled by another build of nvrtc {} than this machine's", here->version);
  }
  const std::vector<std::string> toolkit = compiler.toolkit_folders();
  VirtualRoot root = toolkit_root(toolkit, had_std_shims(entry.dependencies));
  root.as_recorded = !here && toolkit.empty();
  FileServer files({std::move(root)}, &loader_.impl_->stat_cache);
  const bool is_trusted = entry.may_trust_toolkit();
  for (const FileServer::Mismatch& found : files.check_all(entry.dependencies, is_trusted)) {
    using What = FileServer::Mismatch::What;
    if (found.what == What::vanished && files.is_as_recorded(found.path)) {
      return Miss{Miss::Why::unvouched, {}}.text();
    }
    if (found.path.starts_with(std::string(kToolkitRoot) + "/") && found.what != What::relinked) {
      const char* const how = found.what == What::changed    ? "changed"
                              : found.what == What::appeared ? "appeared"
                                                             : "vanished";
      return fmt::format("header {}: {}", how, files.real_path(found.path));
    }
  }
  return {};
}

std::vector<std::string> LoaderServices::toolkit_folders(Target target) {
  return loader_.impl_->compiler->for_target(target).toolkit_folders();
}

Result<std::string> LoaderServices::compile_to_ptx(const StoreEntry& entry,
                                                   const std::string& source_text,
                                                   const std::vector<MemoryHeader>& headers) {
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
  Compiler& compiler = loader_.impl_->compiler->for_target(fields.target);
  module.roots = {toolkit_root(compiler.toolkit_folders(), had_std_shims(entry.dependencies))};
  for (const VirtualSource& source : module.request.sources) {
    module.roots.push_back({source.path.substr(0, source.path.rfind('/')), {}});
    module.memory_files.push_back({source.path, source.text, source.digest});
  }
  for (const MemoryHeader& header : headers) {
    module.memory_files.push_back(
        {std::string(kSourceRoot) + "/" + header.path, header.text, std::nullopt});
  }
  StatCache* const stats = &loader_.impl_->stat_cache;
  const FileServer::Mismatch mismatch = module.files(stats)->check(entry.dependencies);
  if (mismatch.what != FileServer::Mismatch::What::none) {
    return make_error(
        ErrorCode::incompatible,
        "the store has cubins, not PTX, and the entry cannot be compiled again here: {} has "
        "changed or is missing; use 'nvcc -ptx' on the files",
        mismatch.path);
  }
  CUKILN_TRY(module.request.toolchain, compiler.toolchain());
  module.request.options = to_ptx(fields.options, fields.target);
  module.request.target = fields.target;
  const auto compile = [&](const ModuleRequest& one) -> Result<BuiltPart> {
    const auto files = one.files(stats);
    const CompileJob job{{one.request, entry.labels.name}, FileSource(*files), {}};
    CUKILN_TRY(CompileOutcome outcome, loader_.impl_->compiler->compile(job));
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

Result<Built> LoaderServices::build(Target target, const MakeRequest& make, NvrtcFailure& failure) {
  KernelLoader::Impl& impl = *loader_.impl_;
  const EventDelivery delivery(impl.tiers.events(), impl.events);
  ModuleRequest request;
  const auto build_once = [&]() -> Result<Built> {
    CUKILN_TRY(const Toolchain toolchain, impl.compiler->for_target(target).toolchain());
    request = make(toolchain);
    return impl.builder->build(request, impl.builder->look_up(request), {}, nullptr, nullptr,
                               &failure);
  };
  auto built = build_once();
  if (!built && is_of_replaced_nvrtc(*impl.compiler, request, built.error())) {
    built = build_once();
  }
  if (built && built->outcome == Outcome::compiled) {
    // Not at the end of the process: hosts that are killed would read every header at each start.
    impl.tiers.save_stat_records(impl.stat_cache.take_new());
    static_cast<void>(impl.tiers.flush());
  }
  return built;
}

void LoaderServices::put(const StoreEntry& entry) {
  static_cast<void>(loader_.impl_->tiers.put(entry));
}

}  // namespace cukiln
