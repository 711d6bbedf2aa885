// SPDX-License-Identifier: Apache-2.0
#include "addons/link/worker/linker_api.hpp"

#include <doctest/doctest.h>
#include <elf.h>
#include <unistd.h>

#include <cstring>
#include <string>

using namespace cukiln;

namespace {

std::string elf_for(std::uint16_t machine) {
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_machine = machine;
  return {reinterpret_cast<const char*>(&header), sizeof header};
}

/// A linker of this test, whose link succeeds, and which writes to stderr before it does.
const char* g_reported = "";
int g_add_result = 0;
int g_added = 0;

LinkerApi fake_linker() {
  LinkerApi api;
  api.create = [](LinkerApi::Handle* handle, std::uint32_t, const char**) {
    *handle = reinterpret_cast<LinkerApi::Handle>(&g_added);
    return 0;
  };
  api.destroy = [](LinkerApi::Handle*) { return 0; };
  api.add_data = [](LinkerApi::Handle, int, const void*, std::size_t, const char*) {
    ++g_added;
    return g_add_result;
  };
  api.complete = [](LinkerApi::Handle) {
    static_cast<void>(!::write(STDERR_FILENO, g_reported, std::strlen(g_reported)));
    return 0;
  };
  api.cubin_size = [](LinkerApi::Handle, std::size_t* size) {
    *size = 3;
    return 0;
  };
  api.cubin = [](LinkerApi::Handle, void* out) {
    std::memcpy(out, "bin", 3);
    return 0;
  };
  api.error_log_size = api.info_log_size = [](LinkerApi::Handle, std::size_t* size) {
    *size = 5;
    return 0;
  };
  api.error_log = api.info_log = [](LinkerApi::Handle, char* out) {
    std::memcpy(out, "note", 5);
    return 0;
  };
  return api;
}

/// Replaces stderr by a file, as in a worker.
class OwnStderr {
 public:
  OwnStderr() : kept_(::dup(STDERR_FILENO)) {
    char path[] = "/tmp/cukiln-linker-XXXXXX";
    const int file = ::mkstemp(path);
    REQUIRE(file >= 0);
    ::unlink(path);
    ::dup2(file, STDERR_FILENO);
    ::close(file);
  }
  ~OwnStderr() {
    ::dup2(kept_, STDERR_FILENO);
    ::close(kept_);
  }
  OwnStderr(const OwnStderr&) = delete;
  OwnStderr& operator=(const OwnStderr&) = delete;

 private:
  const int kept_;
};

wire::Compiled link_reporting(const char* reported) {
  const OwnStderr own;
  g_reported = reported;
  wire::Link job;
  job.inputs.push_back({"/cukiln/src/a.cu", SharedBytes("x")});
  return link_with(fake_linker(), job);
}

}  // namespace

TEST_CASE("the first bytes of an input tell what it is") {
  CHECK(link_input_type(elf_for(190)) == LinkInputType::cubin);
  CHECK(link_input_type(elf_for(EM_X86_64)) == LinkInputType::object);
  CHECK(link_input_type("\xed\x43\x4e\x7f LTO") == LinkInputType::lto_ir);
  CHECK(link_input_type("\x50\xed\x55\xba fatbin") == LinkInputType::fatbin);
  CHECK(link_input_type("!<arch>\nx.o/") == LinkInputType::library);
  CHECK(link_input_type("// made by hand\n.version 8.0\n.target sm_90\n") == LinkInputType::ptx);
  CHECK(link_input_type("nothing known") == LinkInputType::any);
  CHECK(link_input_type(std::string(".version 8.0\0", 13)) == LinkInputType::any);
  CHECK(link_input_type("\x7f"
                        "ELF") == LinkInputType::any);
  CHECK(link_input_type("") == LinkInputType::any);
}

TEST_CASE("a library that is not nvJitLink is refused with what it lacks") {
  LinkerApi api;
  CHECK(api.open("/nowhere/libnvJitLink.so").find("/nowhere/libnvJitLink.so") != std::string::npos);
  CHECK(api.open("libc.so.6").find("libc.so.6 has no nvJitLinkVersion") != std::string::npos);
}

// fault 290
TEST_CASE("an error that nvJitLink writes to stderr only is an error of the link") {
  const wire::Compiled linked = link_reporting("");
  CHECK(linked.status == wire::CompileStatus::ok);
  CHECK(linked.image == "bin");
  CHECK(linked.log == "note\nnote\n");
  CHECK(link_reporting("info    : 16 bytes gmem\nwarning : stack size\n").status ==
        wire::CompileStatus::ok);
  for (const char* error :
       {"error   : Multiple definition of 'k' in 'b.cu', first defined in 'b.cu'\n",
        "info    : 16 bytes gmem\nerror   : Multiple definition of 'k'\n",
        "ptxas fatal   : Unresolved extern function 'f'\n"}) {
    CAPTURE(error);
    const wire::Compiled failed = link_reporting(error);
    CHECK(failed.status == wire::CompileStatus::failed);
    CHECK(failed.image.empty());
    CHECK(failed.log.find(error) != std::string::npos);
  }
}

TEST_CASE("the marks of the streams of nvJitLink 12.8 are not in the log") {
  const wire::Compiled linked =
      link_reporting("@O@info    : 4 bytes gmem\n@O@info    : used 24 registers @O@ in all\n");
  CHECK(linked.status == wire::CompileStatus::ok);
  CHECK(linked.log ==
        "note\nnote\ninfo    : 4 bytes gmem\ninfo    : used 24 registers @O@ in all\n");
  const wire::Compiled failed =
      link_reporting("@O@info    : 4\n@E@error   : Multiple definition\n");
  CHECK(failed.status == wire::CompileStatus::failed);
  CHECK(failed.log == "note\nnote\ninfo    : 4\nerror   : Multiple definition\n");
}

TEST_CASE("an input that is refused ends the link, whatever it would return") {
  g_add_result = 14;
  g_added = 0;
  const OwnStderr own;
  wire::Link job;
  job.inputs.push_back({"a", SharedBytes("x")});
  job.inputs.push_back({"b", SharedBytes("y")});
  const wire::Compiled linked = link_with(fake_linker(), job);
  g_add_result = 0;
  CHECK(g_added == 1);
  CHECK(linked.status == wire::CompileStatus::failed);
  CHECK(linked.nvrtc_code == 14);
  CHECK(linked.nvrtc_text.find("newer version") != std::string::npos);
  CHECK(linked.image.empty());
}
