// SPDX-License-Identifier: Apache-2.0
#include "bindings/c/convert.hpp"

namespace cukiln::c {

namespace {

Result<std::vector<Source>> read_sources(const cukiln_source* list, std::size_t count,
                                         const char* what) {
  if (list == nullptr && count != 0) {
    return Error(ErrorCode::invalid_argument,
                 std::string(what) + " is NULL, but its count is " + std::to_string(count));
  }
  std::vector<Source> out;
  for (std::size_t i = 0; i < count; ++i) {
    const cukiln_source& source = list[i];
    if (source.path == nullptr) {
      return Error(ErrorCode::invalid_argument,
                   std::string(what) + "[" + std::to_string(i) + "].path is NULL");
    }
    out.push_back(source.text == nullptr
                      ? Source::file(source.path)
                      : Source::memory(source.path, std::string(source.text, source.text_bytes)));
  }
  return out;
}

void set(std::string& out, const char* value) {
  if (value != nullptr) {
    out = value;
  }
}

LogSink sink_of(cukiln_log_function log, void* user, LogLevel highest) {
  return [log, user, highest](LogLevel level, std::string_view message) {
    if (level > highest) {
      return;
    }
    try {
      log(user, static_cast<cukiln_log_level>(level), std::string(message).c_str());
    } catch (...) {  // no memory for a message: then there is none
    }
  };
}

EventSink sink_of(cukiln_event_function events, void* user) {
  return [events, user](const Event& event) {
    const std::string target = event.target == Target() ? std::string() : event.target.name();
    const std::string key = event.key == CacheKey() ? std::string() : event.key.hex();
    const cukiln_event view{static_cast<cukiln_event_kind>(event.kind),
                            event.module.c_str(),
                            target.c_str(),
                            key.c_str(),
                            event.reason.c_str(),
                            event.failed ? 1 : 0,
                            event.elapsed.count()};
    events(user, &view);
  };
}

Result<void> read_daemon_use(int given, DaemonUse& use) {
  switch (given) {
    case CUKILN_DAEMON_DEFAULT: return {};
    case CUKILN_DAEMON_AUTO: use = DaemonUse::automatic; return {};
    case CUKILN_DAEMON_OFF: use = DaemonUse::off; return {};
    case CUKILN_DAEMON_REQUIRE: use = DaemonUse::require; return {};
    default: break;
  }
  return Error(ErrorCode::invalid_argument,
               "daemon is " + std::to_string(given) + "; expected a cukiln_daemon_use, 0 to 3");
}

Result<void> read_link_mode(int given, LinkMode& mode) {
  switch (given) {
    case CUKILN_LINK_NONE: mode = LinkMode::none; return {};
    case CUKILN_LINK_RDC: mode = LinkMode::rdc; return {};
    case CUKILN_LINK_LTO: mode = LinkMode::lto; return {};
    default: break;
  }
  return Error(ErrorCode::invalid_argument,
               "link is " + std::to_string(given) + "; expected a cukiln_link_mode, 0 to 2");
}

}  // namespace

Result<std::vector<std::string>> read_strings(const char* const* list, std::size_t count,
                                              const char* what) {
  if (list == nullptr && count != 0) {
    return Error(ErrorCode::invalid_argument,
                 std::string(what) + " is NULL, but its count is " + std::to_string(count));
  }
  std::vector<std::string> out;
  for (std::size_t i = 0; i < count; ++i) {
    if (list[i] == nullptr) {
      return Error(ErrorCode::invalid_argument,
                   std::string(what) + "[" + std::to_string(i) + "] is NULL");
    }
    out.emplace_back(list[i]);
  }
  return out;
}

Result<std::vector<Target>> read_targets(const char* const* list, std::size_t count) {
  auto names = read_strings(list, count, "targets");
  if (!names) {
    return std::move(names).error();
  }
  std::vector<Target> out;
  for (const std::string& name : *names) {
    auto target = Target::parse(name);
    if (!target) {
      return std::move(target).error();
    }
    out.push_back(*target);
  }
  return out;
}

Result<ModuleSpec> read_module(const cukiln_module* module) {
  if (module == nullptr) {
    return Error(ErrorCode::invalid_argument, "the module is NULL; expected a cukiln_module");
  }
  auto given = read_struct(*module, "cukiln_module");
  if (!given) {
    return std::move(given).error();
  }
  ModuleSpec spec;
  set(spec.name, given->name);
  set(spec.working_folder, given->working_folder);
  spec.std_shims = given->no_std_shims == 0;
  const auto take = [](auto result, auto& out) -> Result<void> {
    if (!result) {
      return std::move(result).error();
    }
    out = *std::move(result);
    return {};
  };
  Result<void> ok =
      take(read_sources(given->sources, given->source_count, "sources"), spec.sources);
  if (ok) ok = take(read_sources(given->headers, given->header_count, "headers"), spec.headers);
  if (ok) {
    ok = take(read_sources(given->named_headers, given->named_header_count, "named_headers"),
              spec.named_headers);
  }
  if (ok) ok = read_link_mode(given->link, spec.link);
  if (ok) ok = take(read_strings(given->objects, given->object_count, "objects"), spec.objects);
  if (ok) ok = take(read_strings(given->include, given->include_count, "include"), spec.include);
  if (ok) ok = take(read_strings(given->flags, given->flag_count, "flags"), spec.flags);
  if (ok) ok = take(read_strings(given->names, given->name_count, "names"), spec.names);
  if (ok) ok = take(read_targets(given->targets, given->target_count), spec.targets);
  if (!ok) {
    return std::move(ok).error();
  }
  for (const Source& header : spec.headers) {
    if (!header.in_memory) {
      return Error(ErrorCode::invalid_argument,
                   "header " + header.path +
                       " has no text: headers given here are in memory; name "
                       "a header's folder in `include` instead");
    }
  }
  return spec;
}

Result<CacheKey> read_key(const char* hex) {
  const auto digest = CacheKey::from_hex(text_or_empty(hex));
  if (!digest) {
    return Error(ErrorCode::invalid_argument,
                 "invalid key \"" + std::string(text_or_empty(hex)) + "\": expected 64 hex digits");
  }
  return CacheKey{*digest};
}

Result<void> apply_options(const cukiln_options& options, Settings& base) {
  set(base.store.directory, options.store_directory);
  set(base.store.system_directory, options.system_directory);
  if (options.max_bytes != 0) base.store.max_bytes = options.max_bytes;
  if (options.memory_only != 0) base.store.memory_only = true;
  if (options.allow_network_file_system != 0) base.store.allow_network_file_system = true;
  if (auto daemon = read_daemon_use(options.daemon, base.store.daemon); !daemon) {
    return daemon;
  }
  set(base.store.daemon_socket, options.daemon_socket);
  auto revoked = read_strings(options.revoked_keys, options.revoked_key_count, "revoked_keys");
  if (!revoked) {
    return std::move(revoked).error();
  }
  if (!revoked->empty()) base.store.revoked_keys = *std::move(revoked);

  LoaderOptions& loader = base.loader;
  set(loader.nvrtc_library, options.nvrtc_library);
  set(loader.cuda_library, options.cuda_library);
  set(loader.worker, options.worker);
  set(loader.record, options.record);
  auto include = read_strings(options.include_path, options.include_path_count, "include_path");
  if (!include) {
    return std::move(include).error();
  }
  auto site_packages =
      read_strings(options.site_packages, options.site_packages_count, "site_packages");
  if (!site_packages) {
    return std::move(site_packages).error();
  }
  if (!include->empty()) loader.include_path = *std::move(include);
  if (!site_packages->empty()) loader.cuda_places.site_packages = *std::move(site_packages);
  set(loader.cuda_places.virtual_env, options.virtual_env);
  set(loader.cuda_places.conda_prefix, options.conda_prefix);
  set(loader.cuda_places.cuda_home, options.cuda_home);
  if (options.offline != 0) loader.offline = true;
  if (options.jobs != 0) loader.jobs = options.jobs;
  if (options.compile_timeout_ms != 0) {
    loader.compile_timeout = std::chrono::milliseconds(options.compile_timeout_ms);
  }
  if (options.compile_memory_bytes != 0) {
    loader.compile_memory_bytes =
        options.compile_memory_bytes == UINT64_MAX ? 0 : options.compile_memory_bytes;
  }
  if (options.memory_bytes != 0) loader.memory_bytes = options.memory_bytes;
  if (options.events != nullptr) {
    loader.events = sink_of(options.events, options.events_user);
    base.store.events = loader.events;
  }
  if (options.log != nullptr) {
    const LogLevel highest = options.from_environment != 0 ? base.log_level : LogLevel::debug;
    loader.log = sink_of(options.log, options.log_user, highest);
    base.store.log = loader.log;
    for (const std::string& warning : base.warnings) {
      loader.log(LogLevel::warn, warning);
    }
  }
  return {};
}

ReportView::ReportView(const ModuleReport& report) : target_(report.target.name()) {
  if (report.key != CacheKey{}) {
    key_ = report.key.hex();
  }
  view_.name = report.name.c_str();
  view_.source = report.source.c_str();
  view_.target = target_.c_str();
  view_.key = key_.c_str();
  view_.outcome = static_cast<cukiln_outcome>(report.outcome);
  view_.reason = report.reason.c_str();
  view_.not_stored = report.not_stored.c_str();
  view_.milliseconds = report.elapsed.count();
  view_.cubin_bytes = report.cubin_bytes;
  view_.code = CUKILN_OK;
  view_.error = "";
  view_.log = report.log.c_str();
  if (!report.status) {
    const Error& error = report.status.error();
    view_.code = static_cast<cukiln_code>(error.code());
    view_.error = error.message().c_str();
    view_.log = error.log().c_str();
  }
  for (const KernelInfo& kernel : report.kernels) {
    kernels_.push_back({kernel.name.c_str(), kernel.lowered.c_str(), kernel.registers,
                        kernel.shared_bytes, kernel.local_bytes, kernel.spill_bytes});
  }
  view_.kernels = kernels_.data();
  view_.kernel_count = kernels_.size();
  view_.index = report.index;
  view_.store_refused = report.store_refused ? 1 : 0;
  view_.load_milliseconds = report.load_time.count();
  for (const std::string& flag : report.dropped_flags) {
    dropped_flags_.push_back(flag.c_str());
  }
  view_.dropped_flags = dropped_flags_.data();
  view_.dropped_flag_count = dropped_flags_.size();
  view_.peak_bytes = report.peak_bytes;
  for (const VariableInfo& variable : report.variables) {
    variables_.push_back({variable.name.c_str(), variable.lowered.c_str(), variable.bytes,
                          variable.is_constant ? 1 : 0});
  }
  view_.variables = variables_.data();
  view_.variable_count = variables_.size();
}

}  // namespace cukiln::c
