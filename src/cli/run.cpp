// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>
#include <utility>

#include "cli/application.hpp"
#include "cli/command.hpp"
#include "cli/human.hpp"
#include "core/base/file.hpp"
#include "core/base/result.hpp"

namespace cukiln::cli {

namespace {

namespace paths = std::filesystem;

constexpr const char* kLibrary = "libcukiln_nvrtc.so";
constexpr double kUsPerMs = 1000;

/// Finds the drop-in beside this program, or in the library folder of its prefix.
Result<std::string> find_dropin() {
  std::error_code error;
  const paths::path program = paths::read_symlink("/proc/self/exe", error);
  const paths::path folder = program.parent_path();
  for (const char* const place :
       {".", "../lib", "../lib64", "../lib/x86_64-linux-gnu", "../lib/aarch64-linux-gnu",
        "../lib/x86_64-linux-gnu/cukiln", "../lib/aarch64-linux-gnu/cukiln"}) {
    const paths::path candidate = (folder / place / kLibrary).lexically_normal();
    if (paths::exists(candidate, error)) {
      return candidate.string();
    }
  }
  return make_error(ErrorCode::not_found,
                    "{} is neither beside {} nor in the library folder of its prefix; install it",
                    kLibrary, program.string());
}

/// What became of the programs of a run.
struct Totals {
  std::uint64_t hits = 0, compiled = 0, failed = 0, bypassed = 0;
  double saved_ms = 0, compile_ms = 0;
  std::map<std::string, std::uint64_t> reasons;  ///< of `bypassed`

  /// Adds a line: a word, microseconds, and a text.
  void add(std::string_view line) {
    const std::size_t first = line.find(' ');
    const std::size_t second = line.find(' ', first == std::string_view::npos ? first : first + 1);
    if (second == std::string_view::npos) {
      return;  // the process was killed while it wrote
    }
    const std::string_view word = line.substr(0, first);
    std::int64_t microseconds = 0;
    std::from_chars(line.data() + first + 1, line.data() + second, microseconds);
    const double milliseconds = static_cast<double>(microseconds) / kUsPerMs;
    if (word == "hit") {
      ++hits;
      saved_ms += milliseconds;
    } else if (word == "compiled") {
      ++compiled;
      compile_ms += milliseconds;
    } else if (word == "failed") {
      ++failed;
    } else if (word == "bypassed") {
      ++bypassed;
      ++reasons[std::string(line.substr(second + 1))];
    }
  }
  std::uint64_t programs() const noexcept { return hits + compiled + failed + bypassed; }
};

class RunCommand final : public Command {
 public:
  CommandHelp help() const override {
    return {
        "run",
        "-- COMMAND...",
        "run a program whose NVRTC compiles through the store",
        "Runs COMMAND with libcukiln_nvrtc in front of NVRTC, for it and its child processes: what "
        "they compile with NVRTC is found in the store or stored there, with the same results, and "
        "nothing of theirs changes. In the end it says what was found, what was compiled, and what "
        "NVRTC had to do itself and why. The exit code is the program's. A program that has NVRTC "
        "linked statically is not reached.",
        {{"cukiln run -- python serve.py", "the second run compiles nothing"},
         {"cukiln --json run -- ./engine", "the totals as a document; the output goes to stderr"}}};
  }

  void add_options(CLI::App& app) override { app.add_option("COMMAND", command_); }

  Exit run(Context& context) override {
    if (command_.empty()) {
      return context.usage("a command is missing: cukiln run -- COMMAND...");
    }
    const auto library = find_dropin();
    if (!library) {
      return context.fail(Exit::environment, library.error());
    }
    // ld.so ends a name at the first three, and replaces what follows the last.
    if (library->find_first_of(" \t:$") != std::string::npos) {
      return context.fail(
          Exit::environment,
          make_error(ErrorCode::incompatible,
                     "{} has a blank, ':' or '$' in its path, which LD_PRELOAD cannot name; "
                     "install cukiln in a folder without them",
                     *library));
    }
    std::error_code ignored;
    const auto report =
        ReportFile::make(paths::temp_directory_path(ignored).string() + "/cukiln-run-");
    if (!report) {
      return context.fail(Exit::environment, report.error());
    }
    const std::string preloaded = inherited_variable("LD_PRELOAD");
    const std::string others = preloaded.empty() ? preloaded : ":" + preloaded;
    std::vector<std::pair<std::string, std::string>> variables = {
        {"LD_PRELOAD", *library + others}, {"CUKILN_RUN_REPORT", report->path()}};
    if (!context.settings().store.directory.empty()) {
      variables.emplace_back("CUKILN_STORE", context.settings().store.directory);
    }
    const auto ended = run_application(command_, variables, context.json());
    if (!ended) {
      return context.fail(Exit::usage, ended.error());
    }
    Totals totals;
    const auto read = report->for_each_line([&totals](std::string_view line) {
      totals.add(line);
      return Result<void>();
    });
    if (!read) {
      return context.fail(Exit::failed, read.error());
    }
    print(context, totals, *ended);
    return static_cast<Exit>(*ended);
  }

 private:
  static void print(Context& context, const Totals& totals, int ended) {
    if (context.json()) {
      context.print_json(Json{{"hits", totals.hits},
                              {"compiled", totals.compiled},
                              {"failed", totals.failed},
                              {"bypassed", totals.bypassed},
                              {"bypass_reasons", totals.reasons},
                              {"saved_ms", totals.saved_ms},
                              {"compile_ms", totals.compile_ms},
                              {"exit_code", ended}});
      return;
    }
    if (totals.programs() == 0) {
      context.note(
          "No program was compiled with NVRTC. One that is linked statically, was opened with "
          "RTLD_DEEPBIND, or has another file name than libnvrtc.so is not seen.");
      return;
    }
    std::string text =
        fmt::format("{}: {} in the store ({} saved), {} compiled ({})",
                    counted(totals.programs(), "program of NVRTC", "programs of NVRTC"),
                    human_count(totals.hits), human_ms(totals.saved_ms),
                    human_count(totals.compiled), human_ms(totals.compile_ms));
    if (totals.failed != 0) {
      text += fmt::format(", {} did not compile", human_count(totals.failed));
    }
    if (totals.bypassed != 0) {
      text += fmt::format(", {} by NVRTC itself", human_count(totals.bypassed));
    }
    text += ".";
    for (const auto& [reason, count] : totals.reasons) {
      text += fmt::format("\n  {} by NVRTC itself: {}", human_count(count), reason);
    }
    context.note(text);
  }

  std::vector<std::string> command_;
};

}  // namespace

std::unique_ptr<Command> make_run() { return std::make_unique<RunCommand>(); }

}  // namespace cukiln::cli
