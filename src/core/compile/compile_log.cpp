// SPDX-License-Identifier: Apache-2.0
#include "core/compile/compile_log.hpp"

#include <algorithm>
#include <charconv>
#include <iterator>

namespace cukiln {

namespace {

using std::string_view;

/// How the front end says that it cannot open a header, up to the header's name.
constexpr string_view kNoHeader[] = {"could not open source file \"", "cannot open source file \""};
constexpr string_view kEntry = "Compiling entry function '";

/// True for a line of the report. Those begin with `ptxas info    :`, or with `ptxas         .` if
/// they continue one. Messages with a code, such as `(C7510) Potential Performance Loss`, are
/// advice for the user and stay in the log.
bool is_report(string_view line) {
  if (line.substr(0, 5) != "ptxas") {
    return false;
  }
  string_view rest = line.substr(5);
  rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
  const bool is_continuation = rest.substr(0, 1) == ".";
  return (is_continuation || rest.substr(0, 4) == "info") && line.find(": (") == string_view::npos;
}

void read_report(string_view line, std::vector<KernelInfo>& kernels, KernelInfo*& current) {
  if (const std::size_t at = line.find(kEntry); at != string_view::npos) {
    const string_view rest = line.substr(at + kEntry.size());
    KernelInfo kernel;
    kernel.lowered = rest.substr(0, rest.find('\''));
    kernel.name = kernel.lowered;
    kernels.push_back(std::move(kernel));
    current = &kernels.back();
    return;
  }
  constexpr string_view kProperties = "Function properties for ";
  if (const std::size_t at = line.find(kProperties); at != string_view::npos) {
    // A device function that is not inlined has a report of its own, which is skipped.
    const string_view name = line.substr(at + kProperties.size());
    const auto found = std::find_if(kernels.begin(), kernels.end(),
                                    [&](const KernelInfo& k) { return k.lowered == name; });
    current = found == kernels.end() ? nullptr : &*found;
    return;
  }
  if (current == nullptr) {
    return;
  }
  if (line.find(" bytes stack frame") != string_view::npos) {
    current->local_bytes = number_before(line, " bytes stack frame");
    current->spill_bytes =
        number_before(line, " bytes spill stores") + number_before(line, " bytes spill loads");
  }
  if (line.find("Used ") != string_view::npos) {
    current->registers = number_before(line, " registers");
    current->shared_bytes = number_before(line, " bytes smem");
  }
}

}  // namespace

std::uint32_t number_before(string_view line, string_view unit) {
  const std::size_t at = line.find(unit);
  if (at == string_view::npos) {
    return 0;
  }
  std::size_t begin = at;
  while (begin > 0 && line[begin - 1] >= '0' && line[begin - 1] <= '9') {
    --begin;
  }
  std::uint32_t number = 0;
  std::from_chars(line.data() + begin, line.data() + at, number);
  return number;
}

CompileLog parse_log(ByteView log) {
  CompileLog parsed;
  KernelInfo* current = nullptr;
  parsed.kernels.reserve(static_cast<std::size_t>(std::count(log.begin(), log.end(), '\n')) + 1);
  while (!log.empty()) {
    const std::size_t end = std::min(log.find('\n'), log.size() - 1) + 1;
    string_view line = log.substr(0, end);
    log.remove_prefix(end);
    string_view bare = line;
    while (!bare.empty() && (bare.back() == '\n' || bare.back() == '\r')) {
      bare.remove_suffix(1);
    }
    if (is_report(bare)) {
      read_report(bare, parsed.kernels, current);
    } else {
      parsed.text += line;
    }
  }
  if (parsed.text.find_first_not_of(" \r\n") == std::string::npos) {
    parsed.text.clear();
  }
  return parsed;
}

std::vector<KernelInfo> choose_kernels(const std::vector<KernelInfo>& all,
                                       const std::vector<std::string>& names,
                                       const std::vector<std::string>& lowered) {
  if (names.empty()) {
    return all;
  }
  std::vector<KernelInfo> chosen;
  for (std::size_t i = 0; i < names.size() && i < lowered.size(); ++i) {
    const auto found = std::find_if(all.begin(), all.end(), [&](const KernelInfo& kernel) {
      return kernel.lowered == lowered[i];
    });
    KernelInfo kernel;
    if (found != all.end()) {
      kernel = *found;
    }
    kernel.name = names[i];
    kernel.lowered = lowered[i];
    chosen.push_back(std::move(kernel));
  }
  return chosen;
}

bool is_of_front_end(ByteView log) {
  constexpr string_view kFatal = "catastrophic error: ";
  const std::size_t count = log.rfind(" detected in the compilation of \"");
  const std::size_t line = count == ByteView::npos ? count : log.rfind('\n', count) + 1;
  const std::size_t fatal = log.rfind(kFatal);  // it is the last error
  const ByteView why = fatal == ByteView::npos ? ByteView() : log.substr(fatal + kFatal.size());
  const bool is_of_text = why.empty() || why.starts_with("#error directive") ||
                          std::any_of(std::begin(kNoHeader), std::end(kNoHeader),
                                      [&](string_view phrase) { return why.starts_with(phrase); });
  return is_of_text && line != ByteView::npos && log[line] >= '1' && log[line] <= '9' &&
         log.find("internal error") == ByteView::npos;
}

std::string missing_header(ByteView log) {
  for (const string_view phrase : kNoHeader) {
    const std::size_t at = log.find(phrase);
    if (at != ByteView::npos) {
      const ByteView rest = log.substr(at + phrase.size());
      return std::string(rest.substr(0, rest.find('"')));
    }
  }
  return {};
}

}  // namespace cukiln
