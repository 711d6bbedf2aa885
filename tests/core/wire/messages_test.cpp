// SPDX-License-Identifier: Apache-2.0
#include "core/wire/messages.hpp"

#include <doctest/doctest.h>

#include "core/wire/whole_messages.hpp"

using namespace cukiln;
using namespace cukiln::wire;
using cukiln::testing::check_only_whole;

TEST_CASE("every message round-trips") {
  const auto hello = Hello::decode(Hello{kWorkerProtocol, 13, 5, "no", 6, true, true, 66}.encode());
  CHECK(hello->nvrtc_major == 13);
  CHECK(hello->nvrtc_minor == 5);
  CHECK(hello->error == "no");
  CHECK(hello->landlock == 6);
  CHECK(hello->filters_calls);
  CHECK(hello->hides_memory);
  CHECK(hello->max_tasks == 66);

  const auto probed = Probed::decode(Probed{"13.0.88", true, "", {75, 121}}.encode());
  CHECK(probed->version == "13.0.88");
  CHECK(probed->observed);
  CHECK(probed->capabilities == std::vector<std::uint32_t>{75, 121});

  const auto compile = Compile::decode(Compile{"/u", "text", {"-a", "-b"}, {"k<1>"}}.encode());
  CHECK(compile->unit_text == "text");
  CHECK(compile->arguments == std::vector<std::string>{"-a", "-b"});
  CHECK(compile->name_expressions == std::vector<std::string>{"k<1>"});

  const auto crashed = Crashed::decode(Crashed{11, 0, 1, 1}.encode());
  CHECK(crashed->signal == 11);
  CHECK(crashed->stack_overflow == 1);
}

TEST_CASE("a link keeps the order and the bytes of its inputs") {
  Link link;
  link.options = {"-arch=sm_90a", "-lto"};
  link.inputs.push_back({"/cukiln/src/a.cu", SharedBytes(std::string("a\0b", 3))});
  link.inputs.push_back({"/cukiln/obj/0/b.o", SharedBytes("b")});
  const std::string body = link.encode();
  const auto read = Link::decode(body);
  REQUIRE(read);
  CHECK(read->options == link.options);
  REQUIRE(read->inputs.size() == 2);
  CHECK(read->inputs[0].name == "/cukiln/src/a.cu");
  CHECK(read->inputs[0].image.view() == ByteView("a\0b", 3));
  CHECK(read->inputs[1].image.view() == "b");
  check_only_whole(link);
}

TEST_CASE("answers keep their order, kinds and bytes") {
  Answers answers;
  answers.answers.push_back({"/f", FileKind::file, 6, "", SharedBytes(std::string("a\0b", 3))});
  answers.answers.push_back({"/g/h", FileKind::absent, 0, "/g", {}});
  const auto read = Answers::decode(answers.encode());
  REQUIRE(read->answers.size() == 2);
  CHECK(read->answers[0].bytes.view() == ByteView("a\0b", 3));
  CHECK(read->answers[0].file == 6);
  CHECK(read->answers[1].kind == FileKind::absent);
  CHECK(read->answers[1].absent_folder == "/g");
}

TEST_CASE("a result keeps image, log, names and the paths in their order") {
  Compiled compiled;
  compiled.status = CompileStatus::unusable;
  compiled.nvrtc_code = 7;
  compiled.compile_us = 1'234'567'890'123;
  compiled.peak_bytes = 987'654'321'012;
  compiled.image = std::string(
      "\x7f"
      "ELF\0\0",
      6);
  compiled.ptx = ".version";
  compiled.lowered = {"_Z1kv"};
  compiled.looked_at = {"/b", "/a"};
  const auto read = Compiled::decode(compiled.encode());
  CHECK(read->status == CompileStatus::unusable);
  CHECK(read->nvrtc_code == 7);
  CHECK(read->compile_us == compiled.compile_us);
  CHECK(read->peak_bytes == compiled.peak_bytes);
  CHECK(read->image == compiled.image);
  CHECK(read->ptx == compiled.ptx);
  CHECK(read->lowered == compiled.lowered);
  CHECK(read->looked_at == compiled.looked_at);
}

TEST_CASE("a message that is truncated, or has bytes left over, is refused") {
  check_only_whole(Hello{});
  check_only_whole(Probed{"13.0.88", true, "log", {75, 121}});
  check_only_whole(Compile{"/u", "text", {"-a"}, {"k"}});
  check_only_whole(Answers{{{"/f", FileKind::file, 1, "", SharedBytes(std::string("x"))}}});
  Compiled compiled;
  compiled.looked_at = {"/a"};
  check_only_whole(compiled);
  check_only_whole(Crashed{});
}

TEST_CASE("a message with an unknown kind or status is refused") {
  std::string answers = Answers{{{"/f", FileKind::file, 0, "", {}}}}.encode();
  answers[4 + 4 + 2] = 17;  // after the count and the path
  CHECK_FALSE(Answers::decode(answers).has_value());
  std::string compiled = Compiled{}.encode();
  compiled[0] = 17;
  CHECK_FALSE(Compiled::decode(compiled).has_value());
}

TEST_CASE("the bytes of a message do not change") {
  using namespace std::string_literals;
  CHECK(Probed{"13", true, "e", {75}}.encode() ==
        "\2\0\0\0"
        "13"
        "\1"
        "\1\0\0\0"
        "e"
        "\1\0\0\0"
        "\x4b\0\0\0"s);
  CHECK(Crashed{11, 1, 0, 1}.encode() == "\x0b\0\0\0\1\0\1"s);
  CHECK(Answers{{{"/f", FileKind::file, 6, "", SharedBytes("ab"s)}}}.encode() ==
        "\1\0\0\0"
        "\2\0\0\0"
        "/f"
        "\1"
        "\6\0\0\0"
        "\0\0\0\0"
        "\2\0\0\0"
        "ab"s);
  Compile compile;
  compile.arguments = {"-a", ""};
  compile.real_clock = true;
  compile.is_program = true;
  compile.output = OutputKind::lto_ir;
  compile.working_folder = "/w";
  compile.headers = {{"a.h", "x"}};
  CHECK(compile.encode() ==
        "\0\0\0\0"
        "\0\0\0\0"
        "\2\0\0\0"
        "\2\0\0\0"
        "-a"
        "\0\0\0\0"
        "\0\0\0\0"
        "\1"
        "\1"
        "\2"
        "\2\0\0\0"
        "/w"
        "\1\0\0\0"
        "\3\0\0\0"
        "a.h"
        "\1\0\0\0"
        "x"s);
}
