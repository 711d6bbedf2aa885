// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>
#include <unistd.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "compile/compiler.hpp"
#include "daemon/signer/signer.hpp"
#include "loader/make_entry.hpp"
#include "store/daemon_store.hpp"
#include "support/store_entries.hpp"
#include "wire/sealed_file.hpp"
#include "wire/signing_messages.hpp"

namespace cukiln::testing {

/// A compiler that looks at given paths and gives a given cubin.
class ScriptedCompiler final : public Compiler {
 public:
  Result<Toolchain> toolchain() override { return Toolchain{version, hash_of("nvrtc")}; }
  std::vector<std::string> toolkit_folders() override { return {}; }
  Result<CompileOutcome> compile(const CompileJob& job) override {
    ++compiles;
    if (failure) {
      return *failure;
    }
    FileProvider& files = *job.files.provider();
    wire::Compiled compiled;
    for (const std::string& path : accessed) {
      CUKILN_TRY(const std::string body, files.reply(path));
      const auto answers = wire::Answers::decode(body);
      REQUIRE(answers);
      if (answers->answers.front().kind == wire::FileKind::file) {
        texts.emplace_back(answers->answers.front().bytes.view());
      }
      compiled.looked_at.push_back(path);
    }
    CompileOutcome outcome;
    CUKILN_TRY(outcome.result.dependencies, files.take_dependencies(compiled));
    outcome.result.cubin = cubin;
    outcome.result.observed = observed;
    outcome.result.uses_time = uses_time;
    outcome.result.compile_us = 7;
    return outcome;
  }

  std::string version = "13.0.88";
  std::vector<std::string> accessed;
  Cubin cubin;
  bool observed = true, uses_time = false;
  std::optional<Error> failure;
  int compiles = 0;
  std::vector<std::string> texts;  ///< of the files that were served
};

/// Keeps what is uploaded.
class UploadedEntries final : public RemoteTier {
 public:
  std::optional<StoreEntry> find(ByteView, std::string_view, SetCheck&, Freshness) override {
    return std::nullopt;
  }
  std::optional<RemoteLease> await_peer_or_lease(ByteView, std::chrono::milliseconds, CancelFlags,
                                                 const std::function<bool()>&) override {
    return RemoteLease();
  }
  void put(const StoreEntry& entry) override { entries.push_back(entry); }
  std::vector<StoreEntry> entries;

 private:
  void release_lease(ByteView) override {}
};

/// A daemon's good offer, a signer and the compiler of the signer, which agrees with the daemon.
struct SignerFixture {
  SignerFixture() {
    order.request.sources.emplace_back("/cukiln/src/scale.cu",
                                       SharedBytes("#include \"tile.cuh\"\n"));
    order.request.options.arguments = {"--gpu-architecture=sm_100a", "--std=c++17"};
    order.request.target = *Target::parse("sm_100a");
    order.request.toolchain = {"13.0.88", hash_of("nvrtc")};
    order.labels = {"nvfp4_scale", "scale.cu", "sm_100a", "--std=c++17", "nvrtc 13.0.88"};
    set.add_absent("/cukiln/src/tile.cuh");
    set.add_file("/cukiln/inc/0/tile.cuh", hash_of(kTile), 0);
    set.add_file("/cukiln/inc/0/same.cuh", hash_of(kTile), 0);
    set.add_folder("/cukiln/toolkit");
    for (const Observation& seen : set.observations) {
      compiler.accessed.push_back(seen.path);
    }
    compiler.accessed.emplace_back("/cukiln/src/scale.cu");
    compiler.cubin.image = SharedBytes(fake_cubin(100, 2000, 1));
    compiler.cubin.kernels = {{"scale", "_Z5scalev", 32, 1024, 0, 0}};
    options.key = *PublicKey::parse(kKey);
  }

  StoreEntry entry() const {
    CompileResult result;
    result.cubin = compiler.cubin;
    result.dependencies = set;
    result.compile_us = 48'000;
    return make_entry(order.request, order.request.canonical(), order.labels, result);
  }
  UniqueFd offer_of(const StoreEntry& offered) const {
    const auto sealed = to_wire(offered).seal();
    const auto bytes = wire::map_sealed_file(sealed->get(), wire::kMaxOfferBytes);
    return *wire::SigningOffer{order, files, *bytes}.seal();
  }
  wire::SigningVerdict judge(const UniqueFd& offer) {
    daemon::Signer signer(options, compiler, remote);
    return signer.judge(offer, {::geteuid(), ::getpid()}, {});
  }
  /// The reason for which an offer is not signed, after a check that it is not.
  wire::SigningRefusal refusal_of(const UniqueFd& offer) {
    const wire::SigningVerdict verdict = judge(offer);
    CHECK(remote.entries.empty());
    CHECK_FALSE(verdict.text.empty());
    return verdict.refusal;
  }
  wire::SigningRefusal refusal_of(const StoreEntry& offered) {
    return refusal_of(offer_of(offered));
  }

  static constexpr const char* kTile = "#define TILE 16\n";
  static constexpr const char* kKey = "fleet:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
  wire::CompileOrder order;
  DependencySet set;
  std::vector<SharedBytes> files{SharedBytes(kTile)};
  ScriptedCompiler compiler;
  UploadedEntries remote;
  daemon::Signer::Options options;
};

}  // namespace cukiln::testing
