// SPDX-License-Identifier: Apache-2.0
#include "addons/nvrtc/link.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <iterator>
#include <utility>

#include "core/base/clock.hpp"
#include "core/base/file.hpp"
#include "core/base/fork_gate.hpp"
#include "core/base/result.hpp"
#include "core/base/serial.hpp"
#include "core/loader/loader_services.hpp"
#include "core/loader/module_request.hpp"

#include <cukiln/blob_store.hpp>

namespace cukiln::dropin {

namespace {

using std::string_view;
using std::chrono::steady_clock;

constexpr string_view kKind = "nvjitlink";
// Written before each result, and alone where a step was accepted.
constexpr string_view kFormat = "cukiln link 1\n";
constexpr std::uint64_t kMaxInputBytes = 256ull << 20;
constexpr std::uint64_t kMaxLibraryBytes = 2ull << 30;
constexpr std::size_t kMaxAccepted = 1 << 16;
constexpr int kAny = 10;  // an input of which nvJitLink finds the type

std::int64_t microseconds_since(steady_clock::time_point begin) {
  return std::chrono::duration_cast<std::chrono::microseconds>(steady_clock::now() - begin).count();
}

/// A log has a zero behind it, also where its size is 0.
bool is_log(LinkPart part) noexcept {
  return part == LinkPart::error_log || part == LinkPart::info_log;
}

/// True for an option that changes the result alone. Others may name files or write them, and -time
/// and -verbose put times into the log.
bool is_stored(string_view option) {
  static constexpr string_view kWords[] = {
      "-lto", "-dlto",     "-ptx", "-g",  "-lineinfo", "-optimize-unused-variables",
      "-O0",  "-no-cache", "-O1",  "-O2", "-O3",       "-device-stack-protector"};
  static constexpr string_view kWithValue[] = {"-arch=",
                                               "-maxrregcount=",
                                               "-ftz=",
                                               "-prec-div=",
                                               "-prec-sqrt=",
                                               "-fma=",
                                               "-kernels-used=",
                                               "-variables-used=",
                                               "-split-compile=",
                                               "-Xptxas=",
                                               "-split-compile-extended=",
                                               "-jump-table-density="};
  const auto has_value = [&](string_view prefix) { return option.starts_with(prefix); };
  const auto has = [&](string_view word) { return option.find(word) != string_view::npos; };
  const bool may_name_file_or_time =
      option.starts_with("-Xptxas=") &&
      (!has("=-") || option.find_first_of("/@") != string_view::npos || has("file") ||
       has("optf") || has("dump") || has("=-v") || has("verbose") || has("time"));
  return !may_name_file_or_time &&
         (std::find(std::begin(kWords), std::end(kWords), option) != std::end(kWords) ||
          std::any_of(std::begin(kWithValue), std::end(kWithValue), has_value));
}

/// An input whose bytes are all that nvJitLink has of it: an index file would name others.
bool is_stored(int type) noexcept {
  constexpr int kLast = 6;  // a library
  return (type > 0 && type <= kLast) || type == kAny;
}

/// nvJitLink looks for a zero behind the bytes of a PTX that does not end with one. Where it finds
/// none, what it returns depends on more than it was given.
bool is_open_text(int type, const void* data, std::size_t bytes) noexcept {
  constexpr int kPtx = 2;
  constexpr string_view kBeginnings = "./ \t\r\n";
  const auto* const text = static_cast<const char*>(data);
  const bool is_text =
      type == kPtx || (type == kAny && kBeginnings.find(text[0]) != string_view::npos);
  return is_text && text[bytes - 1] != '\0' && text[bytes] != '\0';
}

/// True for a fat binary that is longer by its header: nvJitLink reads on, whatever size it is
/// given.
bool is_cut_fat_binary(string_view data) {
  struct {
    std::uint32_t magic;
    std::uint16_t version, header_bytes;
    std::uint64_t bytes;
  } header{};
  constexpr std::uint32_t kMagic = 0xba55ed50;
  std::memcpy(&header, data.data(), std::min(data.size(), sizeof header));
  return header.magic == kMagic &&
         (data.size() < header.header_bytes + header.bytes || header.bytes > kMaxInputBytes);
}

/// True if the file that the process has mapped was removed or replaced since.
bool was_replaced(const std::string& library) {
  const std::string removed = library + " (deleted)";
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.ends_with(removed)) {
      return true;
    }
  }
  return false;
}

}  // namespace

