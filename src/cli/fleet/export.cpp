// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "addons/fleet/bundle.hpp"
#include "addons/fleet/envelope.hpp"
#include "addons/fleet/oci_layout.hpp"
#include "addons/fleet/system_store.hpp"
#include "cli/command.hpp"
#include "cli/entries.hpp"
#include "cli/fleet/export_sources.hpp"
#include "cli/fleet/manifest_entries.hpp"
#include "cli/human.hpp"
#include "cli/module_options.hpp"
#include "cli/output.hpp"
#include "core/base/file.hpp"
#include "core/base/result.hpp"
#include "core/key/nvcc_flags.hpp"
#include "core/loader/module_request.hpp"

#include <cukiln/version.hpp>

namespace cukiln::cli {

namespace {

/// Removes a folder, now and in the end.
class ScratchFolder {
 public:
  explicit ScratchFolder(std::string path) : path_(std::move(path)) { remove(); }
  ScratchFolder(const ScratchFolder&) = delete;
  ~ScratchFolder() { remove(); }
  const std::string& path() const noexcept { return path_; }

 private:
  void remove() const noexcept {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string path_;
};

/// Errors: invalid_argument (an entry or a blob may not be handed on because of its signers).
Result<void> check_signers(const StoreAdmin& admin, const std::string& signers,
                           const std::string& name, const std::string& key, bool signs,
                           bool signs_unsigned) {
  if (admin.is_revoked(signers)) {
    return make_error(ErrorCode::invalid_argument,
                      "{} ({}) was signed by a revoked key; remove it: cukiln rm {}", name, key,
                      key);
  }
  if (signs && is_unsigned(signers) && !signs_unsigned) {
    return make_error(ErrorCode::invalid_argument,
                      "{} ({}) was imported with --insecure and has no trusted signature; "
                      "compile it here, leave it out, or sign it with --sign-unsigned",
                      name, key);
  }
  return {};
}

/// The blobs to write: all, or those that are named.
class BlobChoice {
 public:
  void add_to(CLI::App& app) {
    app.add_flag("--blobs", all_, "all blobs too, where only some entries are written");
    app.add_flag("--no-blobs", none_, "no blobs");
  }
  bool wants_all() const noexcept { return all_; }
  bool wants_none() const noexcept { return none_; }

  /// Adds the blob whose id begins with `text`. False if there is none. Errors: invalid_argument.
  Result<bool> add(StoreAdmin& admin, const std::string& text) {
    CUKILN_TRY(const auto blobs, admin.list_blobs());
    CUKILN_TRY(const auto blob, find_blob(blobs, text));
    if (blob) {
      ids_.insert(blob->id);
    }
    return blob.has_value();
  }
  /// Adds all blobs if they are wanted; `is_whole`: all entries are written.
  Result<void> complete(StoreAdmin& admin, bool is_whole) {
    if (none_ || !(all_ || is_whole)) {
      return {};
    }
    CUKILN_TRY(const auto blobs, admin.list_blobs());
    for (const BlobSummary& blob : blobs) {
      ids_.insert(blob.id);
    }
    return {};
  }
  /// Calls `body` with each blob, but for those that were evicted meanwhile. Returns their number.
  template <class Body>
  Result<std::uint64_t> for_each(StoreAdmin& admin, bool signs, bool signs_unsigned,
                                 const Body& body) const {
    std::uint64_t blobs = 0;
    for (const BlobId& id : ids_) {
      CUKILN_TRY(auto blob, admin.peek(id));
      if (blob) {
        CUKILN_CHECK(check_signers(admin, blob->signer, "the blob of kind " + blob->kind,
                                   short_key(id), signs, signs_unsigned));
        CUKILN_CHECK(body(*std::move(blob)));
        ++blobs;
      }
    }
    return blobs;
  }

