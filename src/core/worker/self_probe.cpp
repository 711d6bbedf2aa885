// SPDX-License-Identifier: Apache-2.0
#include "core/worker/self_probe.hpp"

#include <string_view>

#include "core/worker/served_files.hpp"

namespace cukiln::worker {

namespace {

constexpr const char* kUnit = "/cukiln/src/probe.cu";
constexpr const char* kServedHeader = "/cukiln/probe/seen.cuh";

constexpr std::string_view kMark = "cukiln probe: ";

}  // namespace

wire::Probed self_probe(const NvrtcApi& api, const std::string& library) {
  // The program reports by a failing static_assert, whose text the front end prints. That takes
  // half the time of a program that compiles.
  wire::Compile job;
  job.unit_path = kUnit;
  job.unit_text = std::string("#if __has_include(\"") + kServedHeader + "\")\n#include \"" +
                  kServedHeader +
                  "\"\n#endif\n"
                  "#ifndef CUKILN_SEEN\n#define CUKILN_SEEN \"0\"\n#endif\n"
                  "#if __has_include(\"" +
                  library +
                  "\")\n#define CUKILN_LEAK \"1\"\n#else\n#define CUKILN_LEAK \"0\"\n#endif\n"
                  "#define CUKILN_TEXT_OF(x) #x\n"
                  "#define CUKILN_NUMBER(x) CUKILN_TEXT_OF(x)\n"
                  "#define CUKILN_PROBE \"" +
                  std::string(kMark) +
                  "\" CUKILN_SEEN \" \" CUKILN_LEAK \" \" "
                  "CUKILN_NUMBER(__CUDACC_VER_MAJOR__) \".\" "
                  "CUKILN_NUMBER(__CUDACC_VER_MINOR__) \".\" "
                  "CUKILN_NUMBER(__CUDACC_VER_BUILD__) \";\"\n"
                  "static_assert(false, CUKILN_PROBE);\n";
  ServedFiles& files = ServedFiles::instance();
  files.begin(nullptr, kUnit);
  files.add(kServedHeader, "#define CUKILN_SEEN \"1\"\n");
  const wire::Compiled compiled = compile_with(api, job, OutputKind::ptx);
  files.end();

  // `1 0 13.0.88;`: the served header was read, the file on disk was not seen, the version
  wire::Probed probed;
  const std::size_t mark = compiled.log.find(kMark);
  const std::size_t at = mark + kMark.size();
  const std::size_t end = compiled.log.find(';', at);
  if (mark == std::string::npos || end == std::string::npos || end < at + 5) {
    probed.error = compiled.nvrtc_text + (compiled.log.empty() ? "" : "\n" + compiled.log);
    return probed;
  }
  probed.capabilities = api.list_capabilities();
  probed.observed = compiled.log.compare(at, 4, "1 0 ") == 0;
  probed.version = compiled.log.substr(at + 4, end - at - 4);
  return probed;
}

}  // namespace cukiln::worker
