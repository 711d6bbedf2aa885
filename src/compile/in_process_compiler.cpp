// SPDX-License-Identifier: Apache-2.0
#include "compile/in_process_compiler.hpp"

#include "base/file.hpp"
#include "base/fork_gate.hpp"
#include "base/hasher.hpp"
#include "base/result.hpp"
#include "compile/compile_errors.hpp"
#include "compile/compile_log.hpp"
#include "compile/nvrtc_api.hpp"

namespace cukiln {

struct InProcessCompiler::Opened {
  NvrtcApi api;
  NvrtcIdentity identity;
};

namespace {

/// A virtual path in an argument (`-I/cukiln/inc/0`) as the real folders it stands for.
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
  if (path == kToolkitRoot) {  // several folders behind one name
    for (const std::string& folder : toolkit) {
      arguments.push_back(option + folder);
    }
    return arguments;
  }
  return {option + files.real_path(path)};
}

/// A relative `-include` as the file that a worker would find: NVRTC would look in this process's
/// folder.
std::string with_real_pre_include(const std::string& argument, const CompileRequest& request,
                                  FileServer& files) {
  constexpr std::string_view kPreInclude = "--pre-include=";
  constexpr std::string_view kIncludePath = "--include-path=";
  if (argument.compare(0, kPreInclude.size(), kPreInclude) != 0) {
    return argument;
  }
  const std::string name = argument.substr(kPreInclude.size());
  if (name.empty() || name.front() == '/') {
    return argument;
  }
  std::vector<std::string> folders = {kWorkRoot};
  for (const std::string& other : request.options.arguments) {
    if (other.compare(0, kIncludePath.size(), kIncludePath) == 0) {
      folders.push_back(other.substr(kIncludePath.size()));
    }
  }
  for (const std::string& folder : folders) {
    const FileAnswer& found = files.serve(join_path(folder, name));
    if (found.kind == FileAnswer::Kind::file) {
      return std::string(kPreInclude) + found.real_path;
    }
  }
  return argument;  // NVRTC says that it is nowhere
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
  NvrtcIdentity& identity = opened->identity;
  CUKILN_TRY(identity.install, find_nvrtc(search_));
  const std::string error = opened->api.open(identity.install.library, identity.install.builtins);
  if (!error.empty()) {
    return make_error(ErrorCode::not_found, "NVRTC cannot be opened: {}", error);
  }
  int major = 0;
  int minor = 0;
  opened->api.version(&major, &minor);
  identity.observed = false;
  // Nothing is stored under this identity, so it need not tell two builds of one version apart.
  identity.toolchain.version = fmt::format("{}.{}", major, minor);
  identity.toolchain.content = hash_of(identity.install.library);
  opened_ = std::move(opened);
  return opened_.get();
}

Result<Toolchain> InProcessCompiler::toolchain() {
  CUKILN_TRY(const Opened* opened, open());
  return opened->identity.toolchain;
}

std::vector<std::string> InProcessCompiler::toolkit_folders() {
  auto found = find_nvrtc(search_);
  if (!found) {
    return search_.include_path;
  }
  return std::move(found->headers);
}

Result<CompileOutcome> InProcessCompiler::compile(const CompileJob& job) {
  CUKILN_TRY(const Opened* opened, open());
  const CompileRequest& request = job.input.request;
  FileServer& files = *job.files.local();
  const VirtualSource unit = request.translation_unit();
  wire::Compile wanted;
  wanted.unit_path = files.real_path(unit.path);
  wanted.unit_text = unit.text.view();
  wanted.name_expressions = request.options.name_expressions;
  for (const std::string& argument : request.options.arguments) {
    for (std::string& real : with_real_folders(with_real_pre_include(argument, request, files),
                                               files, opened->identity.install.headers)) {
      wanted.arguments.push_back(std::move(real));
    }
  }
  // Of several sources, those on disk are included by their real paths, so that they find what lies
  // beside them; those in memory are given along.
  std::vector<NamedHeader> headers;
  if (request.sources.size() > 1) {
    wanted.unit_text.clear();
    for (const VirtualSource& source : request.sources) {
      const std::string real = files.real_path(source.path);
      wanted.unit_text += fmt::format("#include \"{}\"\n", real);
      if (real.front() != '/') {
        headers.push_back({real, std::string(source.text.view())});
      }
    }
  }
  wire::Compiled compiled = compile_with(opened->api, wanted, output_of(wanted.arguments), headers);
  CompileLog log = parse_log(compiled.log);
  if (compiled.status != wire::CompileStatus::ok) {
    return compile_failed({job, opened->identity, 0, {}}, compiled, log.text, {});
  }
  if (output_of(wanted.arguments) == NvrtcOutput::cubin) {
    CUKILN_CHECK(check_image(compiled.image, request.target));
  }
  CompileOutcome outcome;
  CompileResult& result = outcome.result;
  result.observed = false;
  result.cubin.kernels = choose_kernels(log.kernels, wanted.name_expressions, compiled.lowered);
  result.cubin.image = SharedBytes(std::move(compiled.image));
  result.cubin.log = std::move(log.text);
  result.compile_us = compiled.compile_us;
  return outcome;
}

}  // namespace cukiln
