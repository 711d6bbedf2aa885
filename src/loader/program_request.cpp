// SPDX-License-Identifier: Apache-2.0
#include "loader/program_request.hpp"

#include <filesystem>

#include <fmt/format.h>

namespace cukiln {

ModuleRequest make_program_request(const ProgramSpec& spec, const Toolchain& toolchain) {
  ModuleRequest out;
  out.request.sources.emplace_back(spec.name, SharedBytes(std::string(spec.text)));
  out.source_files.emplace_back();  // in memory
  out.request.options = {spec.options, spec.name_expressions};
  out.request.target = spec.target;
  out.request.toolchain = toolchain;
  NvrtcProgram& program = out.request.program.emplace();
  program.output = spec.output;
  program.working_folder = spec.working_folder;
  for (const auto& [name, text] : spec.headers) {
    program.headers.emplace_back(name, SharedBytes(std::string(text)));
  }
  out.canonical = out.request.canonical();
  out.digest = CompileRequest::digest_of(out.canonical);
  out.source = spec.name;
  out.kernel_names = spec.name_expressions;
  const std::filesystem::path path = spec.name;
  out.name = path.stem().string();
  out.labels = {out.name, path.filename().string(), spec.target.name(),
                fmt::format("{}", fmt::join(spec.options, " ")), "nvrtc " + toolchain.version};
  return out;
}

}  // namespace cukiln
