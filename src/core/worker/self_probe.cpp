// SPDX-License-Identifier: Apache-2.0
#include "core/worker/self_probe.hpp"

#include <string_view>

#include "core/worker/served_files.hpp"

namespace cukiln::worker {

namespace {

constexpr const char* kUnit = "/cukiln/src/probe.cu";
constexpr const char* kServedHeader = "/cukiln/probe/seen.cuh";

constexpr std::string_view kMark = "cukiln probe: ";

constexpr const char* kServedPart = "/cukiln/probe/part.ptx";
constexpr const char* kPart =
    ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry cukiln_probe() { ret; }\n";

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

wire::Probed probe_linker(const LinkerApi& api, const std::string& library) {
  wire::Probed probed;
  unsigned major = 0;
  unsigned minor = 0;
  const int known = api.version(&major, &minor);
  LinkerApi::Handle handle = nullptr;
  const char* options[] = {"-arch=sm_90"};  // of every version
  const int created = known == 0 ? api.create(&handle, 1, options) : known;
  if (created != 0) {
    probed.error = linker_error_text(created);
    return probed;
  }
  ServedFiles& files = ServedFiles::instance();
  files.begin(nullptr, kUnit);
  files.add(kServedPart, kPart);
  const int served = api.add_file(handle, static_cast<int>(LinkInputType::ptx), kServedPart);
  const int on_disk = api.add_file(handle, static_cast<int>(LinkInputType::any), library.c_str());
  files.end();
  api.destroy(&handle);
  probed.observed = served == 0 && on_disk != 0;
  probed.version = std::to_string(major) + "." + std::to_string(minor);
  return probed;
}

}  // namespace cukiln::worker
