// SPDX-License-Identifier: Apache-2.0
#include "cli/ptx.hpp"

#include <filesystem>

#include "base/hasher.hpp"
#include "base/result.hpp"
#include "cli/shipped.hpp"
#include "loader/loader_impl.hpp"

namespace cukiln::cli {

namespace {

constexpr std::string_view kArchitecture = "--gpu-architecture=";

/// The roots that can be rebuilt here: CUDA's headers from where they are now, the shipped kernels'
/// from the library. Folders of the user's are not recorded, on purpose: rows hold no real path.
FileServer make_files(KernelLoader& loader, Target target, const RequestFields::Source& source,
                      const SharedBytes& text) {
  Compiler& compiler = loader.impl().compiler->for_target(target);
  FileServer files({{kSourceRoot, {}}, {kToolkitRoot, compiler.toolkit_folders()}},
                   &loader.impl().stat_cache);
  files.add_memory_file(source.path, text);
  const std::string name = std::filesystem::path(source.path).filename().string();
  const Manifest shipped = shipped_manifest().value_or(Manifest());
  for (const ModuleSpec& module : shipped.modules()) {
    const std::string& path = module.sources.front().path;
    if (std::filesystem::path(path).filename() == name) {
      for (const Source& header : module.headers) {
        files.add_memory_file(std::string(kSourceRoot) + "/" + header.path,
                              SharedBytes::borrowed(header.content()));
      }
    }
  }
  return files;
}

}  // namespace

Result<std::string> recompile_to_ptx(KernelLoader& loader, const StoreEntry& entry,
                                     const std::string& source_text) {
  CUKILN_TRY(const RequestFields fields, RequestFields::parse(entry.request_canonical));
  if (fields.sources.size() != 1 || hash_of(source_text) != fields.sources.front().digest) {
    return make_error(
        ErrorCode::incompatible,
        "this entry was made from {} sources, and cubins are kept, not PTX; 'nvcc -ptx' "
        "gives it from the files",
        fields.sources.size());
  }
  const SharedBytes text{std::string(source_text)};
  FileServer files = make_files(loader, fields.target, fields.sources.front(), text);
  const FileServer::Mismatch mismatch = files.check(entry.dependencies);
  if (mismatch.what != FileServer::Mismatch::What::none) {
    return make_error(
        ErrorCode::incompatible,
        "cubins are kept, not PTX, and it cannot be compiled again here: {} is not what it "
        "was then, or not at hand; 'nvcc -ptx' gives it from the files",
        mismatch.path);
  }
  CUKILN_TRY(const Toolchain toolchain,
             loader.impl().compiler->for_target(fields.target).toolchain());
  CompileRequest request;
  request.sources = {{fields.sources.front().path, text}};
  request.options = fields.options;
  for (std::string& argument : request.options.arguments) {
    if (argument.compare(0, kArchitecture.size(), kArchitecture) == 0) {
      const std::string name = fields.target.name();  // sm_100a
      argument = std::string(kArchitecture) + "compute" + name.substr(name.find('_'));
    }
  }
  request.target = fields.target;
  request.toolchain = toolchain;
  const CompileJob job{{request, entry.labels.name}, FileSource(files), {}};
  CUKILN_TRY(const CompileOutcome outcome, loader.impl().compiler->compile(job));
  return std::string(outcome.result.cubin.image.view());
}

}  // namespace cukiln::cli
