// SPDX-License-Identifier: Apache-2.0
#include "cli/ptx.hpp"

#include <filesystem>
#include <vector>

#include "cli/shipped.hpp"
#include "core/base/result.hpp"
#include "core/key/compile_request.hpp"
#include "core/loader/loader_services.hpp"

namespace cukiln::cli {

namespace {

/// Returns the headers of the shipped kernels that have this file name.
std::vector<LoaderServices::MemoryHeader> shipped_headers(const std::string& source_path) {
  const std::string name = std::filesystem::path(source_path).filename().string();
  std::vector<LoaderServices::MemoryHeader> headers;
  const Manifest shipped = shipped_manifest().value_or(Manifest());
  for (const ModuleSpec& module : shipped.modules()) {
    const std::string& path = name_of(module.sources.front());
    if (std::filesystem::path(path).filename() == name) {
      for (const Source& header : module.headers) {
        headers.push_back({name_of(header), SharedBytes{std::string(*text_of(header))}});
      }
    }
  }
  return headers;
}

}  // namespace

Result<std::string> recompile_to_ptx(KernelLoader& loader, const StoreEntry& entry,
                                     const std::string& source_text) {
  CUKILN_TRY(const RequestFields fields, RequestFields::parse(entry.request_canonical));
  return LoaderServices(loader).compile_to_ptx(entry, source_text,
                                               fields.sources.size() == 1
                                                   ? shipped_headers(fields.sources.front().path)
                                                   : std::vector<LoaderServices::MemoryHeader>());
}

}  // namespace cukiln::cli
