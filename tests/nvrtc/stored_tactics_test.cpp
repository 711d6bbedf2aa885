// SPDX-License-Identifier: Apache-2.0
// Tactics that a store keeps, and what is launched then.
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "nvrtc/launch_fixture.hpp"
#include "store/store_admin.hpp"

#include <cukiln/blob_store.hpp>

using namespace cukiln;
using namespace cukiln::testing;

namespace {

constexpr std::int64_t kN = 7168;
constexpr std::int64_t kK = 2048;
const std::string kKind = "cukiln.tactics";

struct TacticsFixture : GemmFixture {
  TacticsFixture() : GemmFixture(90) {
    workspace = {address<void>(0x1000000), std::size_t{1} << 30};
  }

  std::string chosen(const nvfp4::Gemm& by, std::int64_t m, std::int64_t n = kN) const {
    const auto tactic = by.tactic(m, n, kK);
    REQUIRE_MESSAGE(tactic, tactic.error().message());
    return tactic->kernel + " " + std::to_string(tactic->splits);
  }

  /// For each number of tokens a tactic that the launcher does not take by itself; for 64 one that
  /// splits K.
  std::vector<nvfp4::MeasuredGemm> others() const {
    std::vector<nvfp4::MeasuredGemm> rows;
    for (const std::int64_t m : {8, 16, 32, 64, 1024}) {
      int other = 0;
      while (gemm.tactic(m, kN, kK, other)->kernel == gemm.tactic(m, kN, kK)->kernel ||
             (m == 64 && gemm.tactic(m, kN, kK, other)->splits != 4)) {
        ++other;
        REQUIRE(other < gemm.tactics(m, kN, kK));
      }
      rows.push_back({kN, kK, m, *gemm.tactic(m, kN, kK, other), 1000 * m});
    }
    return rows;
  }

  static std::string words(const nvfp4::MeasuredGemm& row) {
    return row.tactic.kernel + " " + std::to_string(row.tactic.splits);
  }

  std::string key() const {
    const auto listed = BlobStore(opened.store).list(kKind);
    REQUIRE(listed);
    REQUIRE(listed->size() == 1);
    return listed->front().key;
  }

  /// The store has these and no others.
  void keep_only(const std::vector<nvfp4::MeasuredGemm>& rows) {
    BlobStore blobs(opened.store);
    const auto listed = blobs.list(kKind);
    REQUIRE(listed);
    for (const BlobSummary& blob : *listed) {
      REQUIRE(*blobs.remove(kKind, blob.key));
    }
    const auto kept = gemm.keep_tactics(opened.store, rows);
    REQUIRE_MESSAGE(kept, kept.error().message());
    REQUIRE(gemm.kept_tactics(opened.store)->size() == rows.size());
  }

  /// A loader that comes later, as that of another process over the same store.
  struct Later {
    Opened opened;
    nvfp4::Gemm gemm;
    std::shared_ptr<std::string> warnings;
  };
  Later later(const std::vector<std::string>& revoked_keys = {}) const {
    const auto warnings = std::make_shared<std::string>();
    StoreOptions store = store_options();
    store.revoked_keys = revoked_keys;
    LoaderOptions options = loader_options();
    options.cuda_library = fake.path;
    options.log = [warnings](LogLevel level, std::string_view text) {
      if (level <= LogLevel::warn) {
        *warnings += std::string(text) + "\n";
      }
    };
    Opened over_same = open(store, options);
    auto made = nvfp4::Gemm::create(over_same.loader, 0);
    REQUIRE_MESSAGE(made, made.error().message());
    return {std::move(over_same), *made, warnings};
  }
};

}  // namespace

