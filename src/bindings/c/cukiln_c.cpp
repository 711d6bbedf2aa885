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

using c::check_pointers;
using c::null_argument;
using c::read_struct;
using c::to_c;
using c::to_code;

static_assert(static_cast<int>(CUKILN_INTERNAL) == static_cast<int>(ErrorCode::internal));
static_assert(static_cast<int>(CUKILN_MISSING) == static_cast<int>(Outcome::missing));
static_assert(static_cast<int>(CUKILN_EVENT_RELOAD) == static_cast<int>(EventKind::reload));
static_assert(static_cast<int>(CUKILN_LOG_DEBUG) == static_cast<int>(LogLevel::debug));

Result<void> create(const cukiln_options* from, cukiln_loader*& out) {
  cukiln_options options{};
  options.from_environment = 1;
  if (from != nullptr) {
    CUKILN_TRY(options, read_struct(*from, "cukiln_options"));
  }
  Settings settings;
  if (options.from_environment != 0) {
    CUKILN_TRY(settings, Settings::load());
  }
  CUKILN_CHECK(c::apply_options(options, settings));
  CUKILN_TRY(Store store, Store::open(settings.store));
  CUKILN_TRY(KernelLoader loader, KernelLoader::create(store, settings.loader));
  out = new cukiln_loader{std::move(store), std::move(loader)};
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
  Manifest selected;
  for (const ModuleSpec& module : manifest.modules()) {
    if (std::find(names.begin(), names.end(), module.name) != names.end()) {
      selected.add(module);
    }
  }
  for (const std::string& name : names) {
    const auto& all = selected.modules();
    if (std::none_of(all.begin(), all.end(), [&](const ModuleSpec& m) { return m.name == name; })) {
      return no_module(manifest, name);
    }
  }
  return selected;
}

