// SPDX-License-Identifier: Apache-2.0
#include "core/base/result.hpp"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <string>

using namespace cukiln;

namespace {

Result<int> half(int value) {
  if (value % 2 != 0) {
    return make_error(ErrorCode::invalid_argument, "{} is odd", value);
  }
  return value / 2;
}

/// A child's standard error and exit status.
template <class Body>
std::pair<std::string, int> ending_of(Body&& body) {
  int out[2];
  REQUIRE(::pipe(out) == 0);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::signal(SIGABRT, SIG_DFL);  // doctest reports it
    ::dup2(out[1], STDERR_FILENO);
    body();
    ::_exit(0);
  }
  ::close(out[1]);
  std::string text;
  char part[256];
  for (ssize_t got = 0; (got = ::read(out[0], part, sizeof part)) > 0;) {
    text.append(part, static_cast<std::size_t>(got));
  }
  ::close(out[0]);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return {text, status};
}

/// Counts copies and moves.
struct Traveller {
  int* moves;
  int* copies;
  Traveller(int* moved, int* copied) : moves(moved), copies(copied) {}
  Traveller(const Traveller& other) : moves(other.moves), copies(other.copies) { ++*copies; }
  Traveller(Traveller&& other) noexcept : moves(other.moves), copies(other.copies) { ++*moves; }
};

}  // namespace

TEST_CASE("value() of an error aborts the process and prints the error") {
  const auto [text, status] = ending_of([] {
    const Result<int> result = half(3);
    ::_exit(*result);
  });
  CHECK(WIFSIGNALED(status));
  CHECK(text.find("invalid_argument: 3 is odd") != std::string::npos);
}

TEST_CASE("error() of a value aborts the process with a message") {
  for (const bool is_void : {false, true}) {
    const auto [text, status] = ending_of([&] {
      const Result<void> nothing;
      const Result<int> one = half(2);
      ::_exit(static_cast<int>(is_void ? nothing.error().code() : one.error().code()));
    });
    CHECK(WIFSIGNALED(status));
    CHECK(text.find("error() of a Result that has a value") != std::string::npos);
  }
}

TEST_CASE("value_or gives the value, or the fallback for an error") {
  CHECK(half(8).value_or(-1) == 4);
  CHECK(half(7).value_or(-1) == -1);
  const Result<std::string> text(std::string("given"));
  CHECK(text.value_or("fallback") == "given");
  CHECK(Result<std::unique_ptr<int>>(Error::out_of_memory()).value_or(nullptr) == nullptr);
}

TEST_CASE("and_then is called for a value and passes an error on") {
  CHECK(half(8).and_then(half).value() == 2);
  const auto odd = half(6).and_then(half);
  REQUIRE_FALSE(odd);
  CHECK(odd.error().message() == "3 is odd");
  int calls = 0;
  const auto counted = [&](int) {
    ++calls;
    return Result<void>();
  };
  CHECK(half(2).and_then(counted).has_value());
  CHECK_FALSE(half(1).and_then(counted).has_value());
  CHECK(calls == 1);
  CHECK(Result<void>().and_then([] { return half(4); }).value() == 2);
}

TEST_CASE("an error as text is its code, its message and the log") {
  CHECK(Error(ErrorCode::io, "cannot read a").to_string() == "io: cannot read a");
  CHECK(Error(ErrorCode::compile_failed, "k does not compile", "k.cu(1): error").to_string() ==
        "compile_failed: k does not compile\nk.cu(1): error");
}

TEST_CASE("a value is moved into a Result once, and never copied on the way") {
  int moves = 0;
  int copies = 0;
  const Result<Traveller> result(Traveller(&moves, &copies));
  CHECK(moves == 1);
  CHECK(copies == 0);
}
