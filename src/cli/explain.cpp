// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>

#include "cli/command.hpp"
#include "cli/entries.hpp"
#include "cli/human.hpp"
#include "cli/module_options.hpp"
#include "cli/running_daemon.hpp"
#include "cli/text.hpp"
#include "core/base/result.hpp"
#include "core/loader/loader_services.hpp"
#include "core/loader/settings.hpp"

namespace cukiln::cli {

namespace {

/// Where an entry is.
enum class Place { none, store, remote };

/// An explanation and the name of its subject.
struct Answer {
  std::string subject;  ///< `amax.cu for sm_100a`
  Explanation explanation;
  bool trusts_recorded_toolkit = false;
  Place key_in = Place::none;
  Place nearest_in = Place::none;
};

Json json_of(Place place) {
  return place == Place::none ? Json() : Json(place == Place::store ? "store" : "remote");
}

Json json_of(const Answer& answer) {
  const Explanation& e = answer.explanation;
  Json differences = Json::array();
  for (const Difference& difference : e.differences) {
    differences.push_back(
        Json{{"field", difference.field}, {"was", difference.was}, {"now", difference.now}});
  }
  return Json{{"outcome", e.hit ? "hit" : "miss"},
              {"subject", answer.subject},
              {"target", e.target.name()},
              {"key", e.key ? Json(e.key->hex()) : Json()},
              {"key_in", json_of(answer.key_in)},
              {"nearest", e.nearest ? Json(e.nearest->hex()) : Json()},
              {"nearest_in", json_of(answer.nearest_in)},
              {"differences", std::move(differences)},
              {"toolkit", answer.trusts_recorded_toolkit ? "as recorded" : "checked"}};
}

class ExplainCommand final : public Command {
 public:
  CommandHelp help() const override {
    return {
        "explain",
        "FILE.cu... | MANIFEST.json | KEY KEY",
        "explain why a module hits or misses",
        "For a file: whether 'compile' with the same options would hit. For a miss it shows the "
        "nearest entry and everything in which that differs, down to the header; with a remote "
        "store, also of what other machines uploaded, and for a hit that was compiled here. For a "
        "manifest: the same for each module. For two keys: how the entries differ. Compiles and "
        "writes nothing, and exits with 0 for a hit and for a miss. Accepts all options of "
        "'compile'; those that change no cubin have no effect.",
        {{"cukiln explain amax.cu --arch sm_100a", "whether this would hit, else why not"},
         {"cukiln explain kernels.json --arch sm_90a", "the same for each module of a manifest"},
         {"cukiln explain 3fa9c01d 77d1e0aa", "how two entries differ"}}};
  }

  void add_options(CLI::App& app) override {
    app.add_option("FILE.cu", subjects_);
    module_.add_to(app);
    const std::string unused = "accepted as by 'compile', without effect";
    app.add_option("-o,--output", output_, unused)->type_name("OUT");
    app.add_option("-j,--jobs", jobs_, unused)->type_name("N");
    app.add_flag("--offline", offline_, unused);
  }

  Exit run(Context& context) override {
    if (subjects_.empty()) {
      return context.usage(
          "a file, a manifest or two keys are missing: cukiln explain FILE.cu [options] | "
          "MANIFEST.json | KEY KEY");
    }
    const bool are_keys =
        subjects_.size() == 2 && looks_like_key(subjects_[0]) && looks_like_key(subjects_[1]);
    return are_keys ? explain_keys(context) : explain_files(context);
  }

