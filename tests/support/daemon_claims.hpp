// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "addons/daemon/protocol/sealed_file.hpp"
#include "core/compile/nvrtc_compiler.hpp"
#include "core/loader/module_request.hpp"
#include "support/daemon_process.hpp"

namespace cukiln::testing {

/// What a client answers to a question about a file: the file's answer first.
using Claim = std::function<std::vector<wire::Answer>(const std::string& path)>;

/// What a client answers to `still_needed`; nothing to disconnect.
using Look = std::function<std::optional<wire::StillNeeded>()>;

inline std::vector<wire::Answer> claim_file(const std::string& path, std::uint32_t number,
                                            const std::string& bytes) {
  return {{path, wire::FileKind::file, number, {}, SharedBytes(bytes)}};
}
inline std::vector<wire::Answer> claim_absent(const std::string& path,
                                              const std::string& folder = {}) {
  return {{path, wire::FileKind::absent, 0, folder, {}}};
}
inline std::vector<wire::Answer> claim_unreadable(const std::string& path) {
  return {{path, wire::FileKind::error, 0, {}, {}}};
}

/// The request that a client makes of a source, asked for by hand; `claim` answers the compiler's
/// questions. Whether an entry came of it. `programs`: the folder with the fake NVRTC.
inline bool compile_by_hand(
    Result<DaemonClient::Conversation> conversation, const std::string& programs,
    const std::string& path, const Claim& claim,
    const Look& look = [] { return wire::StillNeeded{}; }) {
  REQUIRE(conversation);
  NvrtcCompilerOptions options;
  options.search.nvrtc_library = programs + "/libnvrtc_fake.so";
  options.search.system = false;
  options.worker = programs + "/cukiln-compile-worker";
  NvrtcCompiler compiler(options);
  const auto toolchain = compiler.toolchain();
  REQUIRE(toolchain);
  ModuleSpec spec;
  spec.sources = {SourceFile{path}};
  const auto module = make_module_request(spec, {90, 'a'}, *toolchain, {});
  REQUIRE(module);
  wire::CompileOrder order;
  order.request = module->request;
  order.labels = module->labels;
  order.library = options.search.nvrtc_library;
  REQUIRE(conversation->send(wire::DaemonOp::obtain, wire::ObtainTerms{60'000}.encode(),
                             *wire::make_sealed_file({order.encode()})));
  for (;;) {
    const auto frame =
        conversation->receive(std::chrono::steady_clock::now() + std::chrono::seconds(30));
    REQUIRE(frame);
    if (frame->is(wire::DaemonOp::question)) {
      const wire::Answers answers{claim(frame->body)};
      REQUIRE(conversation->send_content(wire::DaemonOp::answer, answers.encode()));
    } else if (frame->is(wire::DaemonOp::still_needed)) {
      const auto found = look();
      if (!found) {
        return false;
      }
      REQUIRE(conversation->send(wire::DaemonOp::answer, found->encode()));
    } else if (!frame->is(wire::DaemonOp::progress)) {
      return frame->is(wire::DaemonOp::object);
    }
  }
}

}  // namespace cukiln::testing
