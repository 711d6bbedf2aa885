// SPDX-License-Identifier: Apache-2.0
#include "core/loader/replaced_nvrtc.hpp"

#include <utility>

#include "core/base/result.hpp"

namespace cukiln {

bool is_of_replaced_nvrtc(Compiler& compiler, const ModuleRequest& request, const Error& error) {
  if (error.code() != ErrorCode::incompatible) {
    return false;
  }
  const auto now = compiler.for_target(request.request.target).toolchain();
  return now && now->content != request.request.toolchain.content;
}

Result<Built> get_or_compile(KernelLoader::Impl& loader, const ModuleSpec& spec,
                             ModuleRequest& request, Builder::Found found, ModuleReport& report,
                             const std::atomic<bool>* cancelled, PhaseMeter* meter) {
  auto built = loader.get_or_compile(request, std::move(found), report, cancelled, meter);
  if (built || !is_of_replaced_nvrtc(*loader.compiler, request, built.error())) {
    return built;
  }
  CUKILN_TRY(KernelLoader::Impl::Resolved again,
             loader.resolve(spec, request.request.target, Builder::Purpose::use, meter));
  request = std::move(again.request);
  return loader.get_or_compile(request, std::move(again.found), report, cancelled, meter);
}

}  // namespace cukiln