std::string LinkResult::encode() const {
  SerialWriter out;
  out.raw(kFormat).u64(static_cast<std::uint64_t>(link_us));
  for (const Output& part : parts) {
    out.u32(static_cast<std::uint32_t>(part.code)).bytes(part.bytes);
  }
  return out.take();
}

std::optional<LinkResult> LinkResult::decode(string_view bytes) {
  SerialReader in(bytes);
  LinkResult result;
  if (in.raw(kFormat.size()) != kFormat) {
    return std::nullopt;
  }
  result.link_us = static_cast<std::int64_t>(in.u64());
  for (Output& part : result.parts) {
    part.code = static_cast<int>(in.u32());
    part.bytes = in.bytes();
  }
  return whole(in, std::move(result));
}

LinkHost::LinkHost(const RealLinker& real, const char* report)
    : DropinStore({}, report), real_(real), library_(absolute_path(real.library)) {}

Result<LinkDigest> LinkHost::identity() {
  {
    const ForkSafeLock lock(known_mutex_);
    if (identity_) {
      return *identity_;
    }
  }
  CUKILN_TRY(const auto opened, open());
  if (const std::string& why = opened->store.bypass_reason(); !why.empty()) {
    return Error(ErrorCode::io, "nothing is stored on disk: " + why);
  }
  struct stat status {};
  if (::stat(library_.c_str(), &status) != 0) {
    return make_error(ErrorCode::io, "{} cannot be found", library_);
  }
  StatCache& stats = LoaderServices(opened->loader).stat_cache();
  const std::int64_t now = Clock::system().now_ns();
  LinkDigest digest;
  if (const auto known = stats.find(library_, stamp_of(status))) {
    digest = *known;
  } else {
    CUKILN_TRY(const HashedFile hashed, hash_file(library_, kMaxLibraryBytes));
    digest = hashed.digest;
    if (stats.trusts_stamps(library_)) {
      stats.put({library_, hashed.stamp, digest, {}, now});
    }
  }
  if (was_replaced(library_)) {
    return make_error(ErrorCode::io, "{} was replaced since it was opened", library_);
  }
  const ForkSafeLock lock(known_mutex_);
  identity_ = digest;
  return digest;
}

bool LinkHost::was_accepted(const LinkDigest& step) {
  const std::string name = step.hex();
  {
    const ForkSafeLock lock(known_mutex_);
    if (accepted_.contains(name)) {
      return true;
    }
  }
  const auto opened = open();
  if (!opened) {
    return false;
  }
  const auto known = BlobStore((*opened)->store).contains(kKind, name);
  if (!known || !*known) {
    return false;
  }
  const ForkSafeLock lock(known_mutex_);
  if (accepted_.size() >= kMaxAccepted) {
    accepted_.clear();
  }
  accepted_.insert(name);
  return true;
}

std::optional<LinkResult> LinkHost::find_result(const LinkDigest& step) {
  const auto opened = open();
  const auto blob = opened ? BlobStore((*opened)->store).get(kKind, step.hex())
                           : Result<std::optional<std::string>>(std::nullopt);
  return blob && *blob ? LinkResult::decode(**blob) : std::nullopt;
}

