// SPDX-License-Identifier: Apache-2.0
#include "loader/loader_services.hpp"

#include <utility>

#include "base/hasher.hpp"
#include "base/result.hpp"
#include "loader/loader_impl.hpp"

namespace cukiln {

namespace {

constexpr std::string_view kArchitecture = "--gpu-architecture=";

/// The recorded options, for the virtual architecture of the target instead of the real one.
CompileOptions to_ptx(CompileOptions options, Target target) {
  for (std::string& argument : options.arguments) {
    if (argument.starts_with(kArchitecture)) {
      const std::string name = target.name();  // sm_100a
      argument = std::string(kArchitecture) + "compute" + name.substr(name.find('_'));
    }
  }
  return options;
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
  CUKILN_TRY(auto sought, loader_.impl_->seek(module, target, Builder::Purpose::inspect));
  const auto& entry = sought.found.entry;
  return Resolved{std::move(sought.request.name), entry ? std::optional(entry->key) : std::nullopt};
}

Result<std::string> LoaderServices::compile_to_ptx(const StoreEntry& entry,
                                                   const std::string& source_text,
                                                   const std::vector<MemoryHeader>& headers) {
  CUKILN_TRY(const RequestFields fields, RequestFields::parse(entry.request_canonical));
  if (fields.sources.size() != 1 || hash_of(source_text) != fields.sources.front().digest) {
    return make_error(
        ErrorCode::incompatible,
        "this entry was made from {} sources, and cubins are kept, not PTX; 'nvcc -ptx' "
        "gives it from the files",
        fields.sources.size());
  }
  // CUDA's headers from where they are now, and the given ones. Folders of the user's are not
  // recorded, on purpose: rows hold no real path.
  Compiler& compiler = loader_.impl_->compiler->for_target(fields.target);
  const SharedBytes text{std::string(source_text)};
  FileServer files({{kSourceRoot, {}}, {kToolkitRoot, compiler.toolkit_folders()}},
                   &loader_.impl_->stat_cache);
  files.add_memory_file(fields.sources.front().path, text);
  for (const MemoryHeader& header : headers) {
    files.add_memory_file(std::string(kSourceRoot) + "/" + header.path, header.text);
  }
  const FileServer::Mismatch mismatch = files.check(entry.dependencies);
  if (mismatch.what != FileServer::Mismatch::What::none) {
    return make_error(
        ErrorCode::incompatible,
        "cubins are kept, not PTX, and it cannot be compiled again here: {} is not what it "
        "was then, or not at hand; 'nvcc -ptx' gives it from the files",
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

}  // namespace cukiln
