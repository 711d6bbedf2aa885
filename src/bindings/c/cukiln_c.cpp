// SPDX-License-Identifier: Apache-2.0
#include "bindings/c/convert.hpp"
#include "bindings/c/handles.hpp"
#include "bindings/c/last_error.hpp"

#include <new>
#include <optional>

#include <cukiln/cukiln.h>
#include <cukiln/cukiln.hpp>
#include <cukiln/extension.hpp>

using namespace cukiln;  // NOLINT: what is defined here is in no namespace

namespace {

using c::guarded;
using c::null_argument;
using c::read_struct;
using c::to_c;

static_assert(static_cast<int>(CUKILN_INTERNAL) == static_cast<int>(ErrorCode::internal));
static_assert(static_cast<int>(CUKILN_MISSING) == static_cast<int>(Outcome::missing));
static_assert(static_cast<int>(CUKILN_EVENT_SEALED) == static_cast<int>(EventKind::sealed));
static_assert(static_cast<int>(CUKILN_LOG_DEBUG) == static_cast<int>(LogLevel::debug));

Result<void> create(const cukiln_options* given, cukiln_loader*& out) {
  cukiln_options options{};
  options.from_environment = 1;
  if (given != nullptr) {
    auto known = read_struct(*given, "cukiln_options");
    if (!known) {
      return std::move(known).error();
    }
    options = *known;
  }
  Settings settings;
  if (options.from_environment != 0) {
    auto resolved = Settings::load();
    if (!resolved) {
      return std::move(resolved).error();
    }
    settings = *std::move(resolved);
  }
  if (auto applied = c::apply_options(options, settings); !applied) {
    return applied;
  }
  auto store = Store::open(settings.store);
  if (!store) {
    return std::move(store).error();
  }
  auto loader = KernelLoader::create(*store, settings.loader);
  if (!loader) {
    return std::move(loader).error();
  }
  out = new cukiln_loader{*std::move(store), *std::move(loader)};
  return {};
}

Error no_module(const Manifest& manifest, const std::string& name) {
  constexpr std::size_t kMaxNames = 50;
  std::string message = "the manifest has no module \"" + name + "\"; it has";
  std::size_t count = 0;
  for (const ModuleSpec& module : manifest.modules()) {
    if (++count <= kMaxNames) {
      message += (count == 1 ? " \"" : ", \"") + module.name + "\"";
    }
  }
  message += count == 0 ? " none" : count > kMaxNames ? ", and more" : "";
  return Error(ErrorCode::not_found, std::move(message));
}

/// The modules of these names, in the manifest's order; a name may have several.
Result<Manifest> select_modules(const Manifest& manifest, const std::vector<std::string>& names) {
  Manifest chosen;
  for (const ModuleSpec& module : manifest.modules()) {
    if (std::find(names.begin(), names.end(), module.name) != names.end()) {
      chosen.add(module);
    }
  }
  for (const std::string& name : names) {
    const auto& all = chosen.modules();
    if (std::none_of(all.begin(), all.end(), [&](const ModuleSpec& m) { return m.name == name; })) {
      return no_module(manifest, name);
    }
  }
  return chosen;
}

/// Reads the options of a preload. Reduces `manifest` to the modules that they name, and replaces
/// its targets if they name some.
Result<void> read_preload_options(const cukiln_preload_options& given, Manifest& manifest,
                                  PreloadOptions& options, Progress& progress) {
  const auto known = read_struct(given, "cukiln_preload_options");
  if (!known) {
    return known.error();
  }
  if (auto ok = c::apply_options(*known, options); !ok) {
    return ok;
  }
  auto names = c::read_strings(known->modules, known->module_count, "modules");
  if (!names) {
    return std::move(names).error();
  }
  if (!names->empty()) {
    auto chosen = select_modules(manifest, *names);
    if (!chosen) {
      return std::move(chosen).error();
    }
    manifest = *std::move(chosen);
  }
  auto targets = c::read_targets(known->targets, known->target_count);
  if (!targets) {
    return std::move(targets).error();
  }
  if (!targets->empty()) {
    manifest = std::move(manifest).for_targets(*targets);
  }
  if (known->progress != nullptr) {
    progress = [call = known->progress, user = known->progress_user](
                   std::size_t done, std::size_t total, const ModuleReport& last) {
      std::optional<c::ReportView> view;
      try {
        view.emplace(last);
      } catch (const std::bad_alloc&) {
        return;  // this call is left out
      }
      call(user, done, total, view->get());
    };
  }
  return {};
}

}  // namespace

