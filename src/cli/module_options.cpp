// SPDX-License-Identifier: Apache-2.0
#include "cli/module_options.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "core/base/result.hpp"
#include "core/key/nvcc_flags.hpp"

namespace cukiln::cli {

namespace {

constexpr const char* kFlagOption = "--flag";

CLI::Option* add_list(CLI::App& app, const char* name, std::vector<std::string>& values,
                      const char* type, const char* what) {
  return app.add_option(name, values, what)->type_name(type)->allow_extra_args(false);
}

bool takes_value(const CLI::Option& option) { return option.get_items_expected_max() != 0; }

/// Returns the option of `app` or `command` that a token names, or null.
const CLI::Option* known_option(const CLI::App& app, const CLI::App& command,
                                const std::string& token, bool* has_value) {
  const bool is_long = token.starts_with("--");
  const std::string name = is_long ? token.substr(0, token.find('=')) : token.substr(0, 2);
  *has_value = token.size() > name.size();
  const CLI::Option* option = command.get_option_no_throw(name);
  option = option != nullptr ? option : app.get_option_no_throw(name);
  // A flag takes no value: `-qfoo` is not `-q`.
  return option != nullptr && *has_value && !takes_value(*option) ? nullptr : option;
}

}  // namespace

void add_arch_option(CLI::App& app, std::vector<std::string>& arch, const char* does) {
  add_list(app, "--arch", arch, "TARGET",
           fmt::format("{} for this target: sm_100a, sm_90a, ...; repeatable (default: those of "
                       "the visible GPUs, else sm_100a)",
                       does)
               .c_str())
      ->delimiter(',');
}

void add_std_shims_option(CLI::App& app, bool& no_std_shims) {
  app.add_flag("--no-std-shims", no_std_shims,
               "do not serve <cstdint>, <type_traits> and other standard headers in versions for "
               "device code");
}

std::vector<ModuleSpec> with_std_shims_option(std::vector<ModuleSpec> modules, bool no_std_shims) {
  for (ModuleSpec& module : modules) {
    module.std_shims = module.std_shims && !no_std_shims;
  }
  return modules;
}

void ModuleOptions::add_to(CLI::App& app) {
  app_ = &app;
  add_arch_option(app, arch_);
  flag_options_ = {
      {add_list(app, "-I,--include-path", include_, "DIR",
                "search this folder for headers; repeatable"),
       "--include-path="},
      {add_list(app, "-D,--define-macro", define_, "X[=V]", "define a macro; repeatable"),
       "--define-macro="},
      {add_list(app, "--std", standard_, "STD", "the C++ standard (default: c++17)"), "--std="},
      {add_list(app, kFlagOption, flags_, "F",
                "pass this flag of NVRTC or nvcc; repeatable. Flags that are not in this list may "
                "also be given as they are: -O3, --use_fast_math, -Xptxas -v"),
       ""}};
  add_list(app, "--name", names_, "EXPR",
           "compile this kernel, such as 'scale<float, 4>'; repeatable (default: every kernel that "
           "is not a template, by its mangled name unless it is extern \"C\")");
  app.add_option(
         "--link", link_,
         "compile each source by itself and link all to one module: rdc (relocatable machine "
         "code, as by nvcc -rdc=true) or lto (LTO-IR, as by nvcc -dlto)")
      ->type_name("MODE");
  add_list(app, "--object", objects_, "FILE",
           "link this file too: a cubin, a fatbin, a host object or library with device code, PTX; "
           "with lto LTO-IR; repeatable");
  add_std_shims_option(app, no_std_shims_);
}

/// Keeps the order of the command line: `-U X -D X` defines X, `-D X -U X` does not.
std::vector<std::string> ModuleOptions::flags() const {
  std::vector<std::string> flags;
  std::vector<std::size_t> next_result(flag_options_.size());
  for (const CLI::Option* option : app_->parse_order()) {
    for (std::size_t i = 0; i < flag_options_.size(); ++i) {
      if (flag_options_[i].option == option) {
        flags.push_back(flag_options_[i].prefix + option->results().at(next_result[i]++));
      }
    }
  }
  return flags;
}

Result<void> check_source(const Source& source) {
  const auto* const file = std::get_if<SourceFile>(&source);
  if (file == nullptr) {
    return {};
  }
  struct stat status = {};
  if (::stat(file->path.c_str(), &status) != 0) {
    return make_error(ErrorCode::not_found,
                      "there is no source \"{}\"; expected the path of a .cu file", file->path);
  }
  if (S_ISDIR(status.st_mode)) {
    return make_error(ErrorCode::not_found, "{} is a folder; expected the path of a .cu file",
                      file->path);
  }
  return {};
}

Result<std::vector<Target>> parse_targets(const std::vector<std::string>& texts) {
  std::vector<Target> targets;
  for (const std::string& text : texts) {
    CUKILN_TRY(const Target target, Target::parse(text));
    if (std::find(targets.begin(), targets.end(), target) == targets.end()) {
      targets.push_back(target);
    }
  }
  return targets;
}

Result<LinkMode> parse_link_mode(const std::string& text) {
  if (text == "rdc") return LinkMode::rdc;
  if (text == "lto") return LinkMode::lto;
  if (text.empty()) return LinkMode::none;
  return make_error(ErrorCode::invalid_argument, "invalid --link \"{}\"; expected rdc or lto",
                    text);
}

Result<unsigned> parse_jobs(const std::string& text) {
  constexpr unsigned kMaxJobs = 1024;
  unsigned jobs = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), jobs);
  if (!text.empty() &&
      (error != std::errc{} || end != text.data() + text.size() || jobs == 0 || jobs > kMaxJobs)) {
    return make_error(ErrorCode::invalid_argument,
                      "invalid --jobs \"{}\"; expected a number from 1 to {}", text, kMaxJobs);
  }
  return jobs;
}

