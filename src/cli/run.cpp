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
constexpr const char* kLinkLibrary = "libcukiln_nvjitlink.so";  // beside it
constexpr std::string_view kLinkWord = "link-";  // before a word about a link, `link-hit`
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

/// A library's name for people: its path below site-packages, else its file's name, without the tag
/// of an interpreter.
std::string short_name(std::string_view path) {
  constexpr std::string_view kPackages[] = {"/site-packages/", "/dist-packages/"};
  std::size_t from = path.rfind('/') + 1;  // npos + 1: 0
  for (const std::string_view folder : kPackages) {
    const std::size_t at = path.rfind(folder);
    from = at != std::string_view::npos ? at + folder.size() : from;
  }
  std::string name(path.substr(from));
  const std::size_t tag = name.find(".cpython-");
  if (tag != std::string::npos && name.ends_with(".so")) {
    name.erase(tag, name.size() - tag - 3);
  }
  name = name.starts_with("libffi.so") ? "ctypes" : name;  // by which Python calls
  return name.empty() ? "?" : name;
}

/// What became of programs, or of links, of a run or of one library in it.
struct Totals {
  std::uint64_t hits = 0, compiled = 0, failed = 0, bypassed = 0;
  double saved_ms = 0, compile_ms = 0;
  std::map<std::string, std::uint64_t> reasons;  ///< of `bypassed`

  void add(std::string_view word, double milliseconds, std::string_view text) {
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
      ++reasons[std::string(text)];
    }
  }
  std::uint64_t programs() const noexcept { return hits + compiled + failed + bypassed; }
  Json json() const {
    return {{"hits", hits},
            {"compiled", compiled},
            {"failed", failed},
            {"bypassed", bypassed},
            {"bypass_reasons", reasons},
            {"saved_ms", saved_ms},
            {"compile_ms", compile_ms}};
  }
};

/// What a run's processes reported of programs, or of links.
struct Reported {
  Totals all;
  std::map<std::string, Totals> libraries;  ///< by the library that made the programs

  void add(const std::string& library, std::string_view word, double milliseconds,
           std::string_view text) {
    all.add(word, milliseconds, text);
    libraries[library].add(word, milliseconds, text);
  }
  Json json() const {
    Json document = all.json();
    document["libraries"] = Json::array();
    for (const auto& [name, totals] : libraries) {
      document["libraries"].push_back(totals.json());
      document["libraries"].back()["name"] = name;
    }
    return document;
  }
};

/// What a run's processes reported.
struct RunReport {
  Reported compiles;
  Reported links;
  std::map<std::string, std::string> unreached;  ///< by library or program, why

  /// Adds a line: a word, microseconds, the path of a library or program, a tab, and a text.
  void add(std::string_view line) {
    const std::size_t first = line.find(' ');
    const std::size_t second = line.find(' ', first == std::string_view::npos ? first : first + 1);
    const std::size_t tab = line.find('\t');
    if (second == std::string_view::npos || tab == std::string_view::npos || tab < second) {
      return;  // the process was killed while it wrote
    }
    const std::string_view word = line.substr(0, first);
    const std::string name = short_name(line.substr(second + 1, tab - second - 1));
    if (word == "own") {
      unreached[name] = "it has an NVRTC in it, which it used";
    } else if (word == "own-nvjitlink") {
      unreached[name] = "it has an nvJitLink in it, which it used";
    } else if (word == "unseen") {
      unreached[name] = "it used CUDA, and no call to NVRTC was seen";
    } else if (word == "unopened") {
      unreached[name] =
          fmt::format("it cannot be opened, so nothing is stored: {}", line.substr(tab + 1));
    } else {
      std::int64_t microseconds = 0;
      std::from_chars(line.data() + first + 1, line.data() + second, microseconds);
      const double milliseconds = static_cast<double>(microseconds) / kUsPerMs;
      const bool is_link = word.starts_with(kLinkWord);
      (is_link ? links : compiles)
          .add(name, is_link ? word.substr(kLinkWord.size()) : word, milliseconds,
               line.substr(tab + 1));
    }
  }
};

constexpr std::size_t kNameWidth = 32;  // the table then has 80 columns
constexpr const char* kRow = "\n  {:<32} {:>7} {:>9} {:>7} {:>9} {:>9}";