namespace cukiln::extension {

KernelLoader& v0::loader_of(cukiln_loader& handle) noexcept { return handle.loader; }
Store& v0::store_of(cukiln_loader& handle) noexcept { return handle.store; }

Result<void> v0::preload(cukiln_loader& handle, Manifest manifest,
                         const cukiln_preload_options* given, cukiln_preload_report* out) {
  PreloadOptions options;
  Progress progress;
  if (given != nullptr) {
    if (auto read = read_preload_options(*given, manifest, options, progress); !read) {
      return read;
    }
  }
  auto report = handle.loader.preload(manifest, options, progress);
  if (!report) {
    return std::move(report).error();
  }
  if (out == nullptr) {
    return {};
  }
  cukiln_preload_report value{};
  value.hits = report->hits;
  value.compiled = report->compiled;
  value.failed = report->failed;
  value.milliseconds = report->elapsed.count();
  const PreloadPhases& phases = report->phases;
  value.find_milliseconds = phases.find.count();
  value.hash_milliseconds = phases.hash.count();
  value.look_up_milliseconds = phases.look_up.count();
  value.fetch_milliseconds = phases.fetch.count();
  value.compile_milliseconds = phases.compile.count();
  value.load_milliseconds = phases.load.count();
  return c::write_struct(value, *out, "cukiln_preload_report");
}

}  // namespace cukiln::extension

