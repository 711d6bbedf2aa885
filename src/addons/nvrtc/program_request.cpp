// SPDX-License-Identifier: Apache-2.0
#include "addons/nvrtc/program_request.hpp"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <string_view>
#include <utility>

#include "core/base/file.hpp"
#include "core/base/result.hpp"
#include "core/key/file_macro.hpp"
#include "core/loader/loader_services.hpp"

namespace cukiln::dropin {

namespace {

using std::string_view;

constexpr string_view kHidden = "/cukiln/";
constexpr string_view kHiddenInPtx = "47, 99, 117, 107, 105, 108, 110, 47";  // as bytes of data

bool names_files(string_view text) {
  return names_its_file(text) || text.find("assert") != string_view::npos;
}

bool makes_line_tables(string_view option) {
  static constexpr string_view kOptions[] = {
      "-lineinfo", "--generate-line-info", "-G", "--device-debug", "-include", "--pre-include"};
  return std::any_of(std::begin(kOptions), std::end(kOptions),
                     [&](string_view known) { return option.starts_with(known); });
}

/// True if a folder, a slash and a name make the same path in NVRTC as here.
bool is_plain_folder(string_view folder) {
  return folder.size() > 1 && folder.front() == '/' && folder.back() != '/' &&
         string_view(" \t\n\v\f\r").find(folder.back()) == string_view::npos &&  // NVRTC drops it
         std::filesystem::path(folder).lexically_normal() == folder;
}

/// The folder of an include option, as a part of it; empty if it is none.
string_view folder_in(string_view option) {
  for (const string_view prefix : {"--include-path=", "-I=", "-I"}) {
    if (option.starts_with(prefix)) {
      return option.substr(prefix.size());
    }
  }
  return {};
}

/// Replaces the folders of a program by hidden ones.
void hide_folders(const ProgramSpec& spec, ProgramRequest& out) {
  const auto hide = [&](const std::string& hidden, const std::string& real) {
    out.folders.emplace_back(hidden, real);
    out.request.roots.push_back({hidden, {real}});
  };
  CompileRequest& request = out.request.request;
  request.program->working_folder = kWorkRoot;
  hide(kWorkRoot, spec.working_folder);
  const std::string folder = folder_of(spec.name);
  if (is_plain_folder(folder)) {
    hide(kSourceRoot, folder);
    request.sources.front().path = kSourceRoot + spec.name.substr(folder.size());
  }
  int count = 0;
  for (std::string& option : request.options.arguments) {
    const std::string real(folder_in(option));
    if (!is_plain_folder(real)) {
      continue;
    }
    std::string hidden;
    for (const auto& [name, place] : out.folders) {
      if (place == real && is_within(name, kIncludeRoot)) {
        hidden = name;
      }
    }
    if (hidden.empty()) {
      hidden = fmt::format("{}/{}", kIncludeRoot, count++);
      hide(hidden, real);
    }
    option.replace(option.size() - real.size(), real.size(), hidden);
  }
}

/// Makes of a cubin's entry and request those of the PTX from the same compile, as a program that
/// asks for PTX looks it up.
StoreEntry ptx_entry(StoreEntry entry, CompileRequest request) {
  request.program->output = OutputKind::ptx;
  entry.set_request(request.canonical());
  entry.cubin.image = std::exchange(entry.cubin.ptx, {});
  entry.compile_us = 0;  // a hit saves the time once, and the cubin's entry has it
  return entry;
}

}  // namespace

bool may_hide_folders(const ProgramSpec& spec) {
  const bool has_plain_output = spec.output == OutputKind::cubin || spec.output == OutputKind::ptx;
  const auto names = [](const auto& text) { return names_files(text); };
  return has_plain_output && is_plain_folder(spec.working_folder) && !names(spec.text) &&
         std::none_of(spec.headers.begin(), spec.headers.end(),
                      [&](const auto& header) { return names(header.second); }) &&
         std::none_of(spec.name_expressions.begin(), spec.name_expressions.end(), names) &&
         std::none_of(spec.options.begin(), spec.options.end(), [&](const auto& option) {
           return names(option) || makes_line_tables(option);
         });
}

bool may_depend_on_folders(ByteView image, string_view log) {
  return image.find(kHidden) != ByteView::npos || image.find(kHiddenInPtx) != ByteView::npos ||
         log.ends_with(kNamesItsFile);
}

std::string ProgramRequest::with_real_folders(std::string log) const {
  if (log.find(kHidden) == std::string::npos) {
    return log;
  }
  std::string out;
  string_view rest = log;
  while (!rest.empty()) {
    const std::size_t at = std::min(rest.find(kHidden), rest.size());
    out += rest.substr(0, at);
    rest.remove_prefix(at);
    const auto folder = std::find_if(folders.begin(), folders.end(), [&](const auto& one) {
      return rest.starts_with(one.first) && rest.substr(one.first.size()).starts_with("/");
    });
    if (folder != folders.end()) {
      out += folder->second;
      rest.remove_prefix(folder->first.size());
    } else if (!rest.empty()) {
      out += rest.front();
      rest.remove_prefix(1);
    }
  }
  return out;
}

CacheKey PtxSource::key() const {
  CompileRequest of_ptx = request;
  of_ptx.program->output = OutputKind::ptx;
  return cache_key_of(CompileRequest::digest_of(of_ptx.canonical()), dependencies.canonical());
}

ProgramRequest make_program_request(const ProgramSpec& spec, const Toolchain& toolchain,
                                    FolderNames names) {
  ProgramRequest out;
  ModuleRequest& made = out.request;
  made.request.sources.emplace_back(spec.name, SharedBytes(std::string(spec.text)));
  made.source_files.emplace_back();  // in memory
  made.request.options = {spec.options, spec.name_expressions};
  made.request.target = spec.target;
  made.request.toolchain = toolchain;
  NvrtcProgram& program = made.request.program.emplace();
  program.output = spec.output;
  program.working_folder = spec.working_folder;
  for (const auto& [name, text] : spec.headers) {
    made.request.headers.emplace_back(name, SharedBytes(std::string(text)));
  }
  if (names == FolderNames::hidden) {
    hide_folders(spec, out);
  }
  made.canonical = made.request.canonical();
  made.digest = CompileRequest::digest_of(made.canonical);
  made.source = spec.name;
  made.kernel_names = spec.name_expressions;
  const std::filesystem::path path = spec.name;
  made.name = path.stem().string();
  made.labels = {made.name, path.filename().string(), spec.target.name(),
                 fmt::format("{}", fmt::join(made.request.options.arguments, " ")),
                 "nvrtc " + toolchain.version};
  return out;
}

Result<ProgramResult> compile_program(KernelLoader& loader, const ProgramSpec& spec,
                                      NvrtcFailure& failure) {
  PtxSource ptx;
  const auto compile = [&](FolderNames names) -> Result<ProgramResult> {
    ProgramRequest program;
    const auto make = [&](const Toolchain& toolchain) {
      program = make_program_request(spec, toolchain, names);
      return program.request;
    };
    auto built = LoaderServices(loader).build(spec.target, make, failure);
    if (!built) {
      failure.log = program.with_real_folders(std::move(failure.log));
      return std::move(built).error();
    }
    if (built->not_stored && built->not_stored->code() == ErrorCode::incompatible) {
      return std::move(*built->not_stored).with_context(program.request.name);
    }
    ptx.text = built->entry.cubin.ptx;
    if (!ptx.text.empty()) {
      ptx.entries.push_back(ptx_entry(built->entry, program.request.request));
    }
    ptx.request = std::move(program.request.request);
    ptx.dependencies = std::move(built->entry.dependencies);
    Cubin& cubin = built->entry.cubin;
    cubin.log = program.with_real_folders(std::move(cubin.log));
    return ProgramResult{std::move(cubin), built->entry.key, built->outcome,
                         std::move(built->reason), built->entry.compile_us};
  };
  auto result = guarded([&] {
    if (may_hide_folders(spec)) {
      auto hidden = compile(FolderNames::hidden);
      if (hidden ? !may_depend_on_folders(hidden->cubin.image, hidden->cubin.log)
                 : !may_depend_on_folders({}, failure.log)) {
        return hidden;
      }
      failure = {};
    }
    return compile(FolderNames::real);
  });
  if (result) {
    result->ptx = std::move(ptx);
  }
  return result;
}

}  // namespace cukiln::dropin
