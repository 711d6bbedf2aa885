#include "compile/worker/self_probe.hpp"

#include <cctype>
#include <cstdlib>

#include "compile/worker/served_files.hpp"

namespace cukiln::worker {

namespace {

constexpr const char* kUnit = "/cukiln/src/probe.cu";
constexpr const char* kSeen = "/cukiln/probe/seen.cuh";

/// The initial value of `name` in PTX text; one that is zero is left out there. -1: no such
/// variable.
int value_of(const std::string& ptx, const std::string& name) {
  const std::size_t at = ptx.find(name);
  if (at == std::string::npos) {
    return -1;
  }
  const std::string rest = ptx.substr(at + name.size(), 16);
  return rest.compare(0, 3, " = ") == 0 ? std::atoi(rest.c_str() + 3) : 0;
}

}  // namespace

wire::Probed self_probe(const NvrtcApi& api, const std::string& library) {
  wire::Compile job;
  job.unit_path = kUnit;
  job.unit_text = std::string("#if __has_include(\"") + kSeen + "\")\n#include \"" + kSeen +
                  "\"\n#endif\n"
                  "#ifndef CUKILN_SEEN\n#define CUKILN_SEEN 0\n#endif\n"
                  "#if __has_include(\"" +
                  library +
                  "\")\n#define CUKILN_LEAK 1\n#else\n"
                  "#define CUKILN_LEAK 0\n#endif\n"
                  "extern \"C\" __constant__ int cukiln_seen = CUKILN_SEEN;\n"
                  "extern \"C\" __constant__ int cukiln_leak = CUKILN_LEAK;\n"
                  "extern \"C\" __constant__ int cukiln_major = __CUDACC_VER_MAJOR__;\n"
                  "extern \"C\" __constant__ int cukiln_minor = __CUDACC_VER_MINOR__;\n"
                  "extern \"C\" __constant__ int cukiln_build = __CUDACC_VER_BUILD__;\n";
  ServedFiles& files = ServedFiles::instance();
  files.begin(nullptr, kUnit);
  files.add(kSeen, "#define CUKILN_SEEN 1\n");
  const wire::Compiled compiled = compile_with(api, job, NvrtcOutput::ptx);
  files.end();

  wire::Probed probed;
  if (compiled.status != wire::CompileStatus::ok) {
    probed.error = compiled.nvrtc_text + (compiled.log.empty() ? "" : "\n" + compiled.log);
    return probed;
  }
  const int major = value_of(compiled.image, "cukiln_major");
  const int minor = value_of(compiled.image, "cukiln_minor");
  const int build = value_of(compiled.image, "cukiln_build");
  if (major < 0 || minor < 0 || build < 0) {
    probed.error = "the probe's PTX does not tell the version";
    return probed;
  }
  probed.version =
      std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(build);
  probed.observed =
      value_of(compiled.image, "cukiln_seen") == 1 && value_of(compiled.image, "cukiln_leak") == 0;
  return probed;
}

}  // namespace cukiln::worker