extern "C" {

const char* cukiln_version(void) { return version(); }

cukiln_code cukiln_loader_create(const cukiln_options* options, cukiln_loader** loader) {
  return guarded([&]() -> Result<void> {
    if (loader == nullptr) {
      return null_argument("loader");
    }
    *loader = nullptr;
    return create(options, *loader);
  });
}

void cukiln_loader_destroy(cukiln_loader* loader) { delete loader; }

cukiln_code cukiln_loader_preload(cukiln_loader* loader, const char* manifest,
                                  const cukiln_preload_options* options,
                                  cukiln_preload_report* report) {
  return guarded([&]() -> Result<void> {
    if (loader == nullptr) {
      return null_argument("loader");
    }
    if (manifest == nullptr) {
      return Error(ErrorCode::invalid_argument,
                   "manifest is NULL; a manifest's path is expected. The kernels that come with "
                   "cukiln are libcukiln_nvfp4's: call cukiln_nvfp4_preload");
    }
    auto loaded = Manifest::load(manifest);
    if (!loaded) {
      return std::move(loaded).error();
    }
    return extension::preload(*loader, *std::move(loaded), options, report);
  });
}

cukiln_code cukiln_loader_preload_modules(cukiln_loader* loader,
                                          const cukiln_module* const* modules, size_t module_count,
                                          const cukiln_preload_options* options,
                                          cukiln_preload_report* report) {
  return guarded([&]() -> Result<void> {
    if (loader == nullptr || (modules == nullptr && module_count != 0)) {
      return null_argument(loader == nullptr ? "loader" : "modules");
    }
    Manifest manifest;
    for (size_t i = 0; i < module_count; ++i) {
      auto spec = c::read_module(modules[i]);
      if (!spec) {
        return std::move(spec).error().with_context("modules[" + std::to_string(i) + "]");
      }
      manifest.add(*std::move(spec));
    }
    return extension::preload(*loader, std::move(manifest), options, report);
  });
}

cukiln_code cukiln_loader_get(cukiln_loader* loader, const cukiln_module* module,
                              const char* kernel, const cukiln_cancel_token* cancel,
                              cukiln_kernel* out) {
  return guarded([&]() -> Result<void> {
    if (loader == nullptr || out == nullptr) {
      return null_argument(loader == nullptr ? "loader" : "out");
    }
    *out = nullptr;
    auto spec = c::read_module(module);
    if (!spec) {
      return std::move(spec).error();
    }
    const auto token = cancel != nullptr ? std::optional(cancel->token) : std::nullopt;
    auto found = loader->loader.get(*spec, c::text_or_empty(kernel), token);
    if (!found) {
      return std::move(found).error();
    }
    *out = to_c(*found);
    return {};
  });
}

cukiln_code cukiln_loader_get_global(cukiln_loader* loader, const cukiln_module* module,
                                     const char* name, int device, uint64_t* address,
                                     size_t* size_bytes) {
  return guarded([&]() -> Result<void> {
    if (loader == nullptr || name == nullptr || address == nullptr) {
      return null_argument(loader == nullptr ? "loader" : name == nullptr ? "name" : "address");
    }
    *address = 0;
    if (size_bytes != nullptr) *size_bytes = 0;
    auto spec = c::read_module(module);
    if (!spec) {
      return std::move(spec).error();
    }
    auto loaded = loader->loader.module(*spec);
    if (!loaded) {
      return std::move(loaded).error();
    }
    auto global = loaded->global(name, device);
    if (!global) {
      return std::move(global).error();
    }
    *address = global->address;
    if (size_bytes != nullptr) *size_bytes = global->size_bytes;
    return {};
  });
}

cukiln_code cukiln_loader_get_cuda_module(cukiln_loader* loader, const char* name,
                                          const char* const* sources, size_t source_count,
                                          const char* const* flags, size_t flag_count) {
  return guarded([&]() -> Result<void> {
    if (loader == nullptr || name == nullptr) {
      return null_argument(loader == nullptr ? "loader" : "name");
    }
    auto source_list = c::read_strings(sources, source_count, "sources");
    if (!source_list) {
      return std::move(source_list).error();
    }
    auto flag_list = c::read_strings(flags, flag_count, "flags");
    if (!flag_list) {
      return std::move(flag_list).error();
    }
    return loader->loader.get_cuda_module(name, *source_list, *flag_list);
  });
}

void cukiln_loader_seal(cukiln_loader* loader, cukiln_seal_policy policy) {
  if (loader != nullptr) {
    loader->loader.seal(policy == CUKILN_SEAL_WARN ? SealPolicy::warn : SealPolicy::fail);
  }
}

int cukiln_loader_sealed(const cukiln_loader* loader) {
  return loader != nullptr && loader->loader.sealed() ? 1 : 0;
}

cukiln_code cukiln_loader_unload(cukiln_loader* loader, const char* key) {
  return guarded([&]() -> Result<void> {
    if (loader == nullptr) {
      return null_argument("loader");
    }
    const auto digest = CacheKey::parse(c::text_or_empty(key));
    if (!digest) {
      return digest.error();
    }
    return loader->loader.unload(*digest);
  });
}

cukiln_cancel_token* cukiln_cancel_token_create(void) {
  cukiln_cancel_token* token = nullptr;
  guarded([&]() -> Result<void> {
    token = new cukiln_cancel_token;
    return {};
  });
  return token;
}

void cukiln_cancel_token_cancel(cukiln_cancel_token* token) {
  if (token != nullptr) {
    token->token.cancel();
  }
}

void cukiln_cancel_token_destroy(cukiln_cancel_token* token) { delete token; }

void cukiln_loader_cancel(cukiln_loader* loader) {
  if (loader != nullptr) {
    loader->loader.cancel();
  }
}

void cukiln_loader_resume(cukiln_loader* loader) {
  if (loader != nullptr) {
    loader->loader.resume();
  }
}

}  // extern "C"