// Compiling takes most of the time: one store serves all.
TEST_CASE_FIXTURE(TacticsFixture,
                  "tactics that a store keeps come before those that are built in") {
  const auto rows = others();
  const std::string built_in = chosen(gemm, 64);
  REQUIRE(gemm.kept_tactics(opened.store)->empty());
  {  // fault 302: a process that has read them, or none, does not see a change
    keep_only(rows);
    CHECK(chosen(gemm, 64) == built_in);
    const auto again = nvfp4::Gemm::create(opened.loader, 0);
    REQUIRE(again);
    CHECK(chosen(*again, 64) == built_in);
    const auto reader = later();
    REQUIRE(BlobStore(opened.store).remove(kKind, key()));
    CHECK(chosen(*nvfp4::Gemm::create(reader.opened.loader, 0), 64) == words(rows[3]));
    CHECK(chosen(later().gemm, 64) == built_in);
  }
  {  // a later loader launches them, and other shapes as before
    keep_only(rows);
    const auto reader = later();
    CHECK(reader.warnings->empty());
    std::int64_t first = 1;
    for (const auto& row : rows) {
      for (const std::int64_t m : {first, row.m}) {
        CAPTURE(m);
        CHECK(chosen(reader.gemm, m) == words(row));
        CHECK(chosen(reader.gemm, m) != chosen(gemm, m));
      }
      first = row.m + 1;
    }
    CHECK(chosen(reader.gemm, 1025) == chosen(gemm, 1025));
    CHECK(chosen(reader.gemm, 64, 4096) == chosen(gemm, 64, 4096));

    const nvfp4::Gemm own = gemm;
    gemm = reader.gemm;
    for (const auto& row : rows) {
      CAPTURE(row.m);
      REQUIRE(launch(row.m, kN, kK));
      CHECK(row.tactic.kernel == fake.last_launch().kernel);
      CHECK(fake.last_launch().cluster[0] == (row.m == 64 ? 4u : 0u));
    }
    // An explicit one still comes first.
    const auto named = gemm.tactic(64, kN, kK, 0);
    REQUIRE(launch(64, kN, kK, with_tactic(0)));
    CHECK(named->kernel == fake.last_launch().kernel);
    CHECK(gemm.tactic(64, kN, kK, 99).error().message().find("tactic is 99") != std::string::npos);
    CHECK(gemm.tactic(0, kN, kK).error().code() == ErrorCode::invalid_argument);
    gemm = own;
  }
  {  // another process takes the same
    keep_only(rows);
    const pid_t child = ::fork();
    if (child == 0) {
      const auto reader = later();
      bool equal = true;
      for (const auto& row : rows) {
        equal = equal && chosen(reader.gemm, row.m) == words(row);
      }
      ::_exit(equal ? 0 : 1);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(status == 0);
  }
  {  // a shape that is measured again is replaced, others stay
    keep_only(rows);
    std::vector<nvfp4::MeasuredGemm> fewer = {rows[0]};
    fewer[0].nanoseconds = 7;
    nvfp4::MeasuredGemm other = rows[0];
    other.n = 4096;
    REQUIRE(gemm.keep_tactics(opened.store, {other}));
    CHECK(gemm.kept_tactics(opened.store)->size() == rows.size() + 1);
    REQUIRE(gemm.keep_tactics(opened.store, fewer));
    const auto now = *gemm.kept_tactics(opened.store);
    REQUIRE(now.size() == 2);
    CHECK(now[0].n == 4096);
    CHECK(now[1].nanoseconds == 7);
    CHECK(!gemm.keep_tactics(opened.store, {rows[3]}));  // it would serve one token too
    CHECK(gemm.kept_tactics(opened.store)->size() == 2);
  }
  {  // fault 301: those of another card or of other kernels are not looked at
    keep_only(rows);
    const std::string right = key();
    const std::string bytes = **BlobStore(opened.store).get(kKind, right);
    REQUIRE(BlobStore(opened.store).remove(kKind, right));
    const auto with = [&](const std::string& from, const std::string& to) {
      std::string wrong = right;
      REQUIRE(wrong.find(from) != std::string::npos);
      return wrong.replace(wrong.find(from), from.size(), to);
    };
    const std::string digest = right.substr(right.find("148 ") + 4, 16);
    for (const std::string& wrong :
         {with("148", "132"), with("Fake GPU 0", "NVIDIA H200"), with("sm_90", "sm_100"),
          with(digest, "0123456789abcdef"), with("1 ", "2 "), with("nvfp4_gemm", "w4a16_gemm")}) {
      REQUIRE(BlobStore(opened.store).put(kKind, wrong, bytes));
    }
    const auto reader = later();
    CHECK(chosen(reader.gemm, 64) == built_in);
    CHECK(reader.warnings->empty());
    REQUIRE(BlobStore(opened.store).put(kKind, right, bytes));
    CHECK(chosen(later().gemm, 64) == words(rows[3]));
  }
  {  // fault 303: those that a revoked key signed are absent
    keep_only(rows);
    const std::string fleet = "fleet:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    const std::string name = key();
    const std::string bytes = **BlobStore(opened.store).get(kKind, name);
    REQUIRE(BlobStore(opened.store).remove(kKind, name));
    StoreAdmin admin(opened.store);
    REQUIRE(*admin.put(StoreBlob{kKind, name, bytes, fleet, 0}) == PutOutcome::stored);
    CHECK(chosen(later().gemm, 64) == words(rows[3]));
    CHECK(chosen(later({fleet}).gemm, 64) == built_in);
  }
  {  // fault 300: what is no tactic is logged once and ignored, and measured anew
    keep_only(rows);
    const std::string bytes = **BlobStore(opened.store).get(kKind, key());
    for (std::string bad : {std::string("garbage"), bytes.substr(0, bytes.size() - 5) + "x\n",
                            bytes + bytes.substr(bytes.find("7168 2048"))}) {
      CAPTURE(bad);
      REQUIRE(BlobStore(opened.store).put(kKind, key(), bad));
      const auto reader = later();
      CHECK(chosen(reader.gemm, 64) == built_in);
      REQUIRE(nvfp4::Gemm::create(reader.opened.loader, 0));
      const std::string once = "ignored the blob " + key() + " of kind cukiln.tactics: ";
      CHECK(reader.warnings->find(once) == 0);
      CHECK(reader.warnings->find(once, 1) == std::string::npos);
      CHECK(!gemm.kept_tactics(opened.store));
    }
    REQUIRE(gemm.keep_tactics(opened.store, rows));
    CHECK(chosen(later().gemm, 64) == words(rows[3]));
  }
}
