// SPDX-License-Identifier: Apache-2.0
#include "bindings/c/convert.hpp"

#include <algorithm>
#include <cstdlib>
#include <new>

#include "bindings/c/handles.hpp"

namespace cukiln::c {

namespace {

Result<void> check_list(const void* list, std::size_t count, const char* what) {
  if (list == nullptr && count != 0) {
    return make_error(ErrorCode::invalid_argument,
                      "{} is NULL, but its count is {}; expected a list", what, count);
  }
  return {};
}

Result<std::vector<Source>> read_sources(const cukiln_source* list, std::size_t count,
                                         const char* what) {
  CUKILN_CHECK(check_list(list, count, what));
  std::vector<Source> out;
  for (std::size_t i = 0; i < count; ++i) {
    const cukiln_source& source = list[i];
    if (source.path == nullptr) {
      return make_error(ErrorCode::invalid_argument, "{}[{}].path is NULL; expected a path or name",
                        what, i);
    }
    if (source.text == nullptr) {
      out.emplace_back(SourceFile{source.path});
    } else {
      out.emplace_back(SourceText{source.path, std::string(source.text, source.text_bytes)});
    }
  }
  return out;
}

// Each sets a member to what is given; zero, NULL and an empty list leave it as it is.

void set(std::string& out, const char* value) {
  if (value != nullptr) {
    out = value;
  }
}

void set(bool& out, int value) { out = out || value != 0; }
void clear(bool& out, int value) { out = out && value == 0; }

template <class Number, class Value>
void set(Number& out, Value value) {
  if (value != 0) {
    out = Number{value};
  }
}

template <class Element>
Result<void> set_list(std::vector<Element>& out, Result<std::vector<Element>> list) {
  CUKILN_TRY(std::vector<Element> elements, std::move(list));
  if (!elements.empty()) {
    out = std::move(elements);
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

Result<void> set(std::vector<int>& out, const int* list, std::size_t count, const char* what) {
  CUKILN_CHECK(check_list(list, count, what));
  out.assign(list, list + count);
  return {};
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

Result<void> set(DaemonUse& use, int value) {
  switch (value) {
    case CUKILN_DAEMON_DEFAULT: return {};
    case CUKILN_DAEMON_AUTO: use = DaemonUse::automatic; return {};
    case CUKILN_DAEMON_OFF: use = DaemonUse::off; return {};
    case CUKILN_DAEMON_REQUIRE: use = DaemonUse::require; return {};
    default: break;
  }
  return make_error(ErrorCode::invalid_argument,
                    "daemon is {}; expected a cukiln_daemon_use, 0 to 3", value);
}

Result<void> set(LinkMode& mode, int value) {
  switch (value) {
    case CUKILN_LINK_NONE: mode = LinkMode::none; return {};
    case CUKILN_LINK_RDC: mode = LinkMode::rdc; return {};
    case CUKILN_LINK_LTO: mode = LinkMode::lto; return {};
    default: break;
  }
  return make_error(ErrorCode::invalid_argument, "link is {}; expected a cukiln_link_mode, 0 to 2",
                    value);
}

cukiln_kernel_info view_of(const KernelInfo& kernel_info) {
  cukiln_kernel_info view{};
  // schema: kernel_info to C. Written by src/schema/generate.py
  view.name = kernel_info.name.c_str();
  view.lowered = kernel_info.lowered.c_str();
  view.registers = kernel_info.registers;
  view.shared_bytes = kernel_info.shared_bytes;
  view.local_bytes = kernel_info.local_bytes;
  view.spill_bytes = kernel_info.spill_bytes;
  // end of schema
  return view;
}

cukiln_variable_info view_of(const VariableInfo& variable_info) {
  cukiln_variable_info view{};
  // schema: variable_info to C. Written by src/schema/generate.py
  view.name = variable_info.name.c_str();
  view.lowered = variable_info.lowered.c_str();
  view.size_bytes = variable_info.size_bytes;
  view.is_constant = variable_info.is_constant ? 1 : 0;
  // end of schema
  return view;
}

cukiln_code code_of(const std::optional<Error>& error) {
  return error ? static_cast<cukiln_code>(error->code()) : CUKILN_OK;
}

Result<void> apply_module(const cukiln_module& from, ModuleSpec& to) {
  // schema: module. Written by src/schema/generate.py
  // clang-format off
  set(to.name, from.name);
  if (auto ok = set(to.sources, from.sources, from.source_count, "sources"); !ok) return ok;
  if (auto ok = set(to.headers, from.headers, from.header_count, "headers"); !ok) return ok;
  if (auto ok = set(to.include, from.include, from.include_count, "include"); !ok) return ok;
  if (auto ok = set(to.flags, from.flags, from.flag_count, "flags"); !ok) return ok;
  if (auto ok = set(to.names, from.names, from.name_count, "names"); !ok) return ok;
  if (auto ok = set(to.targets, from.targets, from.target_count, "targets"); !ok) return ok;
  set(to.working_folder, from.working_folder);
  if (auto ok = set(to.named_headers, from.named_headers, from.named_header_count, "named_headers"); !ok) return ok;
  clear(to.std_shims, from.no_std_shims);
  if (auto ok = set(to.link, from.link); !ok) return ok;
  if (auto ok = set(to.objects, from.objects, from.object_count, "objects"); !ok) return ok;
  // clang-format on
  // end of schema
  return {};
}

}  // namespace

Result<void> check_pointers(std::initializer_list<std::pair<const char*, const void*>> arguments) {
  for (const auto& [name, pointer] : arguments) {
    if (pointer == nullptr) {
      return null_argument(name);
    }
  }
  return {};
}

void* allocate(std::size_t bytes) {
  void* const memory = std::malloc(std::max<std::size_t>(bytes, 1));
  if (memory == nullptr) {
    throw std::bad_alloc();
  }
  return memory;
}

void return_bytes(const std::optional<std::string>& bytes, void** data, std::size_t* data_bytes) {
  *data = nullptr;
  *data_bytes = 0;
  if (bytes) {
    *data = allocate(bytes->size());
    bytes->copy(static_cast<char*>(*data), bytes->size());
    *data_bytes = bytes->size();
  }
}

Result<std::vector<std::string>> read_strings(const char* const* list, std::size_t count,
                                              const char* what) {
  CUKILN_CHECK(check_list(list, count, what));
  std::vector<std::string> out;
  for (std::size_t i = 0; i < count; ++i) {
    if (list[i] == nullptr) {
      return make_error(ErrorCode::invalid_argument, "{}[{}] is NULL; expected a text", what, i);
    }
    out.emplace_back(list[i]);
  }
  return out;
}

Result<std::vector<Target>> read_targets(const char* const* list, std::size_t count) {
  CUKILN_TRY(const auto names, read_strings(list, count, "targets"));
  std::vector<Target> out;
  for (const std::string& name : names) {
    CUKILN_TRY(const Target target, Target::parse(name));
    out.push_back(target);
  }
  return out;
}

Result<ModuleSpec> read_module(const cukiln_module* module) {
  if (module == nullptr) {
    return Error(ErrorCode::invalid_argument, "the module is NULL; expected a cukiln_module");
  }
  CUKILN_TRY(const auto complete, read_struct(*module, "cukiln_module"));
  ModuleSpec spec;
  CUKILN_CHECK(apply_module(complete, spec));
  return spec;
}

Result<void> apply_options(const cukiln_preload_options& from, PreloadOptions& to) {
  // schema: preload_options. Written by src/schema/generate.py
  // clang-format off
  if (auto ok = set(to.devices, from.devices, from.device_count, "devices"); !ok) return ok;
  clear(to.load, from.no_load);
  set(to.keep_going, from.keep_going);
  set(to.capture_guard, from.capture_guard);
  // clang-format on
  // end of schema
  if (from.cancel != nullptr) {
    to.cancel = from.cancel->token;
  }
  return {};
}

Result<void> apply_options(const cukiln_watch_options& from, WatchOptions& to) {
  // schema: watch_options. Written by src/schema/generate.py
  // clang-format off
  set(to.after_seal, from.after_seal);
  // clang-format on
  // end of schema
  return {};
}

Result<void> apply_options(const cukiln_options& from, Settings& to) {
  // schema: options. Written by src/schema/generate.py
  // clang-format off
  set(to.store.directory, from.store_directory);
  set(to.store.system_directory, from.system_directory);
  set(to.store.max_bytes, from.max_bytes);
  set(to.store.memory_only, from.memory_only);
  set(to.store.allow_network_file_system, from.allow_network_file_system);
  if (auto ok = set(to.store.daemon, from.daemon); !ok) return ok;
  set(to.store.daemon_socket, from.daemon_socket);
  if (auto ok = set(to.store.revoked_keys, from.revoked_keys, from.revoked_key_count, "revoked_keys"); !ok) return ok;
  if (auto ok = set(to.store.scoped_keys, from.scoped_keys, from.scoped_key_count, "scoped_keys"); !ok) return ok;
  set(to.loader.nvrtc_library, from.nvrtc_library);
  set(to.loader.cuda_library, from.cuda_library);
  set(to.loader.worker, from.worker);
  if (auto ok = set(to.loader.include_path, from.include_path, from.include_path_count, "include_path"); !ok) return ok;
  if (auto ok = set(to.loader.cuda_places.site_packages, from.site_packages, from.site_packages_count, "site_packages"); !ok) return ok;
  set(to.loader.cuda_places.virtual_env, from.virtual_env);
  set(to.loader.cuda_places.conda_prefix, from.conda_prefix);
  set(to.loader.cuda_places.cuda_home, from.cuda_home);
  set(to.loader.cuda_places.home, from.home);
  if (auto ok = set(to.loader.cuda_places.library_path, from.library_path, from.library_path_count, "library_path"); !ok) return ok;
  set(to.loader.offline, from.offline);
  set(to.loader.jobs, from.jobs);
  set(to.loader.compile_timeout, from.compile_timeout_ms);
  set(to.loader.compile_memory_bytes, from.compile_memory_bytes);
  if (from.compile_memory_bytes == UINT64_MAX) to.loader.compile_memory_bytes = 0;
  set(to.loader.memory_bytes, from.memory_bytes);
  set(to.loader.record, from.record);
  set(to.loader.nvtx_library, from.nvtx_library);
  // clang-format on
  // end of schema
  LoaderOptions& loader = to.loader;
  if (from.events != nullptr) {
    loader.events = sink_of(from.events, from.events_user);
    to.store.events = loader.events;
  }
  if (from.log != nullptr) {
    const LogLevel highest = from.from_environment != 0 ? to.log_level : LogLevel::debug;
    loader.log = sink_of(from.log, from.log_user, highest);
    to.store.log = loader.log;
    for (const std::string& warning : to.warnings) {
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
  view.error = report.error ? report.error->message().c_str() : "";
  view.not_stored = report.not_stored ? report.not_stored->message().c_str() : "";
  view.milliseconds = report.elapsed.count();
  view.load_milliseconds = report.load_time.count();
  view.cubin_bytes = report.cubin_bytes;
  view.log = report.log.c_str();
  view.index = report.index;
  view.peak_bytes = report.peak_bytes;
  // end of schema
  view.target = target_.c_str();
  view.key = key_.c_str();
  view.error_code = code_of(report.error);
  view.not_stored_code = code_of(report.not_stored);
  if (report.error) {
    view.log = report.error->log().c_str();
  }
  for (const KernelInfo& one : report.kernels) {
    kernels_.push_back(view_of(one));
  }
  view.kernels = kernels_.data();
  view.kernel_count = kernels_.size();
  for (const std::string& flag : report.dropped_flags) {
    dropped_flags_.push_back(flag.c_str());
  }
  view.dropped_flags = dropped_flags_.data();
  view.dropped_flag_count = dropped_flags_.size();
  for (const VariableInfo& one : report.variables) {
    variables_.push_back(view_of(one));
  }
  view.variables = variables_.data();
  view.variable_count = variables_.size();
}

}  // namespace cukiln::c
