// SPDX-License-Identifier: Apache-2.0
#include "core/key/nvcc_flags.hpp"

#include <doctest/doctest.h>

using namespace cukiln;
using Strings = std::vector<std::string>;

TEST_CASE("ptxas options are split at commas, as by nvcc") {
  const auto split = translate_flags({"-Xptxas", "-v,-dlcm=ca", "--ptxas-options=,-O2,"});
  REQUIRE(split);
  CHECK(split->arguments == std::vector<std::string>{"--ptxas-options=-v",
                                                     "--ptxas-options=-dlcm=ca",
                                                     "--ptxas-options=-O2"});
}

TEST_CASE("nvcc's spellings become NVRTC's, in the given order") {
  const auto flags =
      translate_flags({"-DA=1", "-U", "A", "-std=c++20", "--use_fast_math", "-lineinfo", "-Xptxas",
                       "-v", "--ptxas-options=-O2", "-fmad=false", "-isystem=sys", "-I", "inc",
                       "-I/opt/x", "-maxrregcount=64", "-G", "-ewp", "-include", "/x.h"});
  REQUIRE(flags);
  CHECK(flags->arguments == Strings{"--define-macro=A=1", "--undefine-macro=A", "--use_fast_math",
                                    "--generate-line-info", "--ptxas-options=-v",
                                    "--ptxas-options=-O2", "--fmad=false", "--maxrregcount=64",
                                    "--device-debug", "--extensible-whole-program",
                                    "--pre-include=/x.h"});
  CHECK(flags->include == Strings{"inc", "/opt/x", "sys"});  // -isystem last, as with nvcc
  CHECK(flags->standard == "c++20");
  CHECK_FALSE(flags->relative_pre_include);
  CHECK(translate_flags({"-include", "x.h", "-include", "/y.h"})->relative_pre_include);
}

TEST_CASE("each architecture becomes one target, repeated or not") {
  const auto flags = translate_flags({"-gencode=arch=compute_100a,code=sm_100a", "-gencode",
                                      "arch=compute_90,code=[sm_90,compute_90]", "-arch=sm_90a",
                                      "--gpu-architecture", "compute_100f"});
  REQUIRE(flags);
  CHECK(flags->targets == std::vector<Target>{{100, 'a'}, {90, 0}, {90, 'a'}, {100, 'f'}});
}

TEST_CASE("host-only flags are dropped and listed") {
  const auto flags =
      translate_flags({"-O3", "--expt-relaxed-constexpr", "--extended-lambda", "--threads", "4",
                       "-Xcompiler", "-fPIC", "-v", "--compiler-options=-Wall", "-O", "2", "-m64"});
  REQUIRE(flags);
  CHECK(flags->arguments.empty());
  CHECK(flags->dropped.size() == 9);
  CHECK(flags->reported.empty());
  const auto as_given = translate_flags({"-O0", "-Xcompiler", "-fPIC", "-rdc=false"});
  REQUIRE(as_given);
  CHECK(as_given->dropped == Strings{"-O0", "-Xcompiler -fPIC", "-rdc=false"});
}

// fault 105
TEST_CASE("flags for what cukiln does itself, and nvcc's output flags, are dropped and reported") {
  const auto flags = translate_flags({"--pch", "--create-pch=x", "-use-pch", "y", "--pch-dir=d",
                                      "--time=t.csv", "--no-cache", "-c", "-cubin", "-t", "2",
                                      "-t4", "-Wall", "-Wno-deprecated-gpu-targets", "-x", "cu"});
  REQUIRE(flags);
  CHECK(flags->arguments.empty());
  CHECK(flags->dropped == Strings{"--pch", "--create-pch=x", "-use-pch y", "--pch-dir=d",
                                  "--time=t.csv", "--no-cache", "-c", "-cubin", "-t 2", "-t4",
                                  "-Wall", "-Wno-deprecated-gpu-targets", "-x cu"});
  CHECK(flags->reported == Strings{"--pch", "--create-pch", "-use-pch", "--pch-dir", "--time",
                                   "--no-cache", "-c", "-cubin", "-t", "-t4", "-Wall",
                                   "-Wno-deprecated-gpu-targets", "-x"});
  CHECK(shape_of("-t4") == FlagShape::alone);
  CHECK(shape_of("-Wall") == FlagShape::alone);
  CHECK(shape_of("-t") == FlagShape::value_follows);
  CHECK(shape_of("-tx") == FlagShape::unknown);
  CHECK(translate_flags({"-Werror", "all-warnings"})->arguments ==
        Strings{"--warning-as-error=all-warnings"});
}

