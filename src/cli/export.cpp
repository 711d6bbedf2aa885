// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <set>

#include "base/result.hpp"
#include "cli/command.hpp"
#include "cli/entries.hpp"
#include "cli/human.hpp"
#include "cli/module_options.hpp"
#include "cli/output.hpp"
#include "loader/loader_services.hpp"
#include "remote/bundle.hpp"
#include "remote/envelope.hpp"

namespace cukiln::cli {

namespace {

constexpr std::size_t kMaxNamed = 5;

class ExportCommand final : public Command {
 public:
  CommandHelp help() const override {
    return {"export",
            "-o BUNDLE [KEY|NAME...]",
            "write entries to a signed bundle",
            "Writes entries of the store to one file, for container images and machines without a "
            "network. Without a KEY or a module's NAME it writes all entries. 'cukiln import' "
            "accepts an unsigned bundle only with --insecure. An entry keeps its earlier "
            "signatures. A hit still needs the source files and the headers that they include.",
            {{"cukiln export -o kernels.ckb --sign fleet-1.key", "the whole store, signed"},
             {"cukiln export -o kernels.ckb --manifest kernels.json --sign fleet-1.key",
              "the entries that a manifest hits with its files as they are now"},
             {"cukiln export -o kernels.ckb --manifest kernels.json --arch sm_90a",
              "for this target instead of the manifest's"},
             {"cukiln export -o one.ckb 3fa9c01d", "one entry, unsigned"}}};
  }

  void add_options(CLI::App& app) override {
    app.add_option("KEY", keys_);
    app.add_option("-o,--output", output_, "write the bundle to this file")->type_name("BUNDLE");
    app.add_option("--manifest", manifest_, "the entries of this manifest's modules")
        ->type_name("FILE");
    app.add_option("--arch", arch_,
                   "only entries for this target, which replaces the manifest's targets; "
                   "repeatable")
        ->type_name("TARGET")
        ->delimiter(',')
        ->allow_extra_args(false);
    app.add_option("--sign", sign_, "sign with this secret key, made by 'cukiln keygen'")
        ->type_name("KEYFILE");
    app.add_flag("--sign-unsigned", sign_unsigned_,
                 "also sign entries that were imported with --insecure");
  }

  Exit run(Context& context) override {
    if (output_.empty()) {
      return context.usage("a file is missing: cukiln export -o BUNDLE [KEY...]");
    }
    if (!keys_.empty() && !manifest_.empty()) {
      return context.usage("keys and --manifest exclude each other");
    }
    const auto targets = parse_targets(arch_);
    if (!targets) {
      return context.fail(Exit::usage, targets.error());
    }
    if (auto there = check_output(output_); !there) {
      return context.fail(exit_of_output(there.error()), there.error());
    }
    std::optional<SecretKey> key;
    if (!sign_.empty()) {
      auto loaded = SecretKey::load(sign_);
      if (!loaded) {
        return context.fail(Exit::usage, loaded.error());
      }
      key = *std::move(loaded);
    }
    auto store = context.disk_store();
    if (!store) {
      return context.fail(Exit::store, store.error());
    }
    StoreAdmin admin(**store);
    context.remove_revoked_entries(admin);
    Exit exit = Exit::done;
    auto chosen =
        manifest_.empty() ? by_key(admin, *targets, exit) : by_manifest(context, *targets, exit);
    if (!chosen) {
      return context.fail(exit, chosen.error());
    }
    std::sort(chosen->begin(), chosen->end());
    chosen->erase(std::unique(chosen->begin(), chosen->end()), chosen->end());
    auto bytes = write(admin, *chosen, key ? &*key : nullptr);
    if (!bytes) {
      return context.fail(Exit::failed, bytes.error());
    }
    if (context.json()) {
      context.print_json(Json{{"bundle", output_},
                              {"entries", chosen->size()},
                              {"bytes", *bytes},
                              {"signer", key ? key->public_key().text() : ""}});
    } else {
      context.print(fmt::format(
          "Wrote {}{} to {}, {}, {}.\n", counted(chosen->size(), "entry", "entries"),
          targets_.empty() ? "" : fmt::format(" for {}", fmt::join(targets_, ", ")), output_,
          human_bytes(*bytes), key ? "signed by " + key->public_key().name : "unsigned"));
    }
    return Exit::done;
  }