void LinkHost::put(const std::vector<LinkDigest>& steps, const LinkResult& result) {
  const auto opened = open();
  if (!opened) {
    return;
  }
  BlobStore store((*opened)->store);
  // The steps first: a result without them would be of no use.
  for (auto step = steps.begin(); step + 1 != steps.end(); ++step) {
    if (!was_accepted(*step)) {
      static_cast<void>(store.put(kKind, step->hex(), kFormat));
    }
  }
  static_cast<void>(store.put(kKind, steps.back().hex(), result.encode()));
}

Link::~Link() { destroy(); }

int Link::create(std::uint32_t count, const char* const* options) {
  const MutexLock lock(mutex_);
  const bool is_list = count > 0 && options != nullptr &&
                       std::find(options, options + count, nullptr) == options + count;
  if (!is_list) {  // an error of nvJitLink's
    is_real_ = true;
    bypass("an option is NULL");
    return checked(host_.real().create(&real_, count, options));
  }
  options_.assign(options, options + count);
  const auto environment = host_.real().environment_of_results;
  const char* const variable = environment != nullptr ? environment() : nullptr;
  const auto refused = std::find_if(options_.begin(), options_.end(), [](const auto& option) {
    return !is_stored(string_view(option));
  });
  if (variable != nullptr) {
    bypass("the variable " + std::string(variable));
  } else if (refused != options_.end()) {
    bypass("the option " + *refused);
  } else if (const auto identity = host_.identity(); !identity) {
    bypass(identity.error().message());
  } else {
    SerialWriter out;
    out.raw(kFormat).raw(view_of(*identity)).strings(options_);
    steps_.push_back(hash_of<LinkDigest>(out.view()));
    if (host_.was_accepted(steps_.back())) {
      return 0;
    }
  }
  return checked(make_real());
}

bool Link::has_handle() {
  const MutexLock lock(mutex_);
  return !is_real_ || real_ != nullptr;
}

int Link::add_real(const Input& input) {
  const auto begin = steady_clock::now();  // PTX is compiled here
  const int code = host_.real().add_data(real_, input.type, input.data.data(), input.data.size(),
                                         input.name ? input.name->c_str() : nullptr);
  real_us_ += microseconds_since(begin);
  return code;
}

/// Makes the link in the real nvJitLink, as far as it has come.
int Link::make_real() {
  const RealLinker& linker = host_.real();
  int code = 0;
  if (!is_real_) {
    is_real_ = true;
    std::vector<const char*> options;
    for (const std::string& option : options_) {
      options.push_back(option.c_str());
    }
    code = linker.create(&real_, static_cast<std::uint32_t>(options.size()), options.data());
    for (const Input& input : inputs_) {
      code = code == 0 ? add_real(input) : code;
    }
  }
  if (result_) {
    result_.reset();
    bypass("a call after the link");
    code = code == 0 ? linker.complete(real_) : code;
  }
  return code;
}

void Link::bypass(string_view why) {
  if (bypass_reason_.empty()) {
    bypass_reason_ = why;
  }
}

int Link::checked(int code) {
  if (code != 0) {
    bypass("an error");
    report("link-failed", 0, {});
  }
  return code;
}

int Link::add_data(int type, const void* data, std::size_t bytes, const char* name) {
  const MutexLock lock(mutex_);
  if (bypass_reason_.empty() && !result_ && is_stored(type) && data != nullptr && bytes > 0 &&
      !is_open_text(type, data, bytes) &&
      !is_cut_fat_binary({static_cast<const char*>(data), bytes})) {
    Input input{type, std::string(static_cast<const char*>(data), bytes), std::nullopt};
    if (name != nullptr) {
      input.name = name;
    }
    return add(std::move(input));
  }
  bypass(fmt::format("an input of type {}", type));
  const int code = make_real();
  return checked(code != 0 ? code : host_.real().add_data(real_, type, data, bytes, name));
}

