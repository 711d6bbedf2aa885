// SPDX-License-Identifier: Apache-2.0
#include "core/compile/compile_log.hpp"

#include <doctest/doctest.h>

using namespace cukiln;

namespace {

constexpr const char* kReport =
    "ptxas info    : 3 bytes gmem, 8 bytes cmem[4]\n"
    "ptxas info    : Compiling entry function 'first' for 'sm_100a'\n"
    "ptxas info    : Function properties for first\n"
    "ptxas         .     16 bytes stack frame, 24 bytes spill stores, 32 bytes spill loads\n"
    "ptxas info    : Used 40 registers, used 1 barriers, 4096 bytes smem, 380 bytes cmem[0]\n"
    "ptxas info    : Compile time = 2.857 ms\n"
    "ptxas info    : Function properties for helper\n"
    "ptxas         .     99 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
    "ptxas info    : Compiling entry function '_Z6secondIfEvv' for 'sm_100a'\n"
    "ptxas info    : Function properties for _Z6secondIfEvv\n"
    "ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
    "ptxas info    : Used 8 registers, used 0 barriers\n";

}  // namespace

TEST_CASE("fault 414: only the errors of a text are the front end's") {
  const std::string count = "\n1 error detected in the compilation of \"k.cu\".\n";
  const std::string fatal = "k.cu(1): catastrophic error: ";
  CHECK(is_of_front_end("k.cu(1): error: identifier \"x\" is undefined\n" + count));
  CHECK(is_of_front_end("At end of source: error: expected a \"}\"\n" + count));
  CHECK(is_of_front_end(fatal + "cannot open source file \"h.h\"\n" + count));
  CHECK(is_of_front_end(fatal + "could not open source file \"h.h\"\n" + count));
  CHECK(is_of_front_end(fatal + "#error directive: out of memory\n" + count));

  CHECK_FALSE(is_of_front_end("k.cu(1): warning #1-D: " + fatal +
                              "cannot open source file \"h\"\n" + fatal + "out of memory\n" +
                              count));
  CHECK_FALSE(is_of_front_end(""));
  CHECK_FALSE(is_of_front_end("k.cu(1): warning #1-D: hm\n"));
  CHECK_FALSE(is_of_front_end(fatal + "out of memory\n" + count));
  CHECK_FALSE(is_of_front_end("k.cu(1): internal error: assertion failed\n" + count));
  CHECK_FALSE(
      is_of_front_end("k.cu(1): warning #1-D: 1 error detected in the compilation of \"a\"\n"
                      "  #warning 1 error detected in the compilation of \"a\"\n"
                      "ptxas fatal   : no\n"));
  CHECK_FALSE(is_of_front_end("ptxas fatal   : Unresolved extern function 'f'\n"));
  CHECK_FALSE(is_of_front_end("nvrtc: error: failed to open libnvrtc-builtins.so.13.0.\n"));
}

TEST_CASE("ptxas's report becomes kernels, but for device functions, and leaves the log") {
  const CompileLog log = parse_log(kReport);
  REQUIRE(log.kernels.size() == 2);
  CHECK(log.kernels[0].lowered == "first");
  CHECK(log.kernels[0].registers == 40);
  CHECK(log.kernels[0].shared_bytes == 4096);
  CHECK(log.kernels[0].local_bytes == 16);
  CHECK(log.kernels[0].spill_bytes == 56);
  CHECK(log.kernels[1].lowered == "_Z6secondIfEvv");
  CHECK(log.kernels[1].registers == 8);
  CHECK(log.kernels[1].shared_bytes == 0);
  CHECK(log.text.empty());  // the report contains times
}

TEST_CASE("warnings and coded advice stay in the log") {
  const std::string warning =
      "k.cu(3): warning #177-D: variable \"x\" was declared but never used\n";
  const std::string advice =
      "ptxas info    : (C7510) Potential Performance Loss: wgmma serialized\n";
  const std::string error = "ptxas error   : Entry function uses too much shared data\n";
  const CompileLog log = parse_log(warning + kReport + advice + error);
  CHECK(log.text == warning + advice + error);
}

TEST_CASE("a log without a final newline is parsed to its end") {
  CHECK(parse_log("a\nb").text == "a\nb");
  CHECK(parse_log("").text.empty());
}

TEST_CASE("requested kernels keep their names and their order") {
  const CompileLog log = parse_log(kReport);
  const auto chosen =
      choose_kernels(log.kernels, {"second<float>", "first"}, {"_Z6secondIfEvv", "first"});
  REQUIRE(chosen.size() == 2);
  CHECK(chosen[0].name == "second<float>");
  CHECK(chosen[0].lowered == "_Z6secondIfEvv");
  CHECK(chosen[0].registers == 8);
  CHECK(chosen[1].registers == 40);
  CHECK(choose_kernels(log.kernels, {}, {}).size() == 2);
}

TEST_CASE("the name of a missing header is found in the log") {
  CHECK(missing_header("k.cu(1): catastrophic error: could not open source file \"a/b.cuh\" (no "
                       "directories in search list)") == "a/b.cuh");
  CHECK(missing_header("k.cu(1): error: cannot open source file \"x.h\"") == "x.h");
  CHECK(missing_header("k.cu(1): error: expected a \";\"").empty());
}