 private:
  bool all_ = false;
  bool none_ = false;
  std::set<BlobId> ids_;
};

class ExportCommand final : public Command {
 public:
  CommandHelp help() const override {
    return {
        "export",
        "-o BUNDLE|--oci DIR|--sources DIR [KEY|NAME...]",
        "write entries and blobs to a signed bundle, or sources for a debugger",
        "Writes entries of the store to one file, for container images and machines without a "
        "network. Without a KEY or a module's NAME, --manifest and --arch it writes all entries, "
        "and all blobs, which other compilers keep in the store. 'cukiln import' "
        "accepts an unsigned bundle only with --insecure. Entries and blobs keep their earlier "
        "signatures. A hit still needs the source files and the headers that they include. "
        "--sources lays the sources and headers of entries that were compiled with -lineinfo or "
        "-G where a debugger or a profiler looks for them: line tables have paths such as "
        "/cukiln/src/k.cu, whose file is then DIR/cukiln/src/k.cu. The store has the sources; "
        "headers are read from disk, and only those with the recorded digest are laid. A file "
        "that is not there any more is named, and the exit code is 1.",
        {{"cukiln export -o kernels.ckb --sign fleet-1.key", "the whole store, signed"},
         {"cukiln export -o kernels.ckb --no-blobs --sign fleet-1.key", "its entries alone"},
         {"cukiln export -o kernels.ckb --manifest kernels.json --sign fleet-1.key",
          "the entries that a manifest hits with its files as they are now"},
         {"cukiln export -o kernels.ckb --manifest kernels.json --arch sm_90a",
          "for this target instead of the manifest's"},
         {"cukiln export --oci kernels.oci --manifest kernels.json --sign fleet-1.key",
          "an image for a registry, which Kubernetes mounts as a volume"},
         {"cukiln export -o one.ckb 3fa9c01d", "one entry, unsigned"},
         {"cukiln export --sources src --manifest kernels.json",
          "for cuda-gdb: set substitute-path /cukiln src/cukiln"},
         {"cukiln export --sources src -I include 3fa9c01d",
          "of one entry, whose headers are in 'include'"}}};
  }

  void add_options(CLI::App& app) override {
    app.add_option("KEY", keys_);
    app.add_option("-o,--output", output_, "write the bundle to this file")->type_name("BUNDLE");
    app.add_option("--oci", oci_,
                   "write an OCI image layout to this folder instead, whose one layer is a system "
                   "store; the same entries give the same digest")
        ->type_name("DIR");
    app.add_option("--sources", sources_,
                   "lay sources and headers below this folder instead, at the paths that line "
                   "tables have")
        ->type_name("DIR");
    app.add_option("-I,--include-path", include_,
                   "with --sources: a folder of headers, in any order; repeatable")
        ->type_name("DIR")
        ->allow_extra_args(false);
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
    app.add_flag("--sign-unsigned", sign_unsigned_, "also sign what was imported with --insecure");
    blobs_.add_to(app);
  }

