// SPDX-License-Identifier: Apache-2.0
#include "nvfp4/host/stored_tactics.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <tuple>

#include "core/base/result.hpp"
#include "nvfp4/host/checks.hpp"

#include <cukiln/manifest.hpp>

namespace cukiln::nvfp4::detail {
namespace {

constexpr std::string_view kFirstLine = "cukiln tactics 1";  // the format
constexpr std::string_view kColumns = "n k m kernel splits nanoseconds";
constexpr std::size_t kMaxTacticsBytes = 1u << 20;

template <class... Args>
Error refused(fmt::format_string<const Args&...> format, const Args&... args) {
  return make_error<const Args&...>(ErrorCode::invalid_argument, format, args...);
}

/// FNV-1a of texts or their digests. Accidental equality is all that it must exclude: a process
/// that can write to a store may write tactics too.
class SourceHash {
 public:
  void add(std::string_view bytes) noexcept {
    for (const char c : bytes) {
      add_byte(static_cast<unsigned char>(c));
    }
    add_byte(0);
  }
  void add(const Source& source) noexcept {
    const auto* const embedded = std::get_if<SourceLiteral>(&source);
    add(name_of(source));
    add(embedded != nullptr && !embedded->digest.empty() ? embedded->digest
                                                         : text_of(source).value_or(""));
  }
  std::uint64_t value() const noexcept { return hash_; }