int Link::add_file(int type, const char* path) {
  const MutexLock lock(mutex_);
  struct stat status {};  // a pipe can be read once
  const bool is_file = path != nullptr && ::stat(path, &status) == 0 && S_ISREG(status.st_mode);
  if (bypass_reason_.empty() && !result_ && is_stored(type) && is_file) {
    auto content = read_file(absolute_path(path), kMaxInputBytes);
    if (content && !content->bytes.empty() && !is_cut_fat_binary(content->bytes.view())) {
      return add({type, std::string(content->bytes.view()), path});
    }
  }
  bypass(fmt::format("the file {}", path != nullptr ? path : "NULL"));
  const int code = make_real();
  return checked(code != 0 ? code : host_.real().add_file(real_, type, path));
}

int Link::add(Input input) {
  SerialWriter out;
  out.raw(view_of(steps_.back())).u32(static_cast<std::uint32_t>(input.type));
  out.u8(input.name ? 1 : 0).bytes(input.name.value_or(""));
  steps_.push_back(hash_of<LinkDigest>({out.view(), input.data}));
  if (!is_real_ && host_.was_accepted(steps_.back())) {
    inputs_.push_back(std::move(input));
    return 0;
  }
  const int code = make_real();
  inputs_.push_back(std::move(input));
  return checked(code != 0 ? code : add_real(inputs_.back()));
}

int Link::complete() {
  const MutexLock lock(mutex_);
  if (bypass_reason_.empty() && !result_) {
    result_ = host_.find_result(steps_.back());
    if (result_) {
      report("link-hit", result_->link_us, {});
      return 0;
    }
  }
  const int code = make_real();
  return code != 0 ? checked(code) : complete_real();
}

int Link::complete_real() {
  const auto begin = steady_clock::now();
  const int code = host_.real().complete(real_);
  real_us_ += microseconds_since(begin);
  if (code != 0) {
    return checked(code);
  }
  if (!bypass_reason_.empty()) {
    report("link-bypassed", 0, bypass_reason_);
    return code;
  }
  LinkResult result = read_real();
  result.link_us = real_us_;
  host_.put(steps_, result);
  report("link-compiled", result.link_us, {});
  bypass("a second link");
  return code;
}

LinkResult Link::read_real() {
  const RealLinker& linker = host_.real();
  LinkResult result;
  for (int i = 0; i < kLinkParts; ++i) {
    LinkResult::Output& output = result.parts[i];
    const auto part = static_cast<LinkPart>(i);
    std::size_t size = 0;
    output.code = linker.size_of(real_, part, &size);
    if (output.code == 0) {
      output.bytes.resize(size + 1);  // an empty log has a zero nonetheless
      output.code = linker.bytes_of(real_, part, output.bytes.data());
      output.bytes.resize(size);
    }
  }
  return result;
}

int Link::size(LinkPart part, std::size_t* bytes) {
  const MutexLock lock(mutex_);
  if (result_ && bytes != nullptr) {
    const LinkResult::Output& known = result_->parts[static_cast<int>(part)];
    if (known.code == 0) {
      *bytes = known.bytes.size();
    }
    return known.code;
  }
  static_cast<void>(make_real());
  return host_.real().size_of(real_, part, bytes);
}

int Link::bytes(LinkPart part, void* out) {
  const MutexLock lock(mutex_);
  if (result_ && out != nullptr) {
    const LinkResult::Output& known = result_->parts[static_cast<int>(part)];
    if (known.code == 0) {
      const bool is_empty_log = is_log(part) && known.bytes.empty();
      std::memcpy(out, known.bytes.c_str(), known.bytes.size() + (is_empty_log ? 1 : 0));
    }
    return known.code;
  }
  static_cast<void>(make_real());
  return host_.real().bytes_of(real_, part, out);
}

int Link::destroy() {
  const MutexLock lock(mutex_);
  return real_ != nullptr ? host_.real().destroy(&real_) : 0;
}

void Link::report(string_view what, std::int64_t microseconds, string_view why) {
  if (!std::exchange(is_reported_, true)) {
    host_.report(what, microseconds, caller_, why);
  }
}

}  // namespace cukiln::dropin
