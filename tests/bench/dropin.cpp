// SPDX-License-Identifier: Apache-2.0
// How long nvrtcCompileProgram takes, for a program that knows NVRTC's interface only.
//
//   cukiln_bench_dropin LIBRARY FILE COUNT OPTION…
//
// LIBRARY: NVRTC, or libcukiln_nvrtc, which finds NVRTC as usual. Compiles FILE for COUNT different
// values of a macro VARIANT, each with a program of its own, and prints {"us": [...]}: from
// nvrtcCreateProgram to the copied cubin, one number for each.

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "program.hpp"

using cukiln::bench::fail;
using cukiln::bench::now_us;

namespace {

using Program = void*;

/// The functions of NVRTC's interface.
struct Nvrtc {
  int (*create)(Program*, const char*, const char*, int, const char* const*, const char* const*);
  int (*compile)(Program, int, const char* const*);
  int (*log_size)(Program, std::size_t*);
  int (*log)(Program, char*);
  int (*cubin_size)(Program, std::size_t*);
  int (*cubin)(Program, char*);
  int (*destroy)(Program*);
};

template <class Function>
void find(void* library, const char* name, Function& out) {
  out = reinterpret_cast<Function>(::dlsym(library, name));
  if (out == nullptr) {
    std::exit(fail(std::string("no function ") + name));
  }
}

std::string log_of(const Nvrtc& nvrtc, Program program) {
  std::size_t size = 0;
  nvrtc.log_size(program, &size);
  std::string text(size, '\0');
  nvrtc.log(program, text.data());
  return text;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return fail("usage: cukiln_bench_dropin LIBRARY FILE COUNT OPTION…");
  void* const library = ::dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return fail(::dlerror());
  Nvrtc nvrtc{};
  find(library, "nvrtcCreateProgram", nvrtc.create);
  find(library, "nvrtcCompileProgram", nvrtc.compile);
  find(library, "nvrtcGetProgramLogSize", nvrtc.log_size);
  find(library, "nvrtcGetProgramLog", nvrtc.log);
  find(library, "nvrtcGetCUBINSize", nvrtc.cubin_size);
  find(library, "nvrtcGetCUBIN", nvrtc.cubin);
  find(library, "nvrtcDestroyProgram", nvrtc.destroy);
  std::ifstream file(argv[2]);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  std::vector<const char*> options(argv + 4, argv + argc);
  options.push_back(nullptr);

  std::printf("{\"us\": [");
  for (int i = 0; i < std::atoi(argv[3]); ++i) {
    const std::string variant = "-DVARIANT=" + std::to_string(i);
    options.back() = variant.c_str();
    const double begin = now_us();
    Program program = nullptr;
    if (nvrtc.create(&program, text.c_str(), argv[2], 0, nullptr, nullptr) != 0) {
      return fail("nvrtcCreateProgram failed");
    }
    if (nvrtc.compile(program, static_cast<int>(options.size()), options.data()) != 0) {
      return fail(log_of(nvrtc, program));
    }
    std::size_t size = 0;
    nvrtc.cubin_size(program, &size);
    std::vector<char> cubin(size);
    nvrtc.cubin(program, cubin.data());
    nvrtc.destroy(&program);
    std::printf("%s%.1f", i == 0 ? "" : ", ", now_us() - begin);
  }
  std::printf("]}\n");
  std::fflush(stdout);
  std::_Exit(0);  // NVRTC's destructors are known to crash
}
