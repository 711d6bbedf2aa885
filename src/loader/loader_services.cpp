// SPDX-License-Identifier: Apache-2.0
#include "loader/loader_services.hpp"

#include <algorithm>
#include <utility>

#include "base/hasher.hpp"
#include "base/result.hpp"
#include "key/std_headers.hpp"
#include "loader/loader_impl.hpp"

namespace cukiln {

namespace {

constexpr std::string_view kArchitecture = "--gpu-architecture=";

/// Returns the recorded options with the target's virtual architecture instead of the real one, and
/// without LTO, which gives no PTX.
CompileOptions to_ptx(CompileOptions options, Target target) {
  std::erase(options.arguments, kLtoArgument);
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
                  entry && resolved.request.relies_on_record(entry->dependencies)};
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
  for (const FileServer::Mismatch& found : files.check_all(entry.dependencies)) {
    using What = FileServer::Mismatch::What;
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
  if (fields.sources.size() != 1 || hash_of(source_text) != fields.sources.front().digest) {
    return make_error(
        ErrorCode::incompatible,
        "this entry has {} sources, and the store has cubins, not PTX; use 'nvcc -ptx' on the "
        "files",
        fields.sources.size());
  }
  // CUDA's headers come from their present folders. The user's folders are not recorded, because
  // rows hold no real path.
  Compiler& compiler = loader_.impl_->compiler->for_target(fields.target);
  const SharedBytes text{std::string(source_text)};
  FileServer files({{kSourceRoot, {}},
                    toolkit_root(compiler.toolkit_folders(), had_std_shims(entry.dependencies))},
                   &loader_.impl_->stat_cache);
  files.add_memory_file(fields.sources.front().path, text);
  for (const MemoryHeader& header : headers) {
    files.add_memory_file(std::string(kSourceRoot) + "/" + header.path, header.text);
  }
  const FileServer::Mismatch mismatch = files.check(entry.dependencies);
  if (mismatch.what != FileServer::Mismatch::What::none) {
    return make_error(
        ErrorCode::incompatible,
        "the store has cubins, not PTX, and the entry cannot be compiled again here: {} has "
        "changed or is missing; use 'nvcc -ptx' on the files",
        mismatch.path);
  }
  CompileRequest request;
  CUKILN_TRY(request.toolchain, compiler.toolchain());
  request.sources = {{fields.sources.front().path, text}};
  request.options = to_ptx(fields.options, fields.target);
  request.target = fields.target;
  const CompileJob job{{request, entry.labels.name}, FileSource(files), {}};
  CUKILN_TRY(const CompileOutcome outcome, loader_.impl_->compiler->compile(job));
  return std::string(outcome.result.cubin.image.view());
}

Result<ProgramResult> LoaderServices::compile_program(const ProgramSpec& spec,
                                                      NvrtcFailure& failure) {
  return guarded([&]() -> Result<ProgramResult> {
    KernelLoader::Impl& impl = *loader_.impl_;
    const EventDelivery delivery(impl.tiers.events(), impl.events);
    CUKILN_TRY(const Toolchain toolchain, impl.compiler->for_target(spec.target).toolchain());
    const auto compile = [&](FolderNames names) -> Result<ProgramResult> {
      const ProgramRequest program = make_program_request(spec, toolchain, names);
      const ModuleRequest& request = program.request;
      auto built = impl.builder->build(request, impl.builder->look_up(request), {}, nullptr,
                                       nullptr, &failure);
      if (!built) {
        failure.log = program.with_real_folders(std::move(failure.log));
        return std::move(built).error();
      }
      if (!built->not_stored.empty() && !built->store_refused) {
        return make_error(ErrorCode::incompatible, "{}: {}", request.name, built->not_stored);
      }
      Cubin& cubin = built->entry.cubin;
      cubin.log = program.with_real_folders(std::move(cubin.log));
      return ProgramResult{std::move(cubin), built->entry.key, built->outcome,
                           std::move(built->reason), built->entry.compile_us};
    };
    if (may_hide_folders(spec)) {
      auto hidden = compile(FolderNames::hidden);
      if (!hidden || !shows_folders(hidden->cubin.image)) {
        return hidden;
      }
    }
    return compile(FolderNames::real);
  });
}

}  // namespace cukiln