 private:
  void add_byte(unsigned char byte) noexcept { hash_ = (hash_ ^ byte) * 0x100000001b3u; }
  std::uint64_t hash_ = 0xcbf29ce484222325u;
};

std::uint64_t digest_of_sources(const GemmArchitecture& architecture) {
  const auto has_kernel_of = [&](const ModuleSpec& module) {
    return std::any_of(architecture.kernels, architecture.kernels + architecture.kernel_count,
                       [&](const GemmKernel& kernel) { return module.name == kernel.module; });
  };
  SourceHash hash;
  for (const ModuleSpec& module : manifest().modules()) {
    if (!has_kernel_of(module)) {
      continue;
    }
    hash.add(module.name);
    for (const auto* const sources : {&module.sources, &module.headers}) {
      for (const Source& source : *sources) {
        hash.add(source);
      }
    }
    for (const auto& [name, value] : module.define) {
      hash.add(name);
      hash.add(value);
    }
    for (const std::string& flag : module.flags) {
      hash.add(flag);
    }
  }
  return hash.value();
}

/// Takes the text up to a separator from the front of `rest`.
std::string_view take_until(std::string_view& rest, char separator) noexcept {
  const std::size_t end = std::min(rest.find(separator), rest.size());
  const std::string_view taken = rest.substr(0, end);
  rest.remove_prefix(std::min(end + 1, rest.size()));
  return taken;
}

bool parse_number(std::string_view text, std::int64_t max, std::int64_t& number) noexcept {
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && at == end && number >= 1 && number <= max;
}

bool parse_row(std::string_view line, MeasuredGemm& row) {
  std::int64_t splits = 0;
  const bool has_shape = parse_number(take_until(line, ' '), INT32_MAX, row.n) &&
                         parse_number(take_until(line, ' '), INT32_MAX, row.k) &&
                         parse_number(take_until(line, ' '), INT32_MAX, row.m);
  row.tactic.kernel = take_until(line, ' ');
  const bool is_whole = has_shape && parse_number(take_until(line, ' '), INT32_MAX, splits) &&
                        parse_number(line, INT64_MAX, row.nanoseconds);
  row.tactic.splits = static_cast<int>(splits);
  return is_whole;
}

bool is_before(const MeasuredGemm& a, const MeasuredGemm& b) noexcept {
  return std::tie(a.n, a.k, a.m) < std::tie(b.n, b.k, b.m);
}

/// For errors.
std::string words_of(const MeasuredGemm& row) {
  return fmt::format("[{}, {}] with {} tokens, {} by {}", row.n, row.k, row.m, row.tactic.kernel,
                     row.tactic.splits);
}

/// One row: `served` is the fewest tokens that it serves.
Result<TunedGemm> resolve_row(const MeasuredGemm& row, std::int64_t served,
                              const GemmArchitecture& architecture, std::uint32_t num_sms) {
  const bool is_size = row.n >= 1 && row.n <= INT32_MAX && row.n % 8 == 0 && row.k >= 1 &&
                       row.k <= INT32_MAX && row.k % 32 == 0 && row.m >= 1 && row.m <= INT32_MAX;
  if (!is_size || row.tactic.splits < 1 || row.nanoseconds < 1) {
    return refused(
        "{}, {} ns: n is a multiple of 8, k of 32, and each number at least 1 and at most {}",
        words_of(row), row.nanoseconds, INT32_MAX);
  }
  const GemmKernel* const end = architecture.kernels + architecture.kernel_count;
  const GemmKernel* const kernel =
      std::find_if(architecture.kernels, end,
                   [&](const GemmKernel& each) { return row.tactic.kernel == each.name; });
  if (kernel == end) {
    return refused("{}: this device has no such kernel", words_of(row));
  }
  const auto narrow = [](std::int64_t value) { return static_cast<std::uint32_t>(value); };
  const GemmTactic tactic = {narrow(kernel - architecture.kernels), narrow(row.tactic.splits)};
  for (const std::int64_t m : {served, row.m}) {
    const GemmTactics all = architecture.tactics(narrow(m), narrow(row.n), narrow(row.k), num_sms);
    if (std::find(all.begin(), all.end(), tactic) == all.end()) {
      return refused(
          "{}: no tactic of {} tokens, which the row serves too; 'scripts/tune' measures "
          "what each number of tokens can take",
          words_of(row), m);
    }
  }
  return TunedGemm{narrow(row.n), narrow(row.k), narrow(row.m), tactic};
}

Result<std::vector<TunedGemm>> usable_rows(std::string_view text,
                                           const GemmArchitecture& architecture,
                                           std::uint32_t num_sms) {
  CUKILN_TRY(const auto rows, parse_tactics(text));
  return resolve_tactics(rows, architecture, num_sms);
}

}  // namespace

std::string tactics_key(const DeviceInfo& device, std::string_view family,
                        const GemmArchitecture& architecture) {
  return fmt::format("1 {} sm_{} {} {:016x} {}", family, device.capability, device.num_sms,
                     digest_of_sources(architecture), device.name);
}

std::string tactics_text(const std::vector<MeasuredGemm>& rows) {
  std::string text = fmt::format("{}\n{}\n", kFirstLine, kColumns);
  for (const MeasuredGemm& row : rows) {
    text += fmt::format("{} {} {} {} {} {}\n", row.n, row.k, row.m, row.tactic.kernel,
                        row.tactic.splits, row.nanoseconds);
  }
  return text;
}

Result<std::vector<MeasuredGemm>> parse_tactics(std::string_view text) {
  if (text.size() > kMaxTacticsBytes) {
    return refused("tactics have {} bytes; expected at most {}", text.size(), kMaxTacticsBytes);
  }
  if (take_until(text, '\n') != kFirstLine || take_until(text, '\n') != kColumns) {
    return refused("tactics begin with the lines \"{}\" and \"{}\"; these are of another format",
                   kFirstLine, kColumns);
  }
  std::vector<MeasuredGemm> rows;
  for (std::size_t number = 3; !text.empty(); ++number) {
    MeasuredGemm row;
    if (!parse_row(take_until(text, '\n'), row)) {
      return refused("line {} of the tactics is not \"{}\": a name and numbers from 1", number,
                     kColumns);
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

Result<std::vector<TunedGemm>> resolve_tactics(const std::vector<MeasuredGemm>& rows,
                                               const GemmArchitecture& architecture,
                                               std::uint32_t num_sms) {
  std::vector<TunedGemm> resolved;
  const MeasuredGemm* before = nullptr;
  for (const MeasuredGemm& row : rows) {
    if (before != nullptr && !is_before(*before, row)) {
      return refused("{} comes after {}; rows are in ascending order of n, k, m, each once",
                     words_of(row), words_of(*before));
    }
    const bool continues = before != nullptr && before->n == row.n && before->k == row.k;
    CUKILN_TRY(const TunedGemm one,
               resolve_row(row, continues ? before->m + 1 : 1, architecture, num_sms));
    resolved.push_back(one);
    before = &row;
  }
  return resolved;
}

Result<std::shared_ptr<const StoredTactics>> load_stored_tactics(
    KernelLoader& loader, const DeviceInfo& device, std::string_view family,
    const GemmArchitecture& architecture) {
  auto made = std::make_shared<StoredTactics>();
  made->key = tactics_key(device, family, architecture);
  made->num_sms = device.num_sms;
  const auto check = [&](std::string_view text) -> Result<void> {
    CUKILN_CHECK(usable_rows(text, architecture, device.num_sms));
    return {};
  };
  CUKILN_TRY(const auto text, loader.fixed_blob(kTacticsKind, made->key, check));
  if (text) {
    CUKILN_TRY(made->rows, usable_rows(*text, architecture, device.num_sms));
  }
  return std::shared_ptr<const StoredTactics>(std::move(made));
}

}  // namespace cukiln::nvfp4::detail