TEST_CASE("an unknown or misspelt flag, or one without its value, is named in the error") {
  for (const Strings& given :
       {Strings{"--frobnicate"}, {"-maxregcount=64"}, {"-Ofoo"}, {"-lcuda"}, {"kernel.cu"}, {""}}) {
    const auto flags = translate_flags(given);
    REQUIRE_FALSE(flags);
    CHECK(flags.error().code() == ErrorCode::invalid_argument);
    CHECK(flags.error().message().find(given[0]) != std::string::npos);
  }
  const auto misspelt = translate_flags({"-maxregcount=64"});
  CHECK(misspelt.error().message().find("did you mean \"-maxrregcount\"?") != std::string::npos);
  CHECK_FALSE(translate_flags({"-D"}));
  CHECK_FALSE(translate_flags({"-D", "=1"}));
  CHECK_FALSE(translate_flags({"-D", ""}));
  CHECK_FALSE(translate_flags({"-gencode=nonsense"}));
  CHECK_FALSE(translate_flags({"-gencode=arch=compute_90,code="}));
  CHECK_FALSE(translate_flags({"-gencode=arch=compute_90,code=[]"}));
  CHECK_FALSE(translate_flags({"-arch=native"}));
  CHECK_FALSE(translate_flags({"--use_fast_math=1"}));
}

TEST_CASE("white space around a flag is nothing, as to NVRTC, and a flag of nothing is an error") {
  CHECK(translate_flags({" --use_fast_math\t", "-DA=1 ", "-include", "a b.h "})->arguments ==
        Strings{"--use_fast_math", "--define-macro=A=1", "--pre-include=a b.h "});
  CHECK(translate_flags({"-std=c++20 "})->standard == "c++20");
  CHECK(shape_of("-include ") == FlagShape::value_follows);
  for (const char* flag : {"", " ", "\t"}) {
    const auto empty = translate_flags({flag});
    REQUIRE_FALSE(empty);
    CHECK(empty.error().message().find("a flag is empty") != std::string::npos);
  }
}

TEST_CASE("flags that write files or give no cubin are refused with the reason") {
  const auto trace = translate_flags({"--fdevice-time-trace=t"});
  REQUIRE_FALSE(trace);
  CHECK(trace.error().message().find("writes a file") != std::string::npos);
  for (const char* flag : {"--gen-opt-lto", "--optix-ir", "--fdevice-syntax-only", "--tile-only"}) {
    const auto flags = translate_flags({flag});
    REQUIRE_FALSE(flags);
    CHECK(flags.error().message().find("no cubin") != std::string::npos);
  }
}

TEST_CASE("flags of separate compilation link the sources, and are no arguments themselves") {
  const std::pair<std::vector<std::string>, LinkMode> cases[] = {
      {{"-rdc=true"}, LinkMode::rdc},
      {{"--relocatable-device-code=true"}, LinkMode::rdc},
      {{"-dc"}, LinkMode::rdc},
      {{"-dlto"}, LinkMode::lto},
      {{"-dlto", "-rdc=true"}, LinkMode::lto},
      {{"-rdc=true", "-dlto"}, LinkMode::lto},
      {{"-rdc=false"}, LinkMode::none},
      {{"-lineinfo"}, LinkMode::none},
  };
  for (const auto& [given, expected] : cases) {
    CAPTURE(given.front());
    const auto flags = translate_flags(given);
    REQUIRE(flags);
    CHECK(flags->link == expected);
    CHECK(flags->arguments.size() == (given.front() == "-lineinfo" ? 1 : 0));
  }
  const auto neither = translate_flags({"-rdc=maybe"});
  REQUIRE_FALSE(neither);
  CHECK(neither.error().message().find("expected true or false") != std::string::npos);
}