 private:
  Result<std::vector<CacheKey>> by_key(StoreAdmin& admin, const std::vector<Target>& targets,
                                       Exit& exit) {
    exit = Exit::store;
    CUKILN_TRY(const auto entries, admin.list());
    std::vector<CacheKey> chosen;
    const auto add = [&](const std::vector<EntrySummary>& some) {
      for (const EntrySummary& entry : some) {
        const auto is_its = [&](Target target) { return target.name() == entry.labels.target; };
        if (targets.empty() || std::any_of(targets.begin(), targets.end(), is_its)) {
          chosen.push_back(entry.key);
          targets_.insert(entry.labels.target);
        }
      }
    };
    for (const std::string& text : keys_) {
      auto found = find_entries(entries, text);
      if (!found) {
        exit = exit_of_key_error(found.error());
        return std::move(found).error();
      }
      add(*found);
    }
    if (keys_.empty()) {
      add(entries);
    }
    return chosen;
  }

  /// Returns the entries that the manifest's modules would hit now. Errors: not_found, naming
  /// misses.
  Result<std::vector<CacheKey>> by_manifest(Context& context, const std::vector<Target>& wanted,
                                            Exit& exit) {
    exit = Exit::usage;
    CUKILN_TRY(const Manifest manifest, load_manifest(manifest_, wanted));
    exit = Exit::failed;
    CUKILN_TRY(KernelLoader* const loader, context.loader());
    LoaderServices services(*loader);
    std::vector<CacheKey> chosen;
    std::vector<std::string> missing;
    std::set<std::string> missing_targets;
    for (const ModuleSpec& module : manifest.modules()) {
      CUKILN_TRY(const auto targets, services.targets_without_devices(module));
      for (const Target target : targets) {
        CUKILN_TRY(const auto resolved, services.resolve(module, target));
        const std::string taken = resolved.target.name();
        if (resolved.entry) {
          chosen.push_back(*resolved.entry);
          targets_.insert(taken);
        } else {
          missing.push_back(fmt::format("{} for {}", resolved.name, taken));
          missing_targets.insert(taken);
        }
      }
    }
    if (!missing.empty()) {
      const std::size_t count = missing.size();
      missing.resize(std::min(count, kMaxNamed));
      return make_error(
          ErrorCode::not_found,
          "not in the store: {}{}; 'cukiln preload {} --no-load --arch {}' compiles what is "
          "missing, --arch exports for other targets",
          fmt::join(missing, ", "),
          count > kMaxNamed ? fmt::format(" and {} more", count - kMaxNamed) : "", manifest_,
          fmt::join(missing_targets, ","));
    }
    return chosen;
  }

  Result<std::uint64_t> write(StoreAdmin& admin, const std::vector<CacheKey>& chosen,
                              const SecretKey* key) const {
    CUKILN_TRY(BundleWriter bundle, BundleWriter::create(output_));
    for (const CacheKey& one : chosen) {
      CUKILN_TRY(auto entry, admin.peek(one));
      if (!entry) {
        return make_error(ErrorCode::not_found, "entry {} was removed meanwhile; export again",
                          one.hex());
      }
      if (admin.is_revoked(entry->signer)) {
        return make_error(ErrorCode::invalid_argument,
                          "{} ({}) was signed by a revoked key; remove it: cukiln rm {}",
                          entry->labels.name, short_key(one), short_key(one));
      }
      if (key != nullptr && is_unsigned(entry->signer) && !sign_unsigned_) {
        return make_error(ErrorCode::invalid_argument,
                          "{} ({}) was imported with --insecure and has no trusted signature; "
                          "compile it here, leave it out, or sign it with --sign-unsigned",
                          entry->labels.name, short_key(one));
      }
      if (auto source = admin.source_text(one)) {
        entry->source_text = *std::move(source);
      }
      CUKILN_CHECK(bundle.add(seal_entry(*entry, key, true)));
    }
    CUKILN_CHECK(bundle.finish());
    return bundle.bytes();
  }

  std::vector<std::string> keys_;
  std::string output_;
  std::string manifest_;
  std::vector<std::string> arch_;
  std::set<std::string> targets_;  // of the chosen entries
  std::string sign_;
  bool sign_unsigned_ = false;
};

}  // namespace

std::unique_ptr<Command> make_export() { return std::make_unique<ExportCommand>(); }

}  // namespace cukiln::cli
