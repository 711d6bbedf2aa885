// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

#include "core/loader/loader_impl.hpp"

namespace cukiln {

/// True if a compile failed because NVRTC was replaced since the request was made for it.
bool is_of_replaced_nvrtc(Compiler& compiler, const ModuleRequest& request, const Error& error);

/// As KernelLoader::Impl::get_or_compile, for the request of a spec. If NVRTC was replaced
/// meanwhile, makes `request` again for the new one, once.
Result<Built> get_or_compile(KernelLoader::Impl& loader, const ModuleSpec& spec,
                             ModuleRequest& request, Builder::Found found, ModuleReport& report,
                             const std::atomic<bool>* cancelled, PhaseMeter* meter = nullptr);

}  // namespace cukiln
