// SPDX-License-Identifier: Apache-2.0
#include "addons/nvrtc/program.hpp"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <system_error>
#include <utility>

#include "core/key/time_macro.hpp"

namespace cukiln::dropin {

namespace {

Part part_of(OutputKind kind) noexcept {
  switch (kind) {
    case OutputKind::cubin: return Part::cubin;
    case OutputKind::ptx: return Part::ptx;
    case OutputKind::lto_ir: return Part::lto_ir;
    case OutputKind::optix_ir: return Part::optix_ir;
    case OutputKind::failure: return Part::log;
  }
  return Part::cubin;
}

/// Log and PTX end with a zero, which counts; an absent one is the zero alone.
bool is_text(Part part) noexcept { return part == Part::log || part == Part::ptx; }

std::vector<const char*> pointers_to(const std::vector<std::string>& texts) {
  std::vector<const char*> pointers;
  for (const std::string& text : texts) {
    pointers.push_back(text.c_str());
  }
  return pointers;
}

/// True for a program that the front end took: NVRTC then has its PTX. Only the assembler's errors
/// name ptxas.
bool is_refused_by_assembler(const NvrtcFailure& failure) {
  const std::string& log = failure.log;
  return failure.code == kCompilation &&
         (log.starts_with("ptxas") || log.find("\nptxas") != std::string::npos);
}

/// The working folder by the name that NVRTC writes into line tables, LTO-IR and OptiX-IR: that of
/// PWD if it names this folder, as through a link. Empty if the folder is gone.
std::string working_folder(const char* pwd) {
  std::error_code error;
  std::string folder = std::filesystem::current_path(error).string();  // empty if there is an error
  if (pwd != nullptr && *pwd == '/' && folder != pwd &&
      std::filesystem::equivalent(pwd, ".", error)) {
    folder = pwd;
  }
  return folder;
}

int compile_real(const NvrtcFunctions& nvrtc, Handle program, int count,
                 const char* const* options) {
  if (count <= 0 || options == nullptr) {
    return nvrtc.compile(program, count, options);
  }
  const auto is_of_pch = [](const char* option) {
    return option != nullptr && is_of_precompiled_headers(option);
  };
  const bool is_alone = std::count_if(options, options + count, is_of_pch) == 1;
  std::vector<const char*> kept;
  std::copy_if(options, options + count, std::back_inserter(kept), [&](const char* option) {
    return option == nullptr || !is_alone || !uses_absent_precompiled_header(option);
  });
  return nvrtc.compile(program, static_cast<int>(kept.size()), kept.data());
}

bool spells_time(const std::string& text) { return !find_time_macro(text).empty(); }

}  // namespace

Program::Program(Host& host, const void* caller, std::string text, std::string name,
                 std::vector<std::pair<std::string, std::string>> headers)
    : host_(host),
      caller_(caller),
      text_(std::move(text)),
      name_(std::move(name)),
      headers_(std::move(headers)),
      spells_time_(spells_time(text_) ||
                   std::any_of(headers_.begin(), headers_.end(),
                               [](const auto& header) { return spells_time(header.second); })) {}

Program::~Program() {
  if (real_ != nullptr) {
    host_.real().destroy(&real_);
  }
}

/// Makes the program in the real NVRTC, with the results that it would have by now.
int Program::make_real() {
  if (real_ != nullptr) {
    return kSuccess;
  }
  const NvrtcFunctions& nvrtc = host_.real();
  if (nvrtc.create == nullptr) {
    return kInternalError;  // it was found, and cannot be opened
  }
  std::vector<const char*> names;
  std::vector<const char*> texts;
  for (const auto& [name, text] : headers_) {
    names.push_back(name.c_str());
    texts.push_back(text.c_str());
  }
  Handle made = nullptr;
  int code = nvrtc.create(&made, text_.c_str(), name_.c_str(), static_cast<int>(headers_.size()),
                          texts.data(), names.data());
  for (const std::string& expression : expressions_) {
    if (code == kSuccess) {
      code = nvrtc.add_name(made, expression.c_str());
    }
  }
  for (const auto& [output, options] : options_) {  // if the next compile fails, the results stay
    if (code == kSuccess) {
      code =
          compile_real(nvrtc, made, static_cast<int>(options.size()), pointers_to(options).data());
    }
  }
  if (code == kSuccess) {
    real_ = made;
  } else if (made != nullptr) {
    nvrtc.destroy(&made);
  }
  return code;
}

int Program::bypass(int count, const char* const* options, const std::string& why) {
  report("bypassed", 0, why);
  const int code = make_real();
  return code == kSuccess ? compile_real(host_.real(), real_, count, options) : code;
}

int Program::compile(int count, const char* const* options) {
  const MutexLock lock(mutex_);
  if (real_ != nullptr) {
    return compile_real(host_.real(), real_, count, options);
  }
  if (count < 0) {
    return kInvalidInput;
  }
  if (count > 0 && options == nullptr) {
    return kInvalidOption;
  }
  if (std::find(options, options + count, nullptr) != options + count) {
    return bypass(count, options, "an option is NULL");
  }
  const std::vector<std::string> copied(options, options + count);
  const Asked asked = read_options(copied, [this] { return host_.default_capability(); });
  const auto environment = host_.nvrtc().environment_of_results;
  const char* const variable = environment != nullptr ? environment() : nullptr;
  if (variable != nullptr) {
    return bypass(count, options, "the variable " + std::string(variable));
  }
  if (spells_time_ || std::any_of(copied.begin(), copied.end(), spells_time)) {
    return bypass(count, options, "a macro of the date or the time");
  }
  if (!asked.bypass_reason.empty()) {
    return bypass(count, options, asked.bypass_reason);
  }
  const auto pwd = host_.nvrtc().pwd;
  working_folder_ = working_folder(pwd != nullptr ? pwd() : nullptr);
  ProgramSpec spec = spec_of(copied, asked);
  if (spec.working_folder.empty()) {
    return bypass(count, options, "the working folder is gone");
  }
  NvrtcFailure failure;
  auto result = host_.compile(spec, failure);
  if (!result && failure.code == kSuccess) {
    return bypass(count, options, result.error().message());
  }
  if (!result) {
    report("failed", 0, name_);
    takes_names_ = takes_names_ && failure.code == kInvalidOption;
    // NVRTC keeps the other results, of the last success, but where the assembler had begun.
    outputs_[static_cast<int>(Part::ptx)] = {};
    lacks_ptx_ = asked.output == OutputKind::cubin && is_refused_by_assembler(failure);
    if (lacks_ptx_) {
      outputs_[static_cast<int>(Part::cubin)] = {};
    }
    ptx_options_ = copied;
    log_ = std::move(failure.log);
    return failure.code;
  }
  report(result->outcome == Outcome::hit ? "hit" : "compiled", result->compile_us, name_);
  std::erase_if(options_, [&](const auto& known) { return known.first == asked.output; });
  options_.emplace_back(asked.output, copied);
  ptx_options_ = copied;
  take(*std::move(result), asked);
  return kSuccess;
}

ProgramSpec Program::spec_of(const std::vector<std::string>& options, const Asked& asked) const {
  std::vector<std::string> kept;
  std::copy_if(options.begin(), options.end(), std::back_inserter(kept),
               [](const std::string& option) { return !is_of_precompiled_headers(option); });
  return {name_,        text_,           headers_,     std::move(kept),
          expressions_, working_folder_, asked.target, asked.output};
}

void Program::take(ProgramResult result, const Asked& asked) {
  is_compiled_ = true;
  takes_names_ = false;
  log_ = std::move(result.cubin.log);
  for (std::size_t i = 0; i < expressions_.size() && i < result.cubin.kernels.size(); ++i) {
    lowered_[expressions_[i]] = result.cubin.kernels[i].lowered;
  }
  outputs_[static_cast<int>(Part::ptx)] = {};
  outputs_[static_cast<int>(part_of(asked.output))] = std::move(result.cubin.image);
  lacks_ptx_ = asked.output == OutputKind::cubin;
  if (lacks_ptx_) {
    ptx_ = std::move(result.ptx);
  }
}

/// Finds the PTX of a program that was compiled to a cubin, or compiles it. False if the real NVRTC
/// has to.
bool Program::fetch_ptx() {
  if (options_.empty() || options_.back().second != ptx_options_) {
    return false;  // of a compile that the assembler refused
  }
  if (auto ptx = host_.ptx_of(ptx_)) {
    outputs_[static_cast<int>(Part::ptx)] = *std::move(ptx);
    lacks_ptx_ = false;
    return true;
  }
  Asked asked = read_options(ptx_options_, [this] { return host_.default_capability(); });
  asked.output = OutputKind::ptx;
  NvrtcFailure failure;
  auto result = host_.compile(spec_of(ptx_options_, asked), failure);
  if (!result) {
    return false;
  }
  if (result->outcome != Outcome::hit) {  // the program was reported when it was compiled
    report("compiled", result->compile_us, name_);
  }
  outputs_[static_cast<int>(Part::ptx)] = std::move(result->cubin.image);
  lacks_ptx_ = false;
  return true;
}

int Program::add_name(const char* expression) {
  const MutexLock lock(mutex_);
  if (expression == nullptr) {
    return kInvalidInput;
  }
  if (!takes_names_) {
    return kNamesAfterCompile;
  }
  if (real_ != nullptr) {
    return host_.real().add_name(real_, expression);
  }
  expressions_.emplace_back(expression);
  return kSuccess;
}

int Program::lowered_name(const char* expression, const char** lowered) {
  const MutexLock lock(mutex_);
  if (real_ != nullptr) {
    return host_.real().lowered_name(real_, expression, lowered);
  }
  if (expression == nullptr || lowered == nullptr) {
    return kInvalidInput;
  }
  *lowered = nullptr;
  if (!is_compiled_) {
    return kLoweredBeforeCompile;
  }
  const auto known = lowered_.find(expression);
  if (known == lowered_.end()) {
    return kNameNotValid;
  }
  *lowered = known->second.c_str();
  return kSuccess;
}

ByteView Program::stored(Part part) const {
  return part == Part::log ? ByteView(log_) : outputs_[static_cast<int>(part)].view();
}

int Program::size(Part part, std::size_t* bytes) {
  const MutexLock lock(mutex_);
  if (bytes == nullptr) {
    return kInvalidInput;
  }
  if (real_ == nullptr && part == Part::ptx && lacks_ptx_ && !fetch_ptx()) {
    // A failure is no error here: the assembler may refuse the program again, and the PTX is there.
    static_cast<void>(bypass(static_cast<int>(ptx_options_.size()),
                             pointers_to(ptx_options_).data(), "PTX of a cubin"));
    if (real_ == nullptr) {
      return kInternalError;
    }
  }
  if (real_ != nullptr) {
    const SizeFunction real = host_.real().size[static_cast<int>(part)];
    return real != nullptr ? real(real_, bytes) : kInternalError;
  }
  *bytes = stored(part).size() + (is_text(part) ? 1 : 0);
  return kSuccess;
}

int Program::bytes(Part part, char* out) {
  std::size_t ignored = 0;
  if (part == Part::ptx && out != nullptr) {
    static_cast<void>(size(part, &ignored));  // makes it
  }
  const MutexLock lock(mutex_);
  if (out == nullptr) {
    return kInvalidInput;
  }
  if (real_ != nullptr) {
    const BytesFunction real = host_.real().bytes[static_cast<int>(part)];
    return real != nullptr ? real(real_, out) : kInternalError;
  }
  const ByteView bytes = stored(part);
  if (!bytes.empty()) {
    std::memcpy(out, bytes.data(), bytes.size());
  }
  if (is_text(part)) {
    out[bytes.size()] = '\0';
  }
  return kSuccess;
}

int Program::pch_status() {
  const MutexLock lock(mutex_);
  return real_ != nullptr && host_.real().pch_status != nullptr ? host_.real().pch_status(real_)
                                                                : kNoPchAttempted;
}

int Program::pch_heap_required(std::size_t* bytes) {
  const MutexLock lock(mutex_);
  if (real_ != nullptr && host_.real().pch_heap_required != nullptr) {
    return host_.real().pch_heap_required(real_, bytes);
  }
  if (bytes == nullptr) {
    return kInvalidInput;
  }
  *bytes = 0;
  return kSuccess;
}

int Program::set_flow_callback(int (*callback)(void*, void*), void* payload) {
  const MutexLock lock(mutex_);
  if (callback == nullptr) {
    return kInvalidInput;
  }
  if (host_.real().set_flow_callback == nullptr) {
    return kInternalError;
  }
  const int code = make_real();  // it may cancel the compile, which no other process can know of
  if (code != kSuccess) {
    return code;
  }
  const int set = host_.real().set_flow_callback(real_, callback, payload);
  if (set == kSuccess) {
    report("bypassed", 0, "a flow callback");  // NVRTC itself compiles it from now on
  }
  return set;
}

}  // namespace cukiln::dropin
