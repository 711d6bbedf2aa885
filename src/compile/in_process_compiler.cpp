// SPDX-License-Identifier: Apache-2.0
#include "compile/in_process_compiler.hpp"

#include <algorithm>

#include "base/file.hpp"
#include "base/fork_gate.hpp"
#include "base/hasher.hpp"
#include "base/result.hpp"
#include "compile/compile_errors.hpp"
#include "compile/compile_log.hpp"
#include "compile/include_scanner.hpp"
#include "compile/nvrtc_api.hpp"
#include "key/std_headers.hpp"
#include "key/variables.hpp"

namespace cukiln {

struct InProcessCompiler::Opened {
  NvrtcApi api;
  ToolIdentity identity;
};

namespace {

/// Replaces a virtual path in an argument (`-I/cukiln/inc/0`) by its real folders, giving one
/// argument for each.
std::vector<std::string> with_real_folders(const std::string& argument, FileServer& files,
                                           const std::vector<std::string>& toolkit) {
  constexpr std::string_view kVirtual = "/cukiln/";
  const std::size_t at = argument.find(kVirtual);
  if (at == std::string::npos) {
    return {argument};
  }
  const std::string option = argument.substr(0, at);
  const std::string path = argument.substr(at);
  std::vector<std::string> arguments;
  if (path == kToolkitRoot) {  // one virtual folder for several real ones
    for (const std::string& folder : toolkit) {
      arguments.push_back(option + folder);
    }
    return arguments;
  }
  return {option + files.real_path(path)};
}

/// Whether a header of this name is given as text.
bool has_header(const CompileRequest& request, const std::string& name) {
  return std::any_of(request.headers.begin(), request.headers.end(),
                     [&](const VirtualSource& header) { return header.path == name; });
}

/// Makes a relative `-include` absolute, to the file that a worker would find: NVRTC itself would
/// look in the working directory of this process.
std::string with_real_pre_include(const std::string& argument, const CompileRequest& request,
                                  FileServer& files) {
  constexpr std::string_view kPreInclude = "--pre-include=";
  constexpr std::string_view kIncludePath = "--include-path=";
  if (!argument.starts_with(kPreInclude)) {
    return argument;
  }
  const std::string name = argument.substr(kPreInclude.size());
  const bool is_given = has_header(request, name);
  if (name.empty() || name.front() == '/' || is_given) {
    return argument;
  }
  std::vector<std::string> folders = {kWorkRoot};
  for (const std::string& other : request.options.arguments) {
    if (other.starts_with(kIncludePath)) {
      folders.push_back(other.substr(kIncludePath.size()));
    }
  }
  for (const std::string& folder : folders) {
    const FileAnswer& found = files.serve(join_path(folder, name));
    if (found.kind == FileAnswer::Kind::file) {
      return std::string(kPreInclude) + found.real_path;
    }
  }
  return argument;  // NVRTC reports that it is missing
}

/// Returns the headers that exist in memory only. NVRTC compares their names with the words of an
/// `#include`, so they are named relative to the sources' folder.
std::vector<NamedHeader> memory_headers(const CompileRequest& request, FileServer& files) {
  const std::string prefix = std::string(kSourceRoot) + "/";
  std::vector<NamedHeader> headers;
  for (const std::string& path : files.memory_paths()) {
    const bool is_source =
        std::any_of(request.sources.begin(), request.sources.end(),
                    [&](const VirtualSource& source) { return source.path == path; });
    if (!is_source && path.starts_with(prefix)) {
      headers.push_back({path.substr(prefix.size()), std::string(files.serve(path).bytes.view())});
    }
  }
  return headers;
}

/// Adds the standard headers that come with cukiln and that no folder of the search has: NVRTC
/// prefers a header of its list to one on disk.
void add_std_headers(const CompileRequest& request, FileServer& files,
                     std::vector<NamedHeader>& headers) {
  const std::vector<std::string> folders = include_folders_of(request.options);
  for (const std::string_view name : std_header_names()) {
    for (const std::string& folder : folders) {
      const FileAnswer& found = files.serve(join_path(folder, std::string(name)));
      if (found.kind == FileAnswer::Kind::absent) {
        continue;
      }
      if (is_within(found.real_path, kStdFolder) && !has_header(request, std::string(name))) {
        headers.push_back({std::string(name), std::string(found.bytes.view())});
      }
      break;
    }
  }
}

}  // namespace

InProcessCompiler::InProcessCompiler(NvrtcSearch search) : search_(std::move(search)) {}
InProcessCompiler::~InProcessCompiler() = default;

Result<const InProcessCompiler::Opened*> InProcessCompiler::open() {
  const ForkSafeLock lock(mutex_);
  if (opened_ != nullptr) {
    return opened_.get();
  }
  auto opened = std::make_unique<Opened>();
  ToolIdentity& identity = opened->identity;
  CUKILN_TRY(identity.install, find_nvrtc(search_));
  const std::string error = opened->api.open(identity.install.library, identity.install.builtins);
  if (!error.empty()) {
    return make_error(ErrorCode::not_found, "NVRTC cannot be opened: {}", error);
  }
  int major = 0;
  int minor = 0;
  opened->api.version(&major, &minor);
  identity.observed = false;
  // Results are not stored, so the identity need not tell two builds of one version apart.
  identity.toolchain.version = fmt::format("{}.{}", major, minor);
  identity.toolchain.content = hash_of(identity.install.library);
  identity.targets = targets_of_nvrtc(opened->api.list_capabilities(), identity.toolchain.version);
  opened_ = std::move(opened);
  return opened_.get();
}

Result<Toolchain> InProcessCompiler::toolchain() {
  CUKILN_TRY(const Opened* opened, open());
  return opened->identity.toolchain;
}

Result<std::vector<Target>> InProcessCompiler::targets() {
  CUKILN_TRY(const Opened* opened, open());
  return opened->identity.targets;
}

std::vector<std::string> InProcessCompiler::toolkit_folders() {
  auto found = find_nvrtc(search_);
  if (!found) {
    return find_headers(search_);
  }
  return std::move(found->headers);
}

Result<CompileOutcome> InProcessCompiler::compile(const CompileJob& job) {
  CUKILN_TRY(const Opened* opened, open());
  const CompileRequest& request = job.input.request;
  FileServer& files = *job.files.local();
  const VirtualSource unit = request.translation_unit();
  wire::Compile message;
  message.unit_path = files.real_path(unit.path);
  message.unit_text = unit.text.view();
  message.name_expressions = request.nvrtc_expressions();
  for (const std::string& argument : request.options.arguments) {
    for (std::string& real : with_real_folders(with_real_pre_include(argument, request, files),
                                               files, opened->identity.install.headers)) {
      message.arguments.push_back(std::move(real));
    }
  }
  std::vector<NamedHeader> headers;
  for (const VirtualSource& header : request.headers) {
    headers.push_back({header.path, std::string(header.text.view())});
  }
  for (NamedHeader& header : memory_headers(request, files)) {
    if (!has_header(request, header.name)) {
      headers.push_back(std::move(header));
    }
  }
  add_std_headers(request, files, headers);
  // Several sources: those on disk are included by their real paths, so that they find the headers
  // beside them; those in memory are passed as headers.
  if (request.sources.size() > 1) {
    message.unit_text.clear();
    for (const VirtualSource& source : request.sources) {
      const std::string real = files.real_path(source.path);
      message.unit_text += fmt::format("#include \"{}\"\n", real);
      if (real.front() != '/') {
        headers.push_back({real, std::string(source.text.view())});
      }
    }
  }
  wire::Compiled compiled =
      compile_with(opened->api, message, output_of(message.arguments), headers);
  CompileLog log = parse_log(compiled.log);
  if (compiled.status != wire::CompileStatus::ok) {
    return compile_failed({job, opened->identity}, compiled, log.text, {});
  }
  if (output_of(message.arguments) == OutputKind::cubin) {
    CUKILN_CHECK(check_image(compiled.image, request.target));
  }
  CompileOutcome outcome;
  CompileResult& result = outcome.result;
  result.observed = false;
  result.cubin.kernels =
      choose_kernels(log.kernels, request.options.name_expressions, compiled.lowered);
  mark_variables(compiled.image, result.cubin.kernels);
  result.cubin.image = SharedBytes(std::move(compiled.image));
  result.cubin.log = std::move(log.text);
  result.compile_us = compiled.compile_us;
  return outcome;
}

}  // namespace cukiln
