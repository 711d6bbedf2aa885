// SPDX-License-Identifier: Apache-2.0
#include "cli/disassembly.hpp"

#include <unistd.h>

#include <vector>

#include "cli/tool.hpp"
#include "core/base/file.hpp"
#include "core/base/result.hpp"
#include "core/loader/make_compiler.hpp"

namespace cukiln::cli {

namespace {

struct Disassembler {
  const char* name;
  std::vector<std::string> arguments;
};

/// Returns the `bin` folders in which to search, in the order in which NVRTC is searched.
std::vector<std::string> tool_folders(const LoaderOptions& options) {
  std::vector<std::string> folders;
  const auto add_root = [&](const std::string& root) {
    if (!root.empty()) {
      folders.push_back(join_path(root, "bin"));
      folders.push_back(join_path(root, "nvidia/cu13/bin"));
    }
  };
  if (const auto install = find_nvrtc(nvrtc_search(options))) {
    folders.push_back(join_path(folder_of(install->library), "../bin"));
  }
  const CudaPlaces& places = options.cuda_places;
  for (const std::string& root : {places.virtual_env, places.conda_prefix, places.cuda_home}) {
    add_root(root);
  }
  for (const std::string& root : NvrtcSearch::built_in_roots()) {
    add_root(root);
  }
  folders.emplace_back("/usr/local/cuda/bin");
  return folders;
}

}  // namespace

Result<std::string> disassemble(ByteView cubin, const LoaderOptions& options, bool source_lines) {
  Disassembler disassemblers[] = {{"nvdisasm", {"--print-code", "{}"}},
                                  {"cuobjdump", {"--dump-sass", "{}"}}};
  if (source_lines) {
    disassemblers[0].arguments.emplace_back("--print-line-info-inline");
  }
  const std::vector<std::string> folders = tool_folders(options);
  for (const Disassembler& tool : disassemblers) {
    std::vector<std::string> candidates;
    for (const std::string& folder : folders) {
      if (const std::string path = join_path(folder, tool.name);
          ::access(path.c_str(), X_OK) == 0) {
        candidates.push_back(path);
      }
    }
    candidates.emplace_back(tool.name);
    for (const std::string& program : candidates) {
      auto output = run_tool(program, tool.arguments, cubin);
      if (!output) {
        if (output.error().code() == ErrorCode::not_found) {
          continue;
        }
        return std::move(output).error();
      }
      if (output->exit_code != 0) {
        return Error(ErrorCode::io,
                     fmt::format("{} failed with exit code {}; --cubin -o F writes the cubin for "
                                 "another tool",
                                 program, output->exit_code),
                     std::move(output->text));
      }
      return std::move(output->text);
    }
  }
  return make_error(
      ErrorCode::not_found,
      "neither nvdisasm nor cuobjdump is in PATH or beside NVRTC; they come with the CUDA "
      "toolkit. --cubin -o F writes the cubin for use elsewhere");
}

}  // namespace cukiln::cli
