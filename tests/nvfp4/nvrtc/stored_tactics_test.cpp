// SPDX-License-Identifier: Apache-2.0
// Tactics that a store keeps, and what is launched then.
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "core/store/store_admin.hpp"
#include "nvfp4/nvrtc/launch_fixture.hpp"

#include <cukiln/blob_store.hpp>

using namespace cukiln;
using namespace cukiln::testing;

namespace {

constexpr std::int64_t kN = 7168;
constexpr std::int64_t kK = 2048;
const std::string kKind = "cukiln.tactics";

/// `Base`: GemmFixture or W4a16Fixture.
template <class Base>
struct TacticsFixture : Base {
  TacticsFixture() : Base(90) { workspace = {address<void>(0x1000000), std::size_t{1} << 30}; }
  ~TacticsFixture() { remove_all(); }

  using Gemm = decltype(Base::gemm);
  using Base::fake;
  using Base::gemm;
  using Base::opened;
  using Base::workspace;

  std::string chosen(const Gemm& by, std::int64_t m, std::int64_t n = kN) const {
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

  void remove_all() {
    BlobStore blobs(opened.store);
    const auto listed = blobs.list(kKind);
    CHECK(listed);
    for (std::size_t i = 0; listed && i < listed->size(); ++i) {
      CHECK(*blobs.remove(kKind, (*listed)[i].key));
    }
  }
  /// The store has these and no others.
  void keep_only(const std::vector<nvfp4::MeasuredGemm>& rows) {
    remove_all();
    const auto kept = gemm.save_tactics(opened.store, rows);
    REQUIRE_MESSAGE(kept, kept.error().message());
    REQUIRE(gemm.load_tactics(opened.store)->size() == rows.size());
  }

  /// A loader that comes later, as that of another process over the same store.
  struct Later {
    LoaderFixture::Opened opened;
    Gemm gemm;
    std::shared_ptr<std::string> warnings;
  };
  Later later(const std::vector<std::string>& revoked_keys = {}) const {
    const auto warnings = std::make_shared<std::string>();
    StoreOptions store = this->store_options();
    store.revoked_keys = revoked_keys;
    LoaderOptions options = this->loader_options();
    options.cuda_library = fake.path;
    options.log = [warnings](LogLevel level, std::string_view text) {
      if (level <= LogLevel::warn) {
        *warnings += std::string(text) + "\n";
      }
    };
    auto over_same = this->open(store, options);
    auto made = Gemm::create(over_same.loader, 0);
    REQUIRE_MESSAGE(made, made.error().message());
    return {std::move(over_same), *made, warnings};
  }
};

}  // namespace

TEST_CASE_TEMPLATE("tactics that a store keeps come before those that are built in", Base,
                   GemmFixture, W4a16Fixture) {
  using Fixture = TacticsFixture<Base>;
  using Gemm = typename Fixture::Gemm;
  Fixture of;
  FakeCuda& fake = of.fake;
  Gemm& gemm = of.gemm;
  Store& store = of.opened.store;
  const auto rows = of.others();
  const std::string built_in = of.chosen(gemm, 64);
  REQUIRE(gemm.load_tactics(store)->empty());
  {  // fault 302: a process that has read them, or none, does not see a change
    of.keep_only(rows);
    CHECK(of.chosen(gemm, 64) == built_in);
    const auto again = Gemm::create(of.opened.loader, 0);
    REQUIRE(again);
    CHECK(of.chosen(*again, 64) == built_in);
    const auto reader = of.later();
    REQUIRE(BlobStore(store).remove(kKind, of.key()));
    CHECK(of.chosen(*Gemm::create(reader.opened.loader, 0), 64) == of.words(rows[3]));
    CHECK(of.chosen(of.later().gemm, 64) == built_in);
  }
  {  // a later loader launches them, and other shapes as before
    of.keep_only(rows);
    const auto reader = of.later();
    CHECK(reader.warnings->empty());
    std::int64_t first = 1;
    for (const auto& row : rows) {
      for (const std::int64_t m : {first, row.m}) {
        CAPTURE(m);
        CHECK(of.chosen(reader.gemm, m) == of.words(row));
        CHECK(of.chosen(reader.gemm, m) != of.chosen(gemm, m));
      }
      first = row.m + 1;
    }
    CHECK(of.chosen(reader.gemm, 1025) == of.chosen(gemm, 1025));
    CHECK(of.chosen(reader.gemm, 64, 4096) == of.chosen(gemm, 64, 4096));

    const Gemm own = gemm;
    gemm = reader.gemm;
    for (const auto& row : rows) {
      CAPTURE(row.m);
      REQUIRE(of.launch(row.m, kN, kK));
      CHECK(row.tactic.kernel == fake.last_launch().kernel);
      CHECK(fake.last_launch().cluster[0] == (row.m == 64 ? 4u : 0u));
    }
    // An explicit one still comes first.
    const auto named = gemm.tactic(64, kN, kK, 0);
    REQUIRE(of.launch(64, kN, kK, with_tactic(0)));
    CHECK(named->kernel == fake.last_launch().kernel);
    CHECK(gemm.tactic(64, kN, kK, 99).error().message().find("tactic is 99") != std::string::npos);
    CHECK(gemm.tactic(0, kN, kK).error().code() == ErrorCode::invalid_argument);
    gemm = own;
  }
  {  // another process takes the same
    of.keep_only(rows);
    const pid_t child = ::fork();
    if (child == 0) {
      const auto reader = of.later();
      bool equal = true;
      for (const auto& row : rows) {
        equal = equal && of.chosen(reader.gemm, row.m) == of.words(row);
      }
      ::_exit(equal ? 0 : 1);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(status == 0);
  }
  {  // a shape that is measured again is replaced, others stay
    of.keep_only(rows);
    std::vector<nvfp4::MeasuredGemm> fewer = {rows[0]};
    fewer[0].nanoseconds = 7;
    nvfp4::MeasuredGemm other = rows[0];
    other.n = 4096;
    REQUIRE(gemm.save_tactics(store, {other}));
    CHECK(gemm.load_tactics(store)->size() == rows.size() + 1);
    REQUIRE(gemm.save_tactics(store, fewer));
    const auto now = *gemm.load_tactics(store);
    REQUIRE(now.size() == 2);
    CHECK(now[0].n == 4096);
    CHECK(now[1].nanoseconds == 7);
    CHECK(!gemm.save_tactics(store, {rows[3]}));  // it would serve one token too
    CHECK(gemm.load_tactics(store)->size() == 2);
  }
  {  // fault 301: those of another card or of other kernels are not looked at
    of.keep_only(rows);
    const std::string right = of.key();
    const std::string bytes = **BlobStore(store).get(kKind, right);
    REQUIRE(BlobStore(store).remove(kKind, right));
    const auto with = [&](const std::string& from, const std::string& to) {
      std::string wrong = right;
      REQUIRE(wrong.find(from) != std::string::npos);
      return wrong.replace(wrong.find(from), from.size(), to);
    };
    const std::string digest = right.substr(right.find("148 ") + 4, 16);
    for (const std::string& wrong : {with("148", "132"), with("Fake GPU 0", "NVIDIA H200"),
                                     with("sm_90", "sm_100"), with(digest, "0123456789abcdef"),
                                     with("1 ", "2 "), with(Base::kFamily, Base::kOtherFamily)}) {
      REQUIRE(BlobStore(store).put(kKind, wrong, bytes));
    }
    const auto reader = of.later();
    CHECK(of.chosen(reader.gemm, 64) == built_in);
    CHECK(reader.warnings->empty());
    REQUIRE(BlobStore(store).put(kKind, right, bytes));
    CHECK(of.chosen(of.later().gemm, 64) == of.words(rows[3]));
  }
  {  // fault 303: those that a revoked key signed are absent
    of.keep_only(rows);
    const std::string fleet = "fleet:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    const std::string name = of.key();
    const std::string bytes = **BlobStore(store).get(kKind, name);
    REQUIRE(BlobStore(store).remove(kKind, name));
    StoreAdmin admin(store);
    REQUIRE(*admin.put(StoreBlob{kKind, name, SharedBytes(bytes), fleet, 0}) == PutOutcome::stored);
    CHECK(of.chosen(of.later().gemm, 64) == of.words(rows[3]));
    CHECK(of.chosen(of.later({fleet}).gemm, 64) == built_in);
  }
  {  // fault 300: what is no tactic is logged once and ignored, and measured anew
    of.keep_only(rows);
    const std::string bytes = **BlobStore(store).get(kKind, of.key());
    for (std::string bad : {std::string("garbage"), bytes.substr(0, bytes.size() - 5) + "x\n",
                            bytes + bytes.substr(bytes.find("7168 2048"))}) {
      CAPTURE(bad);
      REQUIRE(BlobStore(store).put(kKind, of.key(), bad));
      const auto reader = of.later();
      CHECK(of.chosen(reader.gemm, 64) == built_in);
      REQUIRE(Gemm::create(reader.opened.loader, 0));
      const std::string once = "ignored the blob " + of.key() + " of kind cukiln.tactics: ";
      CHECK(reader.warnings->find(once) == 0);
      CHECK(reader.warnings->find(once, 1) == std::string::npos);
      CHECK(!gemm.load_tactics(store));
    }
    REQUIRE(gemm.save_tactics(store, rows));
    CHECK(of.chosen(of.later().gemm, 64) == of.words(rows[3]));
  }
}
