// SPDX-License-Identifier: Apache-2.0
#include "addons/link/worker/linker_api.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string_view>
#include <type_traits>
#include <vector>

#include "core/base/elf_image.hpp"

namespace cukiln {

namespace {

using LinkTextSize = int (*)(LinkerApi::Handle, std::size_t*);
using LinkText = int (*)(LinkerApi::Handle, char*);

std::string read_link_log(LinkerApi::Handle handle, LinkTextSize size_of, LinkText read) {
  std::size_t size = 0;
  if (size_of(handle, &size) != 0 || size == 0) {
    return {};
  }
  std::string text(size, '\0');
  if (read(handle, text.data()) != 0) {
    return {};
  }
  text.resize(std::min(text.find('\0'), text.size()));
  while (!text.empty() && text.back() == '\n') {
    text.pop_back();
  }
  return text;
}

void append_text(std::string& to, const std::string& text) {
  if (!text.empty()) {
    to += text;
    to += text.back() == '\n' ? "" : "\n";
  }
}

/// Removes the marks of the stream, `@O@` or `@E@`, with which nvJitLink 12.8 begins lines.
std::string without_marks(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size() - 1) + 1;
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end);
    if (line.substr(0, 3) == "@O@" || line.substr(0, 3) == "@E@") {
      line.remove_prefix(3);
    }
    out += line;
  }
  return out;
}

/// True if a line of nvJitLink's is an error: `error   : Multiple definition of 'k' …`.
bool says_error(std::string_view text) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    for (const std::string_view kind : {"error", "fatal", "ptxas error", "ptxas fatal"}) {
      if (line.substr(0, kind.size()) == kind) {
        return true;
      }
    }
  }
  return false;
}

}  // namespace

std::string LinkerApi::open(const std::string& library) {
  void* handle = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* text = ::dlerror();
    return text != nullptr ? text : "dlopen reported no reason";
  }
  std::string missing;
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(handle, name));
    if (function == nullptr && missing.empty()) {
      missing = library + " has no " + name + ": expected nvJitLink 12.3 or later";
    }
  };
  find(version, "nvJitLinkVersion");
  find(create, "nvJitLinkCreate");
  find(destroy, "nvJitLinkDestroy");
  find(add_data, "nvJitLinkAddData");
  find(add_file, "nvJitLinkAddFile");
  find(complete, "nvJitLinkComplete");
  find(cubin_size, "nvJitLinkGetLinkedCubinSize");
  find(cubin, "nvJitLinkGetLinkedCubin");
  find(error_log_size, "nvJitLinkGetErrorLogSize");
  find(error_log, "nvJitLinkGetErrorLog");
  find(info_log_size, "nvJitLinkGetInfoLogSize");
  find(info_log, "nvJitLinkGetInfoLog");
  return missing;
}

LinkInputType link_input_type(ByteView image) noexcept {
  constexpr std::string_view kLtoIr = "\xed\x43\x4e\x7f";
  constexpr std::string_view kFatbin = "\x50\xed\x55\xba";
  constexpr std::string_view kArchive = "!<arch>\n";
  const auto begins_with = [&](std::string_view magic) {
    return image.substr(0, magic.size()) == magic;
  };
  if (begins_with(kLtoIr)) return LinkInputType::lto_ir;
  if (begins_with(kFatbin)) return LinkInputType::fatbin;
  if (begins_with(kArchive)) return LinkInputType::library;
  if (const auto header = elf_header(image)) {
    return header->e_machine == EM_CUDA ? LinkInputType::cubin : LinkInputType::object;
  }
  const bool is_text = image.find('\0') == ByteView::npos;
  return is_text && image.find(".version") != ByteView::npos ? LinkInputType::ptx
                                                             : LinkInputType::any;
}

const char* linker_error_text(int code) noexcept {
  switch (code) {  // nvJitLinkResult of 12.8 to 13.5
    case 0: return "no error";
    case 1: return "an option is unknown to it";
    case 3: return "an input cannot be linked for this target";
    case 4: return "PTX does not compile";
    case 5: return "LTO-IR does not compile";
    case 8: return "an input has a format that it does not know";
    case 11: return "options contradict each other";
    case 12: return "an input is not what it was given as";
    case 13: return "an input is for another target";
    case 14: return "an input is of a newer version of CUDA than it";
    case 15: return "an object or library has no device code";
    case 16: return "the target is unknown to it";
    case 17: return "it does not support the target";
    case 18: return "LTO-IR is among the objects, and the link is without LTO";
    default: return "the link failed";
  }
}

StderrCapture::StderrCapture() {
  std::fflush(nullptr);
  // From the start: the log of a worker has room for some KiB, and what is beyond it is lost.
  ::lseek(STDERR_FILENO, 0, SEEK_SET);
}

std::string StderrCapture::text() const {
  std::fflush(nullptr);
  const off_t size = ::lseek(STDERR_FILENO, 0, SEEK_CUR);
  if (size <= 0) {
    return {};
  }
  std::string text(static_cast<std::size_t>(size), '\0');
  const ssize_t got = ::pread(STDERR_FILENO, text.data(), text.size(), 0);
  text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  return text;
}

wire::Compiled link_with(const LinkerApi& api, const wire::Link& job) {
  const StderrCapture capture;
  wire::Compiled out;
  LinkerApi::Handle handle = nullptr;
  std::vector<const char*> options;
  for (const std::string& option : job.options) {
    options.push_back(option.c_str());
  }
  int code = api.create(&handle, static_cast<std::uint32_t>(options.size()), options.data());
  for (const wire::LinkInput& input : job.inputs) {
    if (code == 0) {
      const ByteView image = input.image;
      code = api.add_data(handle, static_cast<int>(link_input_type(image)), image.data(),
                          image.size(), input.name.c_str());
    }
  }
  if (code == 0) {
    code = api.complete(handle);
  }
  std::size_t size = 0;
  if (code == 0 && (code = api.cubin_size(handle, &size)) == 0) {
    out.image.resize(size);
    code = api.cubin(handle, out.image.data());
  }
  if (handle != nullptr) {
    append_text(out.log, read_link_log(handle, api.error_log_size, api.error_log));
    append_text(out.log, read_link_log(handle, api.info_log_size, api.info_log));
    api.destroy(&handle);
  }
  const std::string reported = without_marks(capture.text());
  append_text(out.log, reported);
  constexpr int kFinalize = 9;
  code = code == 0 && says_error(reported) ? kFinalize : code;
  out.nvrtc_code = code;
  out.nvrtc_text = linker_error_text(code);
  out.status = code == 0 ? wire::CompileStatus::ok : wire::CompileStatus::failed;
  if (code != 0) {
    out.image.clear();
  }
  return out;
}

}  // namespace cukiln
