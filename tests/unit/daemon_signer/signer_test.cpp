// SPDX-License-Identifier: Apache-2.0
#include "daemon/signer/signer.hpp"

#include <doctest/doctest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>

#include "support/scratch.hpp"
#include "unit/daemon_signer/signer_fixture.hpp"

using namespace cukiln;
using namespace cukiln::testing;
using cukiln::daemon::AuditLog;
using cukiln::daemon::RateLimit;
using cukiln::daemon::Signer;
using wire::SigningRefusal;

namespace {

class FixedClock final : public Clock {
 public:
  explicit FixedClock(std::int64_t now_s) : now_s_(now_s) {}
  std::int64_t now_ns() const noexcept override { return now_s_ * 1'000'000'000; }

 private:
  std::int64_t now_s_;
};

}  // namespace

TEST_CASE_FIXTURE(SignerFixture,
                  "the signer uploads its own result if the offered cubin is equal to it") {
  compiler.cubin.log = "a log of the signer's compile";
  StoreEntry offered = entry();
  offered.cubin.log = "a log of the daemon";
  offered.cubin.kernels.clear();
  const auto verdict = judge(offer_of(offered));
  CHECK(verdict.refusal == SigningRefusal::none);
  CHECK(verdict.text == "");
  REQUIRE(remote.entries.size() == 1);
  const StoreEntry& uploaded = remote.entries.front();
  CHECK(uploaded.key == entry().key);
  CHECK(uploaded.cubin.image.view() == entry().cubin.image.view());
  CHECK(uploaded.cubin.log == "a log of the signer's compile");
  CHECK(uploaded.cubin.kernels.size() == 1);
  CHECK(uploaded.compile_us == 7);
  CHECK(uploaded.signer == "");
  CHECK(compiler.texts == std::vector<std::string>{kTile, kTile, "#include \"tile.cuh\"\n"});
}

TEST_CASE_FIXTURE(SignerFixture, "fault 144: an offer that is not sealed or not whole is refused") {
  const UniqueFd open_file(::memfd_create("open", MFD_ALLOW_SEALING));
  CHECK(::write(open_file.get(), "text", 4) == 4);
  CHECK(refusal_of(open_file) == SigningRefusal::malformed);
  CHECK(refusal_of(UniqueFd(::dup(STDERR_FILENO))) == SigningRefusal::malformed);
  CHECK(refusal_of(*wire::make_sealed_file({"text"})) == SigningRefusal::malformed);
  CHECK(refusal_of(*wire::make_sealed_file({})) == SigningRefusal::malformed);
  const UniqueFd good = offer_of(entry());
  std::string bytes(wire::map_sealed_file(good.get(), wire::kMaxOfferBytes)->view());
  bytes[bytes.size() - 100] ^= 1;  // in the cubin
  CHECK(refusal_of(*wire::make_sealed_file({bytes})) == SigningRefusal::malformed);
  CHECK(compiler.compiles == 0);
}

TEST_CASE_FIXTURE(SignerFixture, "fault 144: an entry of another key, request or name is refused") {
  StoreEntry other_key = entry();
  other_key.key.bytes[0] ^= 1;
  CHECK(refusal_of(other_key) == SigningRefusal::altered);

  StoreEntry other_set = entry();
  other_set.dependencies.add_absent("/cukiln/src/more.cuh");  // the key is that of the set before
  CHECK(refusal_of(other_set) == SigningRefusal::altered);

  const StoreEntry good = entry();
  order.request.sources.front() = {"/cukiln/src/scale.cu", SharedBytes("void other() {}")};
  CHECK(refusal_of(good) == SigningRefusal::altered);
  CHECK(compiler.compiles == 0);
}

TEST_CASE_FIXTURE(SignerFixture,
                  "fault 144: labels that are not those of the request are refused") {
  StoreEntry other_name = entry();
  other_name.labels.name = "nvfp4_other";
  CHECK(refusal_of(other_name) == SigningRefusal::altered);
  order.labels.target = "sm_90a";
  CHECK(refusal_of(entry()) == SigningRefusal::altered);
  order.labels.target = "sm_100a";
  order.labels.compiler = "nvrtc 99.0";
  CHECK(refusal_of(entry()) == SigningRefusal::altered);
}

TEST_CASE_FIXTURE(SignerFixture,
                  "fault 144: what came from a bundle or a remote store is refused") {
  StoreEntry chained = entry();
  chained.signer = kKey;
  CHECK(refusal_of(chained) == SigningRefusal::signed_before);
  chained.signer = "unsigned";
  CHECK(refusal_of(chained) == SigningRefusal::signed_before);
  for (const Origin origin : {Origin::imported, Origin::remote}) {
    StoreEntry from_elsewhere = entry();
    from_elsewhere.origin = origin;
    CHECK(refusal_of(from_elsewhere) == SigningRefusal::signed_before);
  }
}

TEST_CASE_FIXTURE(SignerFixture, "fault 144: a set with a path of this machine is refused") {
  set.add_file("/usr/include/local.h", hash_of(kTile));
  CHECK(refusal_of(entry()) == SigningRefusal::not_portable);
}

TEST_CASE_FIXTURE(SignerFixture, "fault 144: an argument that writes files is refused") {
  order.request.options.arguments.emplace_back("--pch-dir=/run/cukiln-signer");
  CHECK(refusal_of(entry()) == SigningRefusal::arguments);
  CHECK(compiler.compiles == 0);
}

TEST_CASE_FIXTURE(SignerFixture,
                  "fault 145: a cubin that the signer's compile does not give is refused") {
  StoreEntry poisoned = entry();
  poisoned.cubin.image = SharedBytes(fake_cubin(100, 2000, 2));
  std::string logged;
  options.log = Logger([&](LogLevel level, std::string_view text) {
    CHECK(level == LogLevel::error);
    logged = text;
  });
  CHECK(refusal_of(poisoned) == SigningRefusal::differs);
  CHECK(logged.find("nvfp4_scale is not signed: compiled again, it gives another cubin") !=
        std::string::npos);
}

TEST_CASE_FIXTURE(
    SignerFixture,
    "fault 145: a compile that looks at other paths than the offered set is refused") {
  compiler.accessed.emplace_back("/cukiln/inc/0/more.cuh");
  CHECK(refusal_of(entry()) == SigningRefusal::not_compiled);
  compiler.accessed.pop_back();
  compiler.accessed.erase(compiler.accessed.begin());
  CHECK(refusal_of(entry()) == SigningRefusal::differs);
}

TEST_CASE_FIXTURE(SignerFixture,
                  "fault 145: a text that has another digest than the set is not used") {
  files = {SharedBytes("#define TILE 17\n")};
  CHECK(refusal_of(entry()) == SigningRefusal::not_compiled);
  files.clear();
  CHECK(refusal_of(entry()) == SigningRefusal::not_compiled);
}

TEST_CASE_FIXTURE(SignerFixture, "fault 145: what must not be stored is not signed") {
  compiler.uses_time = true;
  CHECK(refusal_of(entry()) == SigningRefusal::not_compiled);
  compiler.uses_time = false;
  compiler.observed = false;
  CHECK(refusal_of(entry()) == SigningRefusal::not_compiled);
  compiler.observed = true;
  compiler.failure = Error(ErrorCode::compile_failed, "syntax error");
  CHECK(refusal_of(entry()) == SigningRefusal::not_compiled);
}

TEST_CASE_FIXTURE(SignerFixture, "fault 145: the result of another NVRTC is refused") {
  compiler.version = "12.9.86";
  CHECK(refusal_of(entry()) == SigningRefusal::compiler);
  CHECK(compiler.compiles == 0);
}

TEST_CASE_FIXTURE(SignerFixture, "fault 146: a module outside the scope of the key is refused") {
  options.trusted = *TrustedKeys::parse(std::string(kKey) + " modules=sampler");
  CHECK(refusal_of(entry()) == SigningRefusal::scope);
  options.trusted = *TrustedKeys::parse(std::string(kKey) + " modules=nvfp4_");
  CHECK(judge(offer_of(entry())).refusal == SigningRefusal::none);
}

TEST_CASE_FIXTURE(SignerFixture, "fault 146: a key that has expired signs nothing") {
  const FixedClock after(1'801'440'000);  // 2027-02-01
  options.clock = &after;
  options.trusted = *TrustedKeys::parse(std::string(kKey) + " expires=2027-01-31");
  CHECK(refusal_of(entry()) == SigningRefusal::expired);
  options.trusted = *TrustedKeys::parse(std::string(kKey) + " expires=2027-03-01");
  CHECK(judge(offer_of(entry())).refusal == SigningRefusal::none);
}

TEST_CASE_FIXTURE(SignerFixture, "fault 146: entries and bytes of a minute are limited") {
  const UniqueFd offer = offer_of(entry());
  options.rate.entries = 2;
  Signer signer(options, compiler, remote);
  const auto judge_again = [&](Signer& by) {
    return by.judge(offer, {::geteuid(), ::getpid()}, {}).refusal;
  };
  CHECK(judge_again(signer) == SigningRefusal::none);
  CHECK(judge_again(signer) == SigningRefusal::none);
  CHECK(judge_again(signer) == SigningRefusal::rate);
  CHECK(remote.entries.size() == 2);
  CHECK(compiler.compiles == 2);
  options.rate = {600, 100};
  Signer few_bytes(options, compiler, remote);
  CHECK(judge_again(few_bytes) == SigningRefusal::rate);
}

TEST_CASE("fault 146: a limit of a minute is renewed after the minute") {
  RateLimit limit({2, 100});
  const RateLimit::Time start{std::chrono::hours(1)};
  CHECK(limit.take(60, start));
  CHECK_FALSE(limit.take(60, start + std::chrono::seconds(59)));
  CHECK(limit.take(40, start + std::chrono::seconds(59)));
  CHECK_FALSE(limit.take(0, start + std::chrono::seconds(59)));
  CHECK(limit.take(100, start + std::chrono::seconds(60)));
}

TEST_CASE_FIXTURE(SignerFixture, "each decision is a line of the audit log") {
  const ScratchFolder folder;
  AuditLog::Options where;
  where.where = folder / "audit.jsonl";
  {
    const auto log = AuditLog::open(where, Logger());
    REQUIRE(log);
    options.audit = log->get();
    CHECK(judge(offer_of(entry())).refusal == SigningRefusal::none);
    order.labels.name = "forged\n{}";
    compiler.version = "1.0";
    CHECK(judge(offer_of(entry())).refusal == SigningRefusal::compiler);
  }
  std::stringstream text;
  text << std::ifstream(where.where).rdbuf();
  const std::string lines = text.str();
  CHECK(std::count(lines.begin(), lines.end(), '\n') == 2);
  CHECK(lines.find("\"event\":\"signed\"") != std::string::npos);
  CHECK(lines.find("\"module\":\"nvfp4_scale\",\"key\":\"" + entry().key.hex() + "\"") !=
        std::string::npos);
  CHECK(lines.find("\"event\":\"not_signed\"") != std::string::npos);
  CHECK(lines.find("\"module\":\"forged\\n{}\"") != std::string::npos);
  CHECK(lines.find("\"reason\":\"compiler\"") != std::string::npos);
}
