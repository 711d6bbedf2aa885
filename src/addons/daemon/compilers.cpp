// SPDX-License-Identifier: Apache-2.0
#include "addons/daemon/compilers.hpp"

#include <algorithm>

#include "core/base/result.hpp"
#include "core/key/file_server.hpp"
#include "core/key/std_headers.hpp"
#include "core/loader/make_compiler.hpp"
#include "core/loader/module_request.hpp"

namespace cukiln::daemon {

namespace {

constexpr std::size_t kMaxCompilers = 16;

}  // namespace

Compilers::Compilers(LoaderOptions options, TieredStore& store)
    : options_(std::move(options)),
      store_(store),
      budget_(std::make_shared<CompileBudget>(
          CompileBudget::Limits{options_.jobs, options_.memory_bytes})),
      default_compiler_(make_compiler(store, worker_options())) {
  stats_.set_source([&store](const std::string& path) { return store.find_stat_record(path); });
}

NvrtcCompilerOptions Compilers::worker_options() {
  NvrtcCompilerOptions options = nvrtc_options(options_, store_, stats_);
  options.budget = budget_;
  return options;
}

Result<Compiler*> Compilers::compiler_of_client(const wire::CompileOrder& order) {
  const MutexLock lock(mutex_);
  std::unique_ptr<Compiler>& compiler = client_compilers_[{order.library, order.builtins}];
  if (compiler == nullptr) {
    if (client_compilers_.size() > kMaxCompilers) {
      client_compilers_.erase({order.library, order.builtins});
      return make_error(ErrorCode::incompatible,
                        "cannot open {}: this daemon has opened {} NVRTCs, and that is the limit; "
                        "restart it",
                        order.library, kMaxCompilers);
    }
    NvrtcCompilerOptions options = worker_options();
    NvrtcInstall install;
    install.library = order.library;
    install.builtins = order.builtins;
    install.headers = order.headers;
    options.install = std::move(install);
    compiler = std::make_unique<NvrtcCompiler>(std::move(options));
  }
  return compiler.get();
}

bool Compilers::have_toolkit_of(const CompileRequest& request, const DependencySet& dependencies) {
  Compiler& own = default_compiler_->for_target(request.target);
  const auto have = own.toolchain();
  if (!options_.include_path.empty() || !have || have->content != request.toolchain.content) {
    return false;
  }
  DependencySet toolkit;
  for (const Observation& one : dependencies.observations) {
    if (one.path.starts_with(std::string(kToolkitRoot) + "/") && !is_std_header(one.path)) {
      toolkit.observations.push_back(one);
    }
  }
  FileServer files({toolkit_root(own.toolkit_folders(), false)}, &stats_);
  const auto mismatches = files.check_all(toolkit);
  // Classes of identity count from the whole set.
  return std::all_of(mismatches.begin(), mismatches.end(), [](const FileServer::Mismatch& found) {
    return found.what == FileServer::Mismatch::What::relinked;
  });
}

Result<std::string> Compilers::describe() {
  CUKILN_TRY(const Toolchain have, default_compiler_->toolchain());
  return "nvrtc " + have.version;
}

Result<Compiler*> Compilers::for_order(const wire::CompileOrder& order) {
  const Toolchain& wanted = order.request.toolchain;
  Compiler* compiler = &default_compiler_->for_target(order.request.target);
  if (!order.library.empty() && order.library.front() == '/') {
    CUKILN_TRY(compiler, compiler_of_client(order));
  }
  CUKILN_TRY(const Toolchain have, compiler->toolchain());
  if (have.version != wanted.version || have.content != wanted.content) {
    return make_error(ErrorCode::incompatible,
                      "the daemon's NVRTC {} is not the client's NVRTC {}, or another build of it",
                      have.version, wanted.version);
  }
  return compiler;
}

}  // namespace cukiln::daemon