TEST_CASE("a daemon takes the arguments of a part, and no other spelling of them") {
  CHECK(cukiln::check_arguments({"--relocatable-device-code=true"}));
  CHECK(cukiln::check_arguments({"--dlink-time-opt"}));
  for (const char* refused :
       {"-rdc=true", "-dlto", "--relocatable-device-code=false", "--device-c", "--gen-opt-lto"}) {
    CAPTURE(refused);
    CHECK_FALSE(cukiln::check_arguments({refused}));
  }
}

// fault 167
TEST_CASE("options of ptxas that read or write files are refused") {
  for (const char* option : {"-o,/tmp/x", "--output-file=/tmp/x", "-optf,/tmp/x",
                             "--options-file=/tmp/x", "-v,--options-file=/tmp/x"}) {
    CAPTURE(option);
    const auto flags = translate_flags({"-Xptxas", option});
    REQUIRE_FALSE(flags);
    CHECK(flags.error().message().find("read or write a file") != std::string::npos);
  }
}

TEST_CASE("a program's arguments pass check_arguments as their host wrote them, known ones only") {
  CHECK(cukiln::check_arguments(
      {"-arch=sm_90", "-I/a", "-DX=1", "-lineinfo", "--std=c++17", "-dlto"}, true));
  CHECK_FALSE(cukiln::check_arguments({"-arch=sm_90"}));
  CHECK_FALSE(cukiln::check_arguments({"--pch"}, true));
  CHECK_FALSE(cukiln::check_arguments({"--time=/tmp/x"}, true));
  CHECK_FALSE(cukiln::check_arguments({"-Xptxas=--output-file=/tmp/x"}, true));
  CHECK_FALSE(cukiln::check_arguments({"-I"}, true));
  CHECK_FALSE(cukiln::check_arguments({"--nothing"}, true));
}

// fault 167
TEST_CASE(
    "a compile for another process gives ptxas known options and their values, and nothing else") {
  for (const char* const option : {"-v", "-dlcm=ca", "--maxrregcount=64", "-O3"}) {
    CAPTURE(option);
    CHECK(cukiln::check_arguments({"--ptxas-options=" + std::string(option)}));
  }
  for (const char* const option : {"evil.ptx",
                                   "evil",
                                   "",
                                   " -v",
                                   "\"--options-file\"",
                                   "'-v' --options-file",
                                   "\"--options-file\" x",
                                   " --output-file=o",
                                   "\t--output-file=o",
                                   "\\--output-file=o",
                                   "\"-o\" o",
                                   "x -o zz",
                                   "x --output-file zz",
                                   ",--options-file=zz",
                                   "@zz",
                                   "-dlcm=ca --output-file=zz",
                                   "-dlcm ca -o zz",
                                   "--verbose\n--output-file=zz",
                                   "-dlcm=ca,-o=zz",
                                   "-dlcm=../x",
                                   "-dlcm=@x",
                                   "-o=x"}) {
    CAPTURE(option);
    CHECK_FALSE(cukiln::check_arguments({"--ptxas-options=" + std::string(option)}));
    CHECK_FALSE(cukiln::check_arguments({"--ptxas-options=" + std::string(option)}, true));
  }
  CHECK_FALSE(cukiln::check_arguments({"--ptxas-options=-dlcm", "--ptxas-options=ca"}));
}

TEST_CASE("what translate_flags gives passes check_arguments") {
  const auto flags =
      translate_flags({"-DA=1", "-U", "A", "--use_fast_math", "-lineinfo", "-Xptxas",
                       "-v,-dlcm=ca,-O3", "-fmad=false", "-maxrregcount", "64", "-include", "a.h",
                       "-split-compile=8", "-w", "-G", "-diag-suppress=177"});
  REQUIRE(flags);
  CHECK(cukiln::check_arguments(flags->arguments));
}
