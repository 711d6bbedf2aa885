// SPDX-License-Identifier: Apache-2.0
#include "core/loader/loaded_modules.hpp"

#include <sys/eventfd.h>

#include <algorithm>

#include "core/base/fork_gate.hpp"
#include "core/base/result.hpp"
#include "core/key/variables.hpp"

namespace cukiln {

namespace {

/// Returns the requested kernels in the order of the request, then the others. Ids follow it.
std::vector<LoadedModule::KernelName> in_order(const std::vector<KernelInfo>& kernels,
                                               const std::vector<std::string>& asked) {
  const auto rank = [&](const KernelInfo& kernel) {
    return std::find(asked.begin(), asked.end(), kernel.name) - asked.begin();
  };
  std::vector<KernelInfo> sorted = kernels_among(kernels);
  std::stable_sort(sorted.begin(), sorted.end(),
                   [&](const KernelInfo& a, const KernelInfo& b) { return rank(a) < rank(b); });
  std::vector<LoadedModule::KernelName> names;
  for (const KernelInfo& kernel : sorted) {
    names.push_back({kernel.name, kernel.lowered});
  }
  return names;
}

std::vector<LoadedModule::VariableName> variable_names(const std::vector<KernelInfo>& symbols) {
  std::vector<LoadedModule::VariableName> names;
  for (const VariableInfo& variable : variables_among(symbols)) {
    names.push_back({variable.name, variable.lowered});
  }
  return names;
}

}  // namespace

Result<std::shared_ptr<LoadedModule>> load_image(const ModuleRequest& request,
                                                 const StoreEntry& entry,
                                                 std::shared_ptr<const DriverApi> api,
                                                 std::shared_ptr<const DeviceContexts> contexts,
                                                 Stream capture_guard) {
  const std::vector<KernelInfo>& symbols = entry.cubin.kernels;
  CUKILN_TRY(auto module, LoadedModule::load(std::move(api), entry.cubin.image,
                                             in_order(symbols, request.kernel_names),
                                             std::move(contexts), capture_guard));
  module->set_variables(variable_names(symbols));
  return module;
}

std::shared_ptr<const ModuleSpec> spec_to_reload(const ModuleRequest& request) {
  const auto is_file = [](const Source& source) { return !text_of(source); };
  if (request.spec == nullptr || !request.spec->headers.empty() ||
      !request.spec->named_headers.empty() ||
      !std::all_of(request.spec->sources.begin(), request.spec->sources.end(), is_file)) {
    return nullptr;
  }
  auto spec = std::make_shared<ModuleSpec>(*request.spec);
  spec->name = request.name;
  spec->targets = {request.request.target};
  spec->working_folder = working_folder_of(*spec);
  for (std::size_t i = 0; i < spec->sources.size(); ++i) {
    spec->sources[i] = SourceFile{request.source_files[i].path};
  }
  for (std::vector<std::string>* const paths : {&spec->include, &spec->objects}) {
    for (std::string& path : *paths) {
      path = absolute_path(path);
    }
  }
  return spec;
}

LoadedModules::ByKey::iterator LoadedModules::at(std::uint64_t id) {
  return std::find_if(by_key_.begin(), by_key_.end(),
                      [&](const auto& one) { return one.second.id == id; });
}

std::shared_ptr<LoadedModule> LoadedModules::find(const CacheKey& key) {
  const ForkSafeLock lock(mutex_);
  const auto known = by_key_.find(key);
  return known != by_key_.end() ? known->second.module : nullptr;
}

std::shared_ptr<LoadedModule> LoadedModules::add(const CacheKey& key,
                                                 std::shared_ptr<LoadedModule> module,
                                                 std::shared_ptr<const ModuleSpec> spec) {
  const ForkSafeLock lock(mutex_);
  if (const auto known = by_key_.find(key); known != by_key_.end()) {
    return known->second.module;
  }
  if (wake_ >= 0 && spec != nullptr) {
    ::eventfd_write(wake_, 1);
  }
  std::erase_if(images_, [](const Image& one) { return one.module.expired(); });
  images_.push_back({key, module, false});
  return by_key_.emplace(key, Loaded{++last_id_, key, key, std::move(module), std::move(spec), {}})
      ->second.module;
}

std::vector<LoadedModules::Loaded> LoadedModules::remove(const CacheKey& key) {
  std::vector<Loaded> removed;
  const ForkSafeLock lock(mutex_);
  for (auto one = by_key_.begin(); one != by_key_.end();) {
    if (one->second.key == key || one->second.first_key == key) {
      removed.push_back(std::move(one->second));
      one = by_key_.erase(one);
    } else {
      ++one;
    }
  }
  return removed;
}

std::vector<LoadedModules::Watched> LoadedModules::watched() {
  std::vector<Watched> all;
  const ForkSafeLock lock(mutex_);
  for (const auto& [key, loaded] : by_key_) {
    if (loaded.spec != nullptr) {
      all.push_back({loaded.id, loaded.key, loaded.spec});
    }
  }
  return all;
}

std::shared_ptr<LoadedModule> LoadedModules::find(std::uint64_t id) {
  const ForkSafeLock lock(mutex_);
  const auto known = at(id);
  return known != by_key_.end() ? known->second.module : nullptr;
}

std::shared_ptr<LoadedModule> LoadedModules::image(const CacheKey& key,
                                                   const LoadedModule& module) {
  const auto& wanted = module.devices()->entries();
  const ForkSafeLock lock(mutex_);
  for (const Image& one : images_) {
    if (auto loaded = one.key == key ? one.module.lock() : nullptr) {
      const auto& devices = loaded->devices()->entries();
      if (std::equal(devices.begin(), devices.end(), wanted.begin(), wanted.end(),
                     [](const auto& a, const auto& b) { return a.context == b.context; })) {
        return loaded;
      }
    }
  }
  return nullptr;
}

std::size_t LoadedModules::versions() {
  const ForkSafeLock lock(mutex_);
  return static_cast<std::size_t>(
      std::count_if(images_.begin(), images_.end(),
                    [](const Image& one) { return one.is_version && !one.module.expired(); }));
}

Result<void> LoadedModules::exchange(std::uint64_t id, const CacheKey& key,
                                     const std::shared_ptr<LoadedModule>& next) {
  const bool is_new = image(key, *next) == nullptr;
  std::shared_ptr<LoadedModule> module;
  {
    const ForkSafeLock lock(mutex_);
    const auto known = at(id);
    if (known == by_key_.end()) {
      return {};
    }
    module = known->second.module;
    known->second.versions.reserve(known->second.versions.size() + 1);  // below nothing may fail
    if (is_new) {
      images_.push_back({key, next, true});
    }
  }
  CUKILN_CHECK(module->exchange(*next));  // it calls the driver: without the lock
  const bool has_all = module->kernels().size() == next->kernels().size();
  const ForkSafeLock lock(mutex_);
  if (const auto known = at(id); known != by_key_.end()) {
    auto& versions = known->second.versions;
    if (next != module && std::find(versions.begin(), versions.end(), next) == versions.end()) {
      versions.push_back(next);
    }
    known->second.key = key;
    auto node = by_key_.extract(known);
    node.key() = has_all ? key : CacheKey{};
    by_key_.insert(std::move(node));
  }
  return {};
}

void LoadedModules::set_wake(int descriptor) {
  const ForkSafeLock lock(mutex_);
  wake_ = descriptor;
}

}  // namespace cukiln
