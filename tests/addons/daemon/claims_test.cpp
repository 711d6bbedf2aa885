// SPDX-License-Identifier: Apache-2.0
// False answers of a client affect no other client of the same user.

#include "support/daemon_claims.hpp"

using namespace cukiln;
using cukiln::testing::becomes_true;
using cukiln::testing::BuildProcess;
using cukiln::testing::Claim;
using cukiln::testing::claim_absent;
using cukiln::testing::claim_file;
using cukiln::testing::first_word;
using cukiln::testing::kTestTimeout;
using cukiln::testing::Look;
using std::chrono::seconds;

namespace {

struct Claims : cukiln::testing::DaemonFixture {
  std::unique_ptr<cukiln::testing::Child> daemon = start();
  int number = 0;

  std::string next(const std::string& directives) {
    const std::string name = "k" + std::to_string(++number);
    return scratch.write(name + ".cu",
                         "// fake: count " + count_file + "\n// " + name + "\n" + directives);
  }
  bool compile_by_hand(const std::string& path, const Claim& claim) const {
    DaemonClient link(options());
    return cukiln::testing::compile_by_hand(link.begin(), cukiln::testing::bin(), path, claim);
  }
  bool look_by_hand(const std::string& path, const Look& look) const {
    DaemonClient link(options());
    return cukiln::testing::compile_by_hand(
        link.begin(), cukiln::testing::bin(), path,
        [](const std::string& asked) { return claim_absent(asked); }, look);
  }
  static std::string key_of(const std::string& said) {
    const std::size_t at = said.find(' ') + 1;
    return said.substr(at, 64);
  }
  /// Checks that the other client gets the result of its own files, though the daemon has another
  /// client's, or both wait for one.
  void check_result(BuildProcess& other, const std::string& path, const std::string& store) {
    const int status = other.wait();
    const std::string said = other.output();
    CAPTURE(said);
    REQUIRE(status == 0);
    CHECK(first_word(said) == "compiled");
    const auto alone = client_alone(path, "alone");
    CHECK(alone->wait() == 0);
    CHECK(first_word(alone->output()) == "compiled");
    CHECK(key_of(alone->output()) == key_of(said));
    CHECK(image_in(store, key_of(said)) == image_in("alone", key_of(said)));
  }

  void check_claim(const std::string& directives, const Claim& claim, bool is_compiled) {
    {
      INFO("before the other asks");
      const std::string path = next(directives);
      CHECK(compile_by_hand(path, claim) == is_compiled);
      const auto other = client(path, {}, "before");
      check_result(*other, path, "before");
    }
    INFO("while the other waits");
    const bool has_waited = becomes_true(
        [&] {
          const std::string path = next(directives);
          const std::uint64_t before = counter("coalesced");
          std::unique_ptr<BuildProcess> other;
          bool waits = false;
          CHECK(compile_by_hand(path, [&](const std::string& asked) {
                  if (other == nullptr) {
                    other = client(path, {}, "while");
                    waits = becomes_true([&] { return counter("coalesced") > before; }, seconds(5));
                  }
                  return claim(asked);
                }) == is_compiled);
          REQUIRE(other != nullptr);
          check_result(*other, path, "while");
          return waits;
        },
        kTestTimeout);
    CHECK(has_waited);
  }
};

}  // namespace

// fault 108
TEST_CASE_FIXTURE(Claims, "false answers of a client affect no other client of its user") {
  const std::string true_bytes = "of a header";
  const std::string includes =
      "// fake: include /cukiln/src/a.h\n// fake: include /cukiln/src/b.h\n";
  scratch.write("a.h", true_bytes);
  scratch.write("b.h", true_bytes);
  scratch.write("folder/c.h", true_bytes);
  const auto of_headers = [](const std::function<std::vector<wire::Answer>(std::string)>& claim) {
    return [claim](const std::string& path) {
      return path.ends_with(".h") ? claim(path) : claim_absent(path);
    };
  };
  SUBCASE("two files are one") {
    check_claim(
        includes,
        of_headers([&](const std::string& path) { return claim_file(path, 5, true_bytes); }), true);
  }
  SUBCASE("other bytes") {
    check_claim(includes, of_headers([](const std::string& path) {
                  return claim_file(path, path.ends_with("a.h") ? 5 : 6, "of another");
                }),
                true);
  }
  SUBCASE("it is not there") {
    check_claim("// fake: look /cukiln/src/a.h\n",
                of_headers([](const std::string& path) { return claim_absent(path); }), true);
  }
  SUBCASE("its folder is not there, and later the file is") {
    check_claim(
        "// fake: look /cukiln/src/none.h\n// fake: look /cukiln/src/folder/c.h\n"
        "// fake: look /cukiln/src/neither.h\n",
        of_headers([&](const std::string& path) {
          auto answers = claim_absent(path, "/cukiln/src/folder");
          if (path.ends_with("neither.h")) {
            answers.push_back(claim_file("/cukiln/src/folder/c.h", 5, true_bytes).front());
          }
          return answers;
        }),
        true);
  }
  SUBCASE("it is the source itself") {
    check_claim(includes, of_headers([&](const std::string& path) {
                  return claim_file(path, 1u << 31, true_bytes);
                }),
                false);
  }
  SUBCASE("it cannot be read") {
    check_claim(includes, of_headers(cukiln::testing::claim_unreadable), false);
  }
  SUBCASE("an answer about another file") {
    check_claim(
        includes, [](const std::string& path) { return claim_absent(path + ".h"); }, false);
  }
}

TEST_CASE_FIXTURE(
    Claims,
    "fault 425: a client that says falsely that the store has the entry now, or leaves "
    "when it is asked, ends no other client's compile") {
  scratch.write("a.h", "of a header");
  std::optional<wire::StillNeeded> said;
  SUBCASE("says so") { said = wire::StillNeeded{false}; }
  SUBCASE("leaves") {}
  const bool has_waited = becomes_true(
      [&] {
        const std::string path = next("// fake: include /cukiln/src/a.h\n");
        const std::uint64_t before = counter("coalesced");
        std::unique_ptr<BuildProcess> other;
        bool waits = false;
        CHECK_FALSE(look_by_hand(path, [&] {
          other = client(path, {}, "while");
          waits = becomes_true([&] { return counter("coalesced") > before; }, seconds(5));
          return said;
        }));
        REQUIRE(other != nullptr);
        check_result(*other, path, "while");
        return waits;
      },
      seconds(30));
  CHECK(has_waited);
}
