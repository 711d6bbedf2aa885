// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "key/compile_request.hpp"
#include "key/cubin.hpp"
#include "key/output_kind.hpp"
#include "loader/module_request.hpp"

#include <cukiln/digest.hpp>
#include <cukiln/loader.hpp>
#include <cukiln/target.hpp>

namespace cukiln {

/// A program as NVRTC's own interface gets it.
struct ProgramSpec {
  std::string name;  ///< as given to nvrtcCreateProgram
  std::string text;
  std::vector<std::pair<std::string, std::string>> headers;  ///< name and text, in order
  std::vector<std::string> options;                          ///< as given to nvrtcCompileProgram
  std::vector<std::string> name_expressions;  ///< in the order in which they were added
  std::string working_folder;                 ///< absolute; of the process
  Target target;
  OutputKind output = OutputKind::cubin;
};

/// What NVRTC would have returned for a program.
struct ProgramResult {
  Cubin cubin;  ///< with a kernel for each name expression, in their order
  CacheKey key;
  Outcome outcome = Outcome::hit;
  std::string reason;
  std::int64_t compile_us = 0;  ///< what the compile took, here or earlier
};

/// Creates the request of a program: what it names is looked for under its real name.
ModuleRequest make_program_request(const ProgramSpec& spec, const Toolchain& toolchain);

}  // namespace cukiln
