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
    if (source.text == nullptr) {
      out.push_back(SourceFile{source.path});
    } else {
      out.push_back(SourceText{source.path, std::string(source.text, source.text_bytes)});
    }
  }
  return out;
}

// Each sets a member to what is given; zero, NULL and an empty list leave it as it is.

void set(std::string& out, const char* given) {
  if (given != nullptr) {
    out = given;
  }
}

void set(bool& out, int given) { out = out || given != 0; }
void clear(bool& out, int given) { out = out && given == 0; }

template <class Number, class Given>
void set(Number& out, Given given) {
  if (given != 0) {
    out = Number{given};
  }
}

template <class Element>
Result<void> set_list(std::vector<Element>& out, Result<std::vector<Element>> given) {
  if (!given) {
    return std::move(given).error();
  }
  if (!given->empty()) {
    out = *std::move(given);
  }
  return {};
}

Result<void> set(std::vector<std::string>& out, const char* const* list, std::size_t count,
                 const char* what) {
  return set_list(out, read_strings(list, count, what));
}

Result<void> set(std::vector<Target>& out, const char* const* list, std::size_t count,
                 const char* /*what*/) {
  return set_list(out, read_targets(list, count));
}

Result<void> set(std::vector<Source>& out, const cukiln_source* list, std::size_t count,
                 const char* what) {
  return set_list(out, read_sources(list, count, what));
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
    cukiln_event view{};
    // schema: event to C. Written by src/schema/generate.py
    view.kind = static_cast<cukiln_event_kind>(event.kind);
    view.module = event.module.c_str();
    view.reason = event.reason.c_str();
    view.failed = event.failed ? 1 : 0;
    view.milliseconds = event.elapsed.count();
    // end of schema
    view.target = target.c_str();
    view.key = key.c_str();
    events(user, &view);
  };
}

