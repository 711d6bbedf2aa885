// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/compile/compile_job.hpp"
#include "core/key/compile_request.hpp"
#include "core/key/cubin.hpp"
#include "core/key/output_kind.hpp"
#include "core/loader/module_request.hpp"
#include "core/store/cubin_store.hpp"

#include <cukiln/digest.hpp>
#include <cukiln/loader.hpp>
#include <cukiln/target.hpp>

namespace cukiln::dropin {

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

/// Where the PTX of a program that was compiled to a cubin is.
struct PtxSource {
  /// Of compiles here, one for each. None is stored, since most programs do not ask for PTX.
  std::vector<StoreEntry> entries;
  SharedBytes text;  ///< of the compile that made the cubin; empty for a hit
  CompileRequest request;
  DependencySet dependencies;

  /// That of the PTX from the same files, whatever is in their places now.
  CacheKey key() const;
};

/// What NVRTC would have returned for a program.
struct ProgramResult {
  Cubin cubin;  ///< with a kernel for each name expression, in their order
  CacheKey key;
  Outcome outcome = Outcome::hit;
  std::string reason;
  std::int64_t compile_us = 0;  ///< what the compile took, here or earlier
  PtxSource ptx = {};
};

/// Under which names NVRTC sees the folders of a program. With `hidden` ones, which are the same on
/// every machine, the entry serves programs in other folders too.
enum class FolderNames { real, hidden };

/// True if the result of a program is likely not to show where it and its headers are: it is a
/// cubin or PTX, without line tables, and no text given spells a macro that names a file. NVRTC
/// puts the program's full name into LTO-IR and OptiX-IR.
bool may_hide_folders(const ProgramSpec& spec);

/// True if the result with hidden folders shows them, or a header on disk names its file, so that
/// something may have been computed from the name. Then the program needs its real names.
bool may_depend_on_folders(ByteView image, std::string_view log);

/// A program's request, and how to undo its names.
struct ProgramRequest {
  ModuleRequest request;
  /// Returns a log with the real folders in place of the hidden ones.
  std::string with_real_folders(std::string log) const;
  std::vector<std::pair<std::string, std::string>> folders;  ///< hidden and real
};
ProgramRequest make_program_request(const ProgramSpec& spec, const Toolchain& toolchain,
                                    FolderNames names);

/// Compiles a program, or finds what an earlier compile of it returned. `failure` is set if NVRTC
/// refused the program. Errors: the compiler's; incompatible (the result depends on the time or
/// was not observed, and what NVRTC returns in this process may differ).
Result<ProgramResult> compile_program(KernelLoader& loader, const ProgramSpec& spec,
                                      NvrtcFailure& failure);

}  // namespace cukiln::dropin