/// A name that fits its column: its end tells libraries apart.
std::string fitted(const std::string& name) {
  return name.size() <= kNameWidth ? name : "..." + name.substr(name.size() - (kNameWidth - 3));
}

class RunCommand final : public Command {
 public:
  CommandHelp help() const override {
    return {
        "run",
        "-- COMMAND...",
        "run a program whose NVRTC and nvJitLink use the store",
        "Runs COMMAND with libcukiln_nvrtc in front of NVRTC and libcukiln_nvjitlink in front of "
        "nvJitLink, for it and its child processes: what they compile and link with these is found "
        "in the store or stored there, with the same results, and nothing of theirs changes. In "
        "the end it says what was found, what was compiled or linked, and what NVRTC and nvJitLink "
        "had to do themselves and why, by the libraries that asked for it. The exit code is the "
        "program's. A program that has them linked statically is not reached.",
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
    const std::string linker = folder_of(*library) + "/" + kLinkLibrary;
    const std::string both = paths::exists(linker, ignored) ? *library + ":" + linker : *library;
    std::vector<std::pair<std::string, std::string>> variables = {
        {"LD_PRELOAD", both + others}, {"CUKILN_RUN_REPORT", report->path()}};
    if (!context.settings().store.directory.empty()) {
      variables.emplace_back("CUKILN_STORE", context.settings().store.directory);
    }
    const auto ended = run_application(command_, variables, context.json());
    if (!ended) {
      return context.fail(Exit::usage, ended.error());
    }
    RunReport reported;
    const auto read = report->for_each_line([&reported](std::string_view line) {
      reported.add(line);
      return Result<void>();
    });
    if (!read) {
      return context.fail(Exit::failed, read.error());
    }
    print(context, reported, *ended);
    return static_cast<Exit>(*ended);
  }

 private:
  static void print(Context& context, const RunReport& report, int ended) {
    if (context.json()) {
      Json document = report.compiles.json();
      document["links"] = report.links.json();
      document["exit_code"] = ended;
      document["unreached"] = report.unreached;
      context.print_json(document);
      return;
    }
    context.note(text_of(report));
  }

  static std::string text_of(const RunReport& report) {
    std::string text =
        report.compiles.all.programs() == 0 && report.links.all.programs() == 0
            ? "No program was compiled with NVRTC. One that is linked statically, was opened with "
              "RTLD_DEEPBIND, or has another file name than libnvrtc.so is not seen."
            : "";
    add_table(report.compiles, {"program", "compile", "compiled", "NVRTC"}, text);
    add_table(report.links, {"link", "link", "linked", "nvJitLink"}, text);
    for (const auto& [name, reason] : report.unreached) {
      text += fmt::format("\n  not reached: {}: {}", name, reason);
    }
    return text;
  }

  struct Words {
    const char *thing, *verb, *made, *peer;
  };
  static void add_table(const Reported& reported, const Words& words, std::string& text) {
    const Totals& all = reported.all;
    if (all.programs() == 0) {
      return;
    }
    text += text.empty() ? "" : "\n";
    text += fmt::format("{}: {} in the store ({} saved), {} {} ({})",
                        counted(all.programs(), fmt::format("{} of {}", words.thing, words.peer),
                                fmt::format("{}s of {}", words.thing, words.peer)),
                        human_count(all.hits), human_ms(all.saved_ms), human_count(all.compiled),
                        words.made, human_ms(all.compile_ms));
    text +=
        all.failed != 0 ? fmt::format(", {} did not {}", human_count(all.failed), words.verb) : "";
    text += all.bypassed != 0
                ? fmt::format(", {} by {} itself", human_count(all.bypassed), words.peer)
                : "";
    text += ".";
    text += fmt::format(kRow, "library", "hits", words.made, "failed", "bypassed", "saved");
    for (const auto& [name, totals] : reported.libraries) {
      text += fmt::format(kRow, fitted(name), human_count(totals.hits),
                          human_count(totals.compiled), human_count(totals.failed),
                          human_count(totals.bypassed), human_ms(totals.saved_ms));
    }
    for (const auto& [reason, count] : all.reasons) {
      text += fmt::format("\n  {} by {} itself: {}", human_count(count), words.peer, reason);
    }
  }

  std::vector<std::string> command_;
};

}  // namespace

std::unique_ptr<Command> make_run() { return std::make_unique<RunCommand>(); }

}  // namespace cukiln::cli