 private:
  Exit explain_keys(Context& context) {
    auto store = context.disk_store();
    auto loader = store ? context.loader(true) : Result<KernelLoader*>(store.error());
    if (!loader) {
      return context.fail(Exit::store, loader.error());
    }
    entries_ = list(**store);
    CacheKey keys[2];
    for (std::size_t i = 0; i < 2; ++i) {
      const auto key = find_key(entries_, subjects_[i]);
      if (!key) {
        return context.fail(exit_of_key_error(key.error()), key.error());
      }
      keys[i] = *key;
    }
    auto explanation = (*loader)->explain(keys[0], keys[1]);
    if (!explanation) {
      return context.fail(Exit::failed, explanation.error());
    }
    const Answer answer{short_key(keys[0]) + " and " + short_key(keys[1]), *std::move(explanation),
                        false, Place::store, Place::store};
    if (context.json()) {
      context.print_json(json_of(answer));
    } else if (answer.explanation.differences.empty()) {
      context.print(answer.explanation.hit ? "Both keys are the same entry.\n"
                                           : "The entries do not differ in any recorded input.\n");
    } else {
      context.print(fmt::format("{} {}\n{} {}\n", context.paint(Color::red, "---"),
                                described(context, keys[0], Place::store),
                                context.paint(Color::green, "+++"),
                                described(context, keys[1], Place::store)));
      print_differences(context, answer.explanation.differences);
    }
    return Exit::done;
  }

  Exit explain_files(Context& context) {
    auto modules = described_modules();
    if (!modules) {
      return context.fail(Exit::usage, modules.error());
    }
    auto loader = context.loader(true);
    if (!loader) {
      return context.fail(exit_of(loader.error()), loader.error());
    }
    entries_ = list(**context.store());
    std::vector<Answer> answers;
    for (const ModuleSpec& module : *modules) {
      auto targets = LoaderServices(**loader).targets_of(module);
      if (!targets) {
        return context.fail(exit_of(targets.error()), targets.error());
      }
      for (const Target target : *targets) {
        auto explanation = (*loader)->explain(module, target);
        if (!explanation) {
          return context.fail(exit_of(explanation.error()), explanation.error());
        }
        Answer answer{subject_of(module) + " for " + explanation->target.name(),
                      *std::move(explanation)};
        if (answer.explanation.hit) {
          const auto resolved = LoaderServices(**loader).resolve(module, target);
          answer.trusts_recorded_toolkit = resolved && resolved->trusts_recorded_toolkit;
          answer.key_in = resolved && resolved->entry ? Place::store : Place::remote;
        }
        if (const auto& nearest = answer.explanation.nearest) {
          answer.nearest_in = find(*nearest) != entries_.end() ? Place::store : Place::remote;
        }
        answers.push_back(std::move(answer));
      }
    }
    if (context.json() && answers.size() == 1) {
      context.print_json(json_of(answers.front()));
    } else if (context.json()) {
      Json list = Json::array();
      for (const Answer& answer : answers) {
        list.push_back(json_of(answer));
      }
      context.print_json(Json{{"explanations", std::move(list)}});
    } else {
      for (std::size_t i = 0; i < answers.size(); ++i) {
        context.print(i == 0 ? "" : "\n");
        print(context, answers[i]);
      }
    }
    return Exit::done;
  }

  /// Returns the modules of the given files and manifests.
  Result<std::vector<ModuleSpec>> described_modules() const {
    std::vector<std::string> files;
    std::vector<ModuleSpec> manifest_modules;
    for (const std::string& subject : subjects_) {
      if (!is_manifest(subject)) {
        files.push_back(subject);
        continue;
      }
      CUKILN_TRY(const std::vector<ModuleSpec> loaded, module_.modules_of_manifest(subject));
      manifest_modules.insert(manifest_modules.end(), loaded.begin(), loaded.end());
    }
    CUKILN_TRY(std::vector<ModuleSpec> modules, module_.modules(files));
    modules.insert(modules.end(), manifest_modules.begin(), manifest_modules.end());
    return modules;
  }

  /// Returns the path; for a module whose name differs from it, as in a manifest, both.
  static std::string subject_of(const ModuleSpec& module) {
    const std::string& path = name_of(module.sources.front());
    return std::filesystem::path(path).stem() == module.name ? path
                                                             : module.name + " (" + path + ")";
  }

