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
      system_(system),
      store_(store),
      own_(make_compiler(options_, store, stats_)) {
  stats_.set_source([&store](const std::string& path) { return store.find_stat_record(path); });
}

Result<Compiler*> Compilers::given(const wire::CompileOrder& order) {
  const MutexLock lock(mutex_);
  std::unique_ptr<Compiler>& compiler = given_[{order.library, order.builtins}];
  if (compiler == nullptr) {
    if (given_.size() > kMaxCompilers) {
      given_.erase({order.library, order.builtins});
      return make_error(ErrorCode::incompatible,
                        "{} would be NVRTC number {} of this daemon; restart it", order.library,
                        kMaxCompilers + 1);
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
  CUKILN_TRY(const Toolchain have, own_->toolchain());
  return "nvrtc " + have.version;
}

Result<Compiler*> Compilers::for_order(const wire::CompileOrder& order) {
  const Toolchain& wanted = order.request.toolchain;
  Compiler* compiler = &own_->for_target(order.request.target);
  if (!system_ && !order.library.empty() && order.library.front() == '/') {
    CUKILN_TRY(compiler, given(order));
  }
  CUKILN_TRY(const Toolchain have, compiler->toolchain());
  if (have.version != wanted.version || have.content != wanted.content) {
    return make_error(ErrorCode::incompatible, "the daemon's NVRTC {} is not the client's, {}",
                      have.version, wanted.version);
  }
  return compiler;
}

}  // namespace cukiln::daemon
