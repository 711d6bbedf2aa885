// SPDX-License-Identifier: Apache-2.0
#include "core/compile/nvrtc_api.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "core/key/compile_request.hpp"

namespace cukiln {

namespace {

std::string last_dl_error() {
  const char* text = ::dlerror();
  return text != nullptr ? text : "dlopen reported no reason";
}

// NVRTC's sizes include the terminating zero.
using SizeFunction = int (*)(NvrtcApi::Program, std::size_t*);
using TextFunction = int (*)(NvrtcApi::Program, char*);

std::string read_text(NvrtcApi::Program program, SizeFunction size_of, TextFunction read) {
  std::size_t size = 0;
  if (size_of == nullptr || read == nullptr || size_of(program, &size) != 0 || size == 0) {
    return {};
  }
  std::string text(size, '\0');
  if (read(program, text.data()) != 0) {
    return {};
  }
  return text;
}

std::string without_final_zeros(std::string text) {
  while (!text.empty() && text.back() == '\0') {
    text.pop_back();
  }
  return text;
}

}  // namespace

std::string NvrtcApi::open(const std::string& library, const std::string& builtins) {
  if (!builtins.empty() && ::dlopen(builtins.c_str(), RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    return last_dl_error();
  }
  void* handle = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return last_dl_error();
  }
  std::string missing;
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(handle, name));
    if (function == nullptr && missing.empty()) {
      missing = library + " has no " + name + ": expected NVRTC 11.3 or later";
    }
  };
  find(version, "nvrtcVersion");
  find(error_string, "nvrtcGetErrorString");
  find(create_program, "nvrtcCreateProgram");
  find(destroy_program, "nvrtcDestroyProgram");
  find(compile_program, "nvrtcCompileProgram");
  find(add_name_expression, "nvrtcAddNameExpression");
  find(lowered_name, "nvrtcGetLoweredName");
  find(log_size, "nvrtcGetProgramLogSize");
  find(log, "nvrtcGetProgramLog");
  find(ptx_size, "nvrtcGetPTXSize");
  find(ptx, "nvrtcGetPTX");
  find(cubin_size, "nvrtcGetCUBINSize");
  find(cubin, "nvrtcGetCUBIN");
  const auto find_optional = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(handle, name));
  };
  find_optional(lto_ir_size, "nvrtcGetLTOIRSize");
  find_optional(lto_ir, "nvrtcGetLTOIR");
  find_optional(optix_ir_size, "nvrtcGetOptiXIRSize");
  find_optional(optix_ir, "nvrtcGetOptiXIR");
  find_optional(tile_ir_size, "nvrtcGetTileIRSize");
  find_optional(num_supported_archs, "nvrtcGetNumSupportedArchs");
  find_optional(supported_archs, "nvrtcGetSupportedArchs");
  find_optional(install_bundled_headers, "nvrtcInstallBundledHeaders");
  return missing;
}

std::vector<std::uint32_t> NvrtcApi::list_capabilities() const {
  int count = 0;
  constexpr int kMaxCount = 1000;
  if (num_supported_archs == nullptr || supported_archs == nullptr ||
      num_supported_archs(&count) != 0 || count <= 0 || count > kMaxCount) {
    return {};
  }
  std::vector<int> archs(static_cast<std::size_t>(count));
  if (supported_archs(archs.data()) != 0) {
    return {};
  }
  return {archs.begin(), archs.end()};
}

OutputKind output_of(const std::vector<std::string>& arguments) {
  const bool is_virtual =
      std::any_of(arguments.begin(), arguments.end(), [](const std::string& argument) {
        return argument.starts_with("--gpu-architecture=compute_");
      });
  const bool is_lto =
      std::find(arguments.begin(), arguments.end(), kLtoArgument) != arguments.end();
  return is_virtual ? OutputKind::ptx : is_lto ? OutputKind::lto_ir : OutputKind::cubin;
}

namespace {

std::string read_output(const NvrtcApi& api, NvrtcApi::Program program, OutputKind kind) {
  switch (kind) {
    case OutputKind::cubin: return read_text(program, api.cubin_size, api.cubin);
    case OutputKind::ptx: return without_final_zeros(read_text(program, api.ptx_size, api.ptx));
    case OutputKind::lto_ir: return read_text(program, api.lto_ir_size, api.lto_ir);
    case OutputKind::optix_ir: return read_text(program, api.optix_ir_size, api.optix_ir);
    case OutputKind::failure: break;
  }
  return {};
}

/// True if a program has an intermediate representation that its owner does not ask for: options
/// that the owner did not read as NVRTC does.
bool has_others(const NvrtcApi& api, NvrtcApi::Program program, OutputKind kind) {
  const auto has = [program](SizeFunction size_of) {
    std::size_t size = 0;
    return size_of != nullptr && size_of(program, &size) == 0 && size != 0;
  };
  return (kind != OutputKind::lto_ir && has(api.lto_ir_size)) ||
         (kind != OutputKind::optix_ir && has(api.optix_ir_size)) || has(api.tile_ir_size);
}

}  // namespace

wire::Compiled compile_with(const NvrtcApi& api, const wire::Compile& job, OutputKind output,
                            const std::vector<NamedHeader>& headers) {
  const auto begin = std::chrono::steady_clock::now();
  wire::Compiled out;
  NvrtcApi::Program program = nullptr;
  std::vector<const char*> names;
  std::vector<const char*> texts;
  for (const NamedHeader& header : headers) {
    names.push_back(header.name.c_str());
    texts.push_back(header.text.c_str());
  }
  int code = api.create_program(&program, job.unit_text.c_str(), job.unit_path.c_str(),
                                static_cast<int>(headers.size()), texts.data(), names.data());
  for (const std::string& expression : job.name_expressions) {
    if (code == 0) {
      code = api.add_name_expression(program, expression.c_str());
    }
  }
  if (code == 0) {
    std::vector<const char*> arguments;
    for (const std::string& argument : job.arguments) {
      arguments.push_back(argument.c_str());
    }
    code = api.compile_program(program, static_cast<int>(arguments.size()), arguments.data());
    out.log = read_text(program, api.log_size, api.log);
    if (!job.is_program) {
      out.log = without_final_zeros(std::move(out.log));
    } else if (!out.log.empty()) {
      out.log.pop_back();  // one: NVRTC returns a second one behind the assembler's messages
    }
  }
  if (code == 0) {
    if (!job.is_program || !has_others(api, program, output)) {
      out.image = read_output(api, program, output);
    }
    if (job.is_program && output == OutputKind::cubin) {
      out.ptx = read_output(api, program, OutputKind::ptx);
    }
    for (const std::string& expression : job.name_expressions) {
      const char* lowered = nullptr;
      if (code == 0 && (code = api.lowered_name(program, expression.c_str(), &lowered)) == 0) {
        out.lowered.emplace_back(lowered);
      }
    }
  }
  out.nvrtc_code = code;
  out.nvrtc_text = api.error_string(code);
  out.status = code == 0                   ? wire::CompileStatus::ok
               : code == kNvrtcOutOfMemory ? wire::CompileStatus::out_of_memory
               : code == kNvrtcCompilation ? wire::CompileStatus::failed
                                           : wire::CompileStatus::unusable;
  if (program != nullptr) {
    api.destroy_program(&program);
  }
  out.compile_us = std::chrono::duration_cast<std::chrono::microseconds>(
                       std::chrono::steady_clock::now() - begin)
                       .count();
  return out;
}

}  // namespace cukiln