Result<std::vector<ModuleSpec>> ModuleOptions::modules(
    const std::vector<std::string>& sources) const {
  ModuleSpec common;
  CUKILN_TRY(common.targets, parse_targets(arch_));
  common.flags = flags();
  CUKILN_TRY(const TranslatedFlags translated, translate_flags(common.flags));
  for (const Target target : translated.targets) {
    if (std::find(common.targets.begin(), common.targets.end(), target) == common.targets.end()) {
      common.targets.push_back(target);
    }
  }
  common.names = names_;
  common.std_shims = !no_std_shims_;
  common.objects = objects_;
  CUKILN_TRY(common.link, parse_link_mode(link_));
  const bool links = common.link != LinkMode::none || translated.link != LinkMode::none;
  std::vector<ModuleSpec> modules;
  for (const std::string& source : sources) {
    CUKILN_CHECK(check_source(SourceFile{source}));
    if (links && !modules.empty()) {
      modules.front().sources.emplace_back(SourceFile{source});
      continue;
    }
    ModuleSpec module = common;
    module.name = std::filesystem::path(source).stem().string();
    module.sources.emplace_back(SourceFile{source});
    modules.push_back(std::move(module));
  }
  return modules;
}

Result<std::vector<ModuleSpec>> ModuleOptions::modules_of_manifest(const std::string& path) const {
  if (!flags().empty() || !names_.empty() || !link_.empty() || !objects_.empty()) {
    return make_error(
        ErrorCode::invalid_argument,
        "a manifest allows no option but --arch and --no-std-shims: put flags, names, "
        "link and objects into the manifest");
  }
  CUKILN_TRY(const std::vector<Target> targets, parse_targets(arch_));
  CUKILN_TRY(Manifest manifest, load_manifest(path, targets));
  return with_std_shims_option(std::move(manifest).modules(), no_std_shims_);
}

bool is_manifest(const std::string& path) noexcept {
  return std::string_view(path).ends_with(".json");
}

Result<Manifest> load_manifest(const std::string& path, const std::vector<Target>& targets) {
  CUKILN_TRY(Manifest manifest, Manifest::load(path));
  for (const ModuleSpec& module : manifest.modules()) {
    for (const Source& source : module.sources) {
      if (auto there = check_source(source); !there) {
        return std::move(there).error().with_context(path + ", " + module.name);
      }
    }
  }
  return targets.empty() ? std::move(manifest) : std::move(manifest).for_targets(targets);
}

bool takes_compiler_flags(const CLI::App& command) {
  return command.get_option_no_throw(kFlagOption) != nullptr;
}

void expand_compiler_flags(const CLI::App& app, const CLI::App& command, std::size_t from,
                           std::vector<std::string>& arguments) {
  if (!takes_compiler_flags(command)) {
    return;
  }
  std::vector<std::string> out(arguments.begin(),
                               arguments.begin() + static_cast<std::ptrdiff_t>(from));
  for (std::size_t i = from; i < arguments.size(); ++i) {
    const std::string& token = arguments[i];
    if (token == "--") {  // only files follow, even if they begin with a dash
      while (++i < arguments.size()) {
        const std::string& file = arguments[i];
        out.push_back(file.starts_with('-') ? "./" + file : file);
      }
      break;
    }
    bool has_value = false;
    const bool is_flag = token.size() >= 2 && token[0] == '-';
    const FlagShape shape = is_flag ? shape_of(token) : FlagShape::unknown;
    const CLI::Option* option = is_flag ? known_option(app, command, token, &has_value) : nullptr;
    if (option != nullptr) {
      out.push_back(token);
      if (takes_value(*option) && !has_value && i + 1 < arguments.size()) {
        out.push_back(arguments[++i]);
      }
    } else if (shape == FlagShape::unknown) {
      out.push_back(token);  // a file, or an unknown option, which the parser reports
    } else {
      out.insert(out.end(), {kFlagOption, token});
      if (shape == FlagShape::value_follows && i + 1 < arguments.size()) {
        out.insert(out.end(), {kFlagOption, arguments[++i]});
      }
    }
  }
  arguments = std::move(out);
}

}  // namespace cukiln::cli
