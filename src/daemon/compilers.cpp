// SPDX-License-Identifier: Apache-2.0
#include "daemon/compilers.hpp"

#include "base/result.hpp"
#include "compile/nvrtc_compiler.hpp"
#include "loader/make_compiler.hpp"

namespace cukiln::daemon {

namespace {

constexpr std::size_t kMaxCompilers = 16;

}  // namespace

Compilers::Compilers(LoaderOptions options, bool system, TieredStore& store)
    : options_(std::move(options)),
      is_system_(system),
      store_(store),
      default_compiler_(make_compiler(options_, store, stats_)) {
  stats_.set_source([&store](const std::string& path) { return store.find_stat_record(path); });
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
    NvrtcCompilerOptions options = nvrtc_options(options_, store_, stats_);
    NvrtcInstall install;
    install.library = order.library;
    install.builtins = order.builtins;
    install.headers = order.headers;
    options.install = std::move(install);
    compiler = std::make_unique<NvrtcCompiler>(std::move(options));
  }
  return compiler.get();
}

Result<std::string> Compilers::describe() {
  CUKILN_TRY(const Toolchain have, default_compiler_->toolchain());
  return "nvrtc " + have.version;
}

Result<Compiler*> Compilers::for_order(const wire::CompileOrder& order) {
  const Toolchain& wanted = order.request.toolchain;
  Compiler* compiler = &default_compiler_->for_target(order.request.target);
  if (!is_system_ && !order.library.empty() && order.library.front() == '/') {
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