Result<void> set(DaemonUse& use, int given) {
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

Result<void> set(LinkMode& mode, int given) {
  switch (given) {
    case CUKILN_LINK_NONE: mode = LinkMode::none; return {};
    case CUKILN_LINK_RDC: mode = LinkMode::rdc; return {};
    case CUKILN_LINK_LTO: mode = LinkMode::lto; return {};
    default: break;
  }
  return Error(ErrorCode::invalid_argument,
               "link is " + std::to_string(given) + "; expected a cukiln_link_mode, 0 to 2");
}

cukiln_code code_of(const std::optional<Error>& error) {
  return error ? static_cast<cukiln_code>(error->code()) : CUKILN_OK;
}

Result<void> apply_module(const cukiln_module& given, ModuleSpec& spec) {
  // schema: module. Written by src/schema/generate.py
  // clang-format off
  set(spec.name, given.name);
  if (auto ok = set(spec.sources, given.sources, given.source_count, "sources"); !ok) return ok;
  if (auto ok = set(spec.headers, given.headers, given.header_count, "headers"); !ok) return ok;
  if (auto ok = set(spec.include, given.include, given.include_count, "include"); !ok) return ok;
  if (auto ok = set(spec.flags, given.flags, given.flag_count, "flags"); !ok) return ok;
  if (auto ok = set(spec.names, given.names, given.name_count, "names"); !ok) return ok;
  if (auto ok = set(spec.targets, given.targets, given.target_count, "targets"); !ok) return ok;
  set(spec.working_folder, given.working_folder);
  if (auto ok = set(spec.named_headers, given.named_headers, given.named_header_count, "named_headers"); !ok) return ok;
  clear(spec.std_shims, given.no_std_shims);
  if (auto ok = set(spec.link, given.link); !ok) return ok;
  if (auto ok = set(spec.objects, given.objects, given.object_count, "objects"); !ok) return ok;
  // clang-format on
  // end of schema
  return {};
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
  const auto given = read_struct(*module, "cukiln_module");
  if (!given) {
    return given.error();
  }
  ModuleSpec spec;
  if (auto ok = apply_module(*given, spec); !ok) {
    return std::move(ok).error();
  }
  return spec;
}

Result<void> apply_options(const cukiln_options& options, Settings& base) {
  // schema: options. Written by src/schema/generate.py
  // clang-format off
  set(base.store.directory, options.store_directory);
  set(base.store.system_directory, options.system_directory);
  set(base.store.max_bytes, options.max_bytes);
  set(base.store.memory_only, options.memory_only);
  set(base.store.allow_network_file_system, options.allow_network_file_system);
  if (auto ok = set(base.store.daemon, options.daemon); !ok) return ok;
  set(base.store.daemon_socket, options.daemon_socket);
  if (auto ok = set(base.store.revoked_keys, options.revoked_keys, options.revoked_key_count, "revoked_keys"); !ok) return ok;
  if (auto ok = set(base.store.scoped_keys, options.scoped_keys, options.scoped_key_count, "scoped_keys"); !ok) return ok;
  set(base.loader.nvrtc_library, options.nvrtc_library);
  set(base.loader.cuda_library, options.cuda_library);
  set(base.loader.worker, options.worker);
  if (auto ok = set(base.loader.include_path, options.include_path, options.include_path_count, "include_path"); !ok) return ok;
  if (auto ok = set(base.loader.cuda_places.site_packages, options.site_packages, options.site_packages_count, "site_packages"); !ok) return ok;
  set(base.loader.cuda_places.virtual_env, options.virtual_env);
  set(base.loader.cuda_places.conda_prefix, options.conda_prefix);
  set(base.loader.cuda_places.cuda_home, options.cuda_home);
  set(base.loader.cuda_places.home, options.home);
  if (auto ok = set(base.loader.cuda_places.library_path, options.library_path, options.library_path_count, "library_path"); !ok) return ok;
  set(base.loader.offline, options.offline);
  set(base.loader.jobs, options.jobs);
  set(base.loader.compile_timeout, options.compile_timeout_ms);
  set(base.loader.compile_memory_bytes, options.compile_memory_bytes);
  if (options.compile_memory_bytes == UINT64_MAX) base.loader.compile_memory_bytes = 0;
  set(base.loader.memory_bytes, options.memory_bytes);
  set(base.loader.record, options.record);
  set(base.loader.nvtx_library, options.nvtx_library);
  // clang-format on
  // end of schema
  LoaderOptions& loader = base.loader;
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
  cukiln_module_report& view = view_;
  // schema: report to C. Written by src/schema/generate.py
  view.name = report.name.c_str();
  view.source = report.source.c_str();
  view.outcome = static_cast<cukiln_outcome>(report.outcome);
  view.reason = report.reason.c_str();
  view.not_stored = report.not_stored ? report.not_stored->message().c_str() : "";
  view.milliseconds = report.elapsed.count();
  view.cubin_bytes = report.cubin_bytes;
  view.error = report.error ? report.error->message().c_str() : "";
  view.log = report.log.c_str();
  view.index = report.index;
  view.load_milliseconds = report.load_time.count();
  view.peak_bytes = report.peak_bytes;
  // end of schema
  view.target = target_.c_str();
  view.key = key_.c_str();
  view.error_code = code_of(report.error);
  view.not_stored_code = code_of(report.not_stored);
  if (report.error) {
    view.log = report.error->log().c_str();
  }
  for (const KernelInfo& kernel : report.kernels) {
    kernels_.push_back({kernel.name.c_str(), kernel.lowered.c_str(), kernel.registers,
                        kernel.shared_bytes, kernel.local_bytes, kernel.spill_bytes});
  }
  view.kernels = kernels_.data();
  view.kernel_count = kernels_.size();
  for (const std::string& flag : report.dropped_flags) {
    dropped_flags_.push_back(flag.c_str());
  }
  view.dropped_flags = dropped_flags_.data();
  view.dropped_flag_count = dropped_flags_.size();
  for (const VariableInfo& variable : report.variables) {
    variables_.push_back({variable.name.c_str(), variable.lowered.c_str(), variable.size_bytes,
                          variable.is_constant ? 1 : 0});
  }
  view.variables = variables_.data();
  view.variable_count = variables_.size();
}

}  // namespace cukiln::c