  Exit run(Context& context) override {
    if (const Exit exit = check_usage(context); exit != Exit::done) {
      return exit;
    }
    const auto targets = parse_targets(arch_);
    if (!targets) {
      return context.fail(Exit::usage, targets.error());
    }
    if (auto there = output_.empty() ? Result<void>() : check_output(output_); !there) {
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
    auto keys =
        manifest_.empty() ? by_key(admin, *targets, exit) : by_manifest(context, *targets, exit);
    if (!keys) {
      return context.fail(exit, keys.error());
    }
    std::sort(keys->begin(), keys->end());
    keys->erase(std::unique(keys->begin(), keys->end()), keys->end());
    if (!sources_.empty()) {
      include_.insert(include_.end(), folders_.begin(), folders_.end());
      return export_sources(context, admin, *keys, sources_, include_);
    }
    const bool is_whole = keys_.empty() && manifest_.empty() && arch_.empty();
    if (auto listed = blobs_.complete(admin, is_whole); !listed) {
      return context.fail(Exit::store, listed.error());
    }
    const SecretKey* const signer = key ? &*key : nullptr;
    const auto written =
        oci_.empty() ? write(admin, *keys, signer) : write_image(admin, *keys, signer);
    if (!written) {
      return context.fail(Exit::failed, written.error());
    }
    print(context, keys->size(), *written, signer);
    return Exit::done;
  }

 private:
  /// Checks which options are given together.
  Exit check_usage(Context& context) const {
    const int outputs =
        (output_.empty() ? 0 : 1) + (oci_.empty() ? 0 : 1) + (sources_.empty() ? 0 : 1);
    if (outputs != 1) {
      return context.usage("{}: cukiln export -o BUNDLE [KEY...], --oci DIR or --sources DIR",
                           outputs == 0 ? "a file is missing" : "one output at a time");
    }
    if (sources_.empty() && !include_.empty()) {
      return context.usage("-I is for --sources: a bundle has no headers");
    }
    if (!keys_.empty() && !manifest_.empty()) {
      return context.usage("keys and --manifest exclude each other");
    }
    if (blobs_.wants_all() && (blobs_.wants_none() || !sources_.empty())) {
      return context.usage("--blobs excludes {}", sources_.empty() ? "--no-blobs" : "--sources");
    }
    return Exit::done;
  }

  struct Written {
    std::uint64_t bytes = 0;
    std::uint64_t blobs = 0;
    std::string digest;  ///< of an image
  };

  void print(Context& context, std::size_t entries, const Written& written,
             const SecretKey* key) const {
    const std::string& where = oci_.empty() ? output_ : oci_;
    if (entries == 0 && written.blobs == 0) {
      context.messages().warn(
          fmt::format("{} has nothing in it: no entry of the store in {} was chosen", where,
                      context.settings().store.directory));
    }
    if (context.json()) {
      context.print_json(Json{{"bundle", where},
                              {"entries", entries},
                              {"blobs", written.blobs},
                              {"size_bytes", written.bytes},
                              {"digest", written.digest},
                              {"signer", key != nullptr ? key->public_key().text() : ""}});
      return;
    }
    context.print(fmt::format(
        "Wrote {}{}{} to {}, {}, {}.\n{}", counted(entries, "entry", "entries"),
        targets_.empty() ? "" : fmt::format(" for {}", fmt::join(targets_, ", ")),
        written.blobs == 0 ? "" : " and " + counted(written.blobs, "blob", "blobs"), where,
        human_bytes(written.bytes),
        key != nullptr ? "signed by " + key->public_key().name : "unsigned: --sign KEY signs",
        written.digest.empty() ? "" : written.digest + "\n"));
  }

  Result<std::vector<CacheKey>> by_key(StoreAdmin& admin, const std::vector<Target>& targets,
                                       Exit& exit) {
    exit = Exit::store;
    CUKILN_TRY(const auto entries, admin.list());
    std::vector<CacheKey> keys;
    const auto add = [&](const std::vector<EntrySummary>& some) {
      for (const EntrySummary& entry : some) {
        const auto is_its = [&](Target target) { return target.name() == entry.labels.target; };
        if (targets.empty() || std::any_of(targets.begin(), targets.end(), is_its)) {
          keys.push_back(entry.key);
          targets_.insert(entry.labels.target);
        }
      }
    };
    for (const std::string& text : keys_) {
      auto matches = find_entries(entries, text);
      if (!matches && sources_.empty()) {
        auto is_blob = blobs_.add(admin, text);
        if (!is_blob) {
          exit = exit_of_key_error(is_blob.error());
          return std::move(is_blob).error();
        }
        if (*is_blob) {
          continue;
        }
      }
      if (!matches) {
        exit = exit_of_key_error(matches.error());
        return std::move(matches).error();
      }
      add(*matches);
    }
    if (keys_.empty()) {
      add(entries);
    }
    return keys;
  }

  /// Notes where a module's headers are.
  Result<void> add_folders(const ModuleSpec& module) {
    for (const Source& source : module.sources) {
      folders_.insert(folder_of(absolute_path(name_of(source))));
    }
    for (const std::string& folder : module.include) {
      folders_.insert(absolute_path(folder));
    }
    CUKILN_TRY(const TranslatedFlags flags, translate_flags(module.flags));
    for (const std::string& folder : flags.include) {
      folders_.insert(absolute_path(folder, module.working_folder));
    }
    folders_.insert(working_folder_of(module));
    return {};
  }

  /// Returns the entries that the manifest's modules would hit now. Errors: not_found, naming
  /// misses.
  Result<std::vector<CacheKey>> by_manifest(Context& context, const std::vector<Target>& requested,
                                            Exit& exit) {
    exit = Exit::usage;
    CUKILN_TRY(const Manifest manifest, load_manifest(manifest_, requested));
    exit = Exit::failed;
    for (const ModuleSpec& module : manifest.modules()) {
      CUKILN_CHECK(add_folders(module));
    }
    CUKILN_TRY(const auto found, entries_of_manifest(context, manifest, manifest_));
    std::vector<CacheKey> keys;
    for (const ManifestEntry& entry : found) {
      keys.push_back(entry.key);
      targets_.insert(entry.target);
    }
    return keys;
  }

  /// Returns an entry that may be handed on. Errors: invalid_argument, because of its signers.
  Result<StoreEntry> exportable(StoreAdmin& admin, const CacheKey& key, bool is_signed) const {
    CUKILN_TRY(StoreEntry entry, whole_entry(admin, key));
    CUKILN_CHECK(check_signers(admin, entry.signer, entry.labels.name, short_key(key), is_signed,
                               sign_unsigned_));
    return entry;
  }

  Result<Written> write(StoreAdmin& admin, const std::vector<CacheKey>& keys,
                        const SecretKey* key) const {
    CUKILN_TRY(BundleWriter bundle, BundleWriter::create(output_));
    for (const CacheKey& one : keys) {
      CUKILN_TRY(const StoreEntry entry, exportable(admin, one, key != nullptr));
      CUKILN_CHECK(bundle.add(seal_entry(entry, key, true)));
    }
    CUKILN_TRY(const std::uint64_t blobs,
               blobs_.for_each(admin, key != nullptr, sign_unsigned_, [&](const StoreBlob& blob) {
                 return bundle.add_blob(seal_blob(blob, key));
               }));
    CUKILN_CHECK(bundle.finish());
    return Written{bundle.bytes(), blobs, {}};
  }

  Result<Written> write_image(StoreAdmin& admin, const std::vector<CacheKey>& keys,
                              const SecretKey* key) const {
    // Beside the image, whose file system has room for it.
    std::string folder = absolute_path(oci_);
    while (folder.size() > 1 && folder.back() == '/') {
      folder.pop_back();
    }
    const ScratchFolder scratch(fmt::format("{}.part-{}", folder, ::getpid()));
    CUKILN_TRY(auto store, SystemStoreWriter::create(scratch.path()));
    std::set<std::string> modules;
    for (const CacheKey& one : keys) {
      CUKILN_TRY(StoreEntry entry, exportable(admin, one, key != nullptr));
      modules.insert(entry.labels.name);
      if (key != nullptr) {  // a store that is mounted shows by whom, and heeds a revocation
        entry.signer = with_signer(entry.signer, key->public_key().text());
      }
      CUKILN_TRY([[maybe_unused]] const PutOutcome added, store.add(std::move(entry)));
    }
    CUKILN_TRY(
        const std::uint64_t blobs,
        blobs_.for_each(admin, key != nullptr, sign_unsigned_, [&](StoreBlob blob) -> Result<void> {
          if (key != nullptr) {
            blob.signer = with_signer(blob.signer, key->public_key().text());
          }
          CUKILN_TRY([[maybe_unused]] const PutOutcome added, store.add(blob));
          return {};
        }));
    CUKILN_TRY([[maybe_unused]] const auto summary, store.finish());
    const OciLabels labels{
        version(), {targets_.begin(), targets_.end()}, {modules.begin(), modules.end()}};
    CUKILN_TRY(OciSummary image, write_oci_layout(folder, scratch.path(), labels, key));
    return Written{image.bytes, blobs, std::move(image.digest)};
  }

  std::vector<std::string> keys_;
  std::string output_;
  std::string oci_;
  std::string sources_;
  std::vector<std::string> include_;
  std::set<std::string> folders_;  // of the manifest's sources and headers
  std::string manifest_;
  std::vector<std::string> arch_;
  std::set<std::string> targets_;  // of the chosen entries
  std::string sign_;
  bool sign_unsigned_ = false;
  BlobChoice blobs_;
};

}  // namespace

std::unique_ptr<Command> make_export() { return std::make_unique<ExportCommand>(); }

}  // namespace cukiln::cli