/// Reads the options of a preload. Reduces `manifest` to the modules that they name, and replaces
/// its targets if they name some.
Result<void> read_preload_options(const cukiln_preload_options& from, Manifest& manifest,
                                  PreloadOptions& options, Progress& progress) {
  CUKILN_TRY(const auto complete, read_struct(from, "cukiln_preload_options"));
  CUKILN_CHECK(c::apply_options(complete, options));
  CUKILN_TRY(const auto names, c::read_strings(complete.modules, complete.module_count, "modules"));
  if (!names.empty()) {
    CUKILN_TRY(manifest, select_modules(manifest, names));
  }
  CUKILN_TRY(const auto targets, c::read_targets(complete.targets, complete.target_count));
  if (!targets.empty()) {
    manifest = std::move(manifest).for_targets(targets);
  }
  if (complete.progress != nullptr) {
    progress = [call = complete.progress, user = complete.progress_user](
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
                         const cukiln_preload_options* from, cukiln_preload_report* out) {
  PreloadOptions options;
  Progress progress;
  if (from != nullptr) {
    CUKILN_CHECK(read_preload_options(*from, manifest, options, progress));
  }
  CUKILN_TRY(const PreloadReport preload_report,
             handle.loader.preload(manifest, options, progress));
  if (out == nullptr) {
    return {};
  }
  cukiln_preload_report view{};
  // schema: preload_report to C. Written by src/schema/generate.py
  view.hits = preload_report.hits;
  view.compiled = preload_report.compiled;
  view.failed = preload_report.failed;
  view.milliseconds = preload_report.elapsed.count();
  view.find_milliseconds = preload_report.phases.find.count();
  view.hash_milliseconds = preload_report.phases.hash.count();
  view.look_up_milliseconds = preload_report.phases.look_up.count();
  view.fetch_milliseconds = preload_report.phases.fetch.count();
  view.compile_milliseconds = preload_report.phases.compile.count();
  view.load_milliseconds = preload_report.phases.load.count();
  // end of schema
  return c::write_struct(view, *out, "cukiln_preload_report");
}

}  // namespace cukiln::extension

extern "C" {

const char* cukiln_version(void) { return version(); }

cukiln_code cukiln_loader_create(const cukiln_options* options, cukiln_loader** loader) {
  return to_code([&]() -> Result<void> {
    CUKILN_CHECK(check_pointers({{"loader", loader}}));
    *loader = nullptr;
    return create(options, *loader);
  });
}

void cukiln_loader_destroy(cukiln_loader* loader) { delete loader; }

cukiln_code cukiln_loader_preload(cukiln_loader* loader, const char* manifest,
                                  const cukiln_preload_options* options,
                                  cukiln_preload_report* report) {
  return to_code([&]() -> Result<void> {
    CUKILN_CHECK(check_pointers({{"loader", loader}}));
    if (manifest == nullptr) {
      return Error(
          ErrorCode::invalid_argument,
          "manifest is NULL; expected the path of a manifest; for the kernels that come with "
          "cukiln call cukiln_nvfp4_preload");
    }
    CUKILN_TRY(Manifest modules, Manifest::load(manifest));
    return extension::preload(*loader, std::move(modules), options, report);
  });
}

cukiln_code cukiln_loader_preload_modules(cukiln_loader* loader,
                                          const cukiln_module* const* modules, size_t module_count,
                                          const cukiln_preload_options* options,
                                          cukiln_preload_report* report) {
  return to_code([&]() -> Result<void> {
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
  return to_code([&]() -> Result<void> {
    CUKILN_CHECK(check_pointers({{"loader", loader}, {"out", out}}));
    *out = nullptr;
    CUKILN_TRY(const ModuleSpec spec, c::read_module(module));
    const auto token = cancel != nullptr ? std::optional(cancel->token) : std::nullopt;
    CUKILN_TRY(const Kernel ready, loader->loader.get(spec, c::text_or_empty(kernel), token));
    *out = to_c(ready);
    return {};
  });
}

cukiln_code cukiln_loader_get_global(cukiln_loader* loader, const cukiln_module* module,
                                     const char* name, int device, uint64_t* address,
                                     size_t* size_bytes) {
  return to_code([&]() -> Result<void> {
    CUKILN_CHECK(check_pointers({{"loader", loader}, {"name", name}, {"address", address}}));
    *address = 0;
    if (size_bytes != nullptr) *size_bytes = 0;
    CUKILN_TRY(const ModuleSpec spec, c::read_module(module));
    CUKILN_TRY(const Module loaded, loader->loader.module(spec));
    CUKILN_TRY(const auto global, loaded.global(name, device));
    *address = global.address;
    if (size_bytes != nullptr) *size_bytes = global.size_bytes;
    return {};
  });
}

cukiln_code cukiln_loader_get_cuda_module(cukiln_loader* loader, const char* name,
                                          const char* const* sources, size_t source_count,
                                          const char* const* flags, size_t flag_count) {
  return to_code([&]() -> Result<void> {
    CUKILN_CHECK(check_pointers({{"loader", loader}, {"name", name}}));
    CUKILN_TRY(const auto source_list, c::read_strings(sources, source_count, "sources"));
    CUKILN_TRY(const auto flag_list, c::read_strings(flags, flag_count, "flags"));
    return loader->loader.get_cuda_module(name, source_list, flag_list);
  });
}

cukiln_code cukiln_loader_watch(cukiln_loader* loader, const cukiln_watch_options* from,
                                cukiln_watch** watch) {
  return to_code([&]() -> Result<void> {
    CUKILN_CHECK(check_pointers({{"loader", loader}, {"watch", watch}}));
    *watch = nullptr;
    WatchOptions options;
    if (from != nullptr) {
      CUKILN_TRY(const auto complete, read_struct(*from, "cukiln_watch_options"));
      CUKILN_CHECK(c::apply_options(complete, options));
    }
    CUKILN_TRY(Watch started, loader->loader.watch(options));
    *watch = new cukiln_watch{std::move(started)};
    return {};
  });
}

void cukiln_watch_destroy(cukiln_watch* watch) { delete watch; }

void cukiln_loader_seal(cukiln_loader* loader, cukiln_seal_policy policy) {
  if (loader != nullptr) {
    loader->loader.seal(policy == CUKILN_SEAL_WARN ? SealPolicy::warn : SealPolicy::fail);
  }
}

int cukiln_loader_sealed(const cukiln_loader* loader) {
  return loader != nullptr && loader->loader.sealed() ? 1 : 0;
}

cukiln_code cukiln_loader_unload(cukiln_loader* loader, const char* key) {
  return to_code([&]() -> Result<void> {
    CUKILN_CHECK(check_pointers({{"loader", loader}}));
    CUKILN_TRY(const CacheKey digest, CacheKey::parse(c::text_or_empty(key)));
    return loader->loader.unload(digest);
  });
}

cukiln_cancel_token* cukiln_cancel_token_create(void) {
  cukiln_cancel_token* token = nullptr;
  to_code([&]() -> Result<void> {
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