  static std::vector<EntrySummary> list(Store& store) {
    auto entries = StoreAdmin(store).list();
    return entries ? *std::move(entries) : std::vector<EntrySummary>();
  }

  std::vector<EntrySummary>::const_iterator find(const CacheKey& key) const {
    return std::find_if(entries_.begin(), entries_.end(),
                        [&](const EntrySummary& e) { return e.key == key; });
  }

  /// Returns `3fa9c01d22be  amax_gsa for sm_100a, used 3 min ago`.
  std::string described(const Context& context, const CacheKey& key, Place place) const {
    std::string text = context.paint(Color::yellow, short_key(key));
    const auto at = find(key);
    if (place == Place::remote) {
      text += "  in the remote store";
    } else if (at != entries_.end()) {
      text += fmt::format("  {} for {}", printable(at->labels.name), printable(at->labels.target));
      if (at->last_used_s != 0) {  // a system store records no use
        const std::string age = human_age(now_s() - at->last_used_s);
        text += fmt::format(", used {}{}", age, age == "now" ? "" : " ago");
      }
    }
    return text;
  }

  static bool has_daemon(const Context& context) {
    const auto running = running_daemon(
        daemon_sockets(SettingsSources::of_this_process(), context.settings().store));
    return running.has_value();
  }

  void print(const Context& context, const Answer& answer) const {
    const Explanation& e = answer.explanation;
    context.print(fmt::format(
        "{}: {}\n", context.paint(Color::bold, printable(answer.subject)),
        e.hit ? context.paint(Color::green, "hit") : context.paint(Color::yellow, "miss")));
    if (e.hit) {
      context.print("entry    " + described(context, *e.key, answer.key_in) + "\n");
      if (answer.trusts_recorded_toolkit) {
        context.print("headers  CUDA's count as recorded: this machine has none, and no NVRTC\n");
      }
      if (answer.key_in == Place::remote && !has_daemon(context)) {
        context.print(
            "A host would compile it: only cukilnd, which is not running, and the "
            "command line ask the remote store.\n");
      }
      if (!e.differences.empty()) {
        context.print("It was compiled here. Of the remote store:\n");
        print_difference_from(context, answer);
      }
    } else {
      print_difference_from(context, answer);
    }
  }

  /// Prints the nearest entry and what differs from it, or why there is none.
  void print_difference_from(const Context& context, const Answer& answer) const {
    const Explanation& e = answer.explanation;
    if (!e.nearest && !e.differences.empty()) {
      const Difference& why = e.differences.front();
      context.print(fmt::format("{}: {}\n", why.field, printable(why.now)));
    } else if (!e.nearest) {
      context.print(
          "The store has no similar entry: nothing of this module was stored here, or it was "
          "evicted or removed since.\n");
    } else {
      context.print("nearest  " + described(context, *e.nearest, answer.nearest_in) + "\n");
      print_differences(context, e.differences);
    }
  }

  /// Prints the differences like a diff, with a heading for each field.
  static void print_differences(const Context& context,
                                const std::vector<Difference>& differences) {
    std::string field;
    for (const Difference& difference : differences) {
      if (difference.field != field) {
        field = difference.field;
        context.print(heading(context.out(), printable(field)));
      }
      if (!difference.was.empty()) {
        context.print(context.paint(Color::red, "- " + printable(difference.was)) + "\n");
      }
      if (!difference.now.empty()) {
        context.print(context.paint(Color::green, "+ " + printable(difference.now)) + "\n");
      }
    }
  }

  std::vector<std::string> subjects_;
  ModuleOptions module_;
  std::string output_;  // accepted, so that a command line of `compile` works here
  std::string jobs_;
  bool offline_ = false;
  std::vector<EntrySummary> entries_;
};

}  // namespace

std::unique_ptr<Command> make_explain() { return std::make_unique<ExplainCommand>(); }

}  // namespace cukiln::cli
