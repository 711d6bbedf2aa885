// SPDX-License-Identifier: Apache-2.0
#include "cli/entries.hpp"

#include <fnmatch.h>

#include <algorithm>
#include <string_view>

#include "cli/module_options.hpp"
#include "cli/text.hpp"
#include "core/base/clock.hpp"
#include "core/base/nearest.hpp"
#include "core/base/result.hpp"
#include "core/key/compile_request.hpp"
#include "core/store/signers.hpp"

namespace cukiln::cli {

namespace {

constexpr std::size_t kKeyDigits = 64;
constexpr std::size_t kMaxShown = 5;

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](char c) {
    return c >= 'A' && c <= 'F' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return text;
}

bool matches(const std::string& name, const std::string& glob) {
  return name == glob || ::fnmatch(glob.c_str(), name.c_str(), 0) == 0;
}

}  // namespace

bool looks_like_key(const std::string& text) noexcept {
  return text.size() >= kMinKeyDigits && text.size() <= kKeyDigits &&
         text.find_first_not_of("0123456789abcdefABCDEF") == std::string::npos;
}

Result<CacheKey> find_key(const std::vector<EntrySummary>& entries, const std::string& text) {
  if (!looks_like_key(text)) {
    return make_error(ErrorCode::invalid_argument,
                      "invalid key \"{}\"; expected {} to {} hex digits, a prefix of a key that "
                      "'cukiln ls' shows",
                      text, kMinKeyDigits, kKeyDigits);
  }
  const std::string prefix = lower(text);
  std::vector<const EntrySummary*> matches;
  for (const EntrySummary& entry : entries) {
    if (entry.key.hex().starts_with(prefix)) {
      matches.push_back(&entry);
    }
  }
  if (matches.empty()) {
    return make_error(ErrorCode::not_found, "no entry {} in the store; {}", text,
                      where_to_look(entries.size()));
  }
  if (matches.size() > 1) {
    std::string list;
    for (std::size_t i = 0; i < std::min(matches.size(), kMaxShown); ++i) {
      list += fmt::format("{}{} ({})", i == 0 ? "" : ", ", matches[i]->key.hex(),
                          matches[i]->labels.name);
    }
    return make_error(ErrorCode::invalid_argument,
                      "{} is a prefix of {} keys: {}{}; give more digits", text, matches.size(),
                      list, matches.size() > kMaxShown ? ", ..." : "");
  }
  return matches.front()->key;
}

Result<std::vector<EntrySummary>> find_entries(const std::vector<EntrySummary>& entries,
                                               const std::string& text) {
  std::vector<EntrySummary> selected;
  auto key = find_key(entries, text);
  const bool is_name =
      !key && (!looks_like_key(text) || key.error().code() == ErrorCode::not_found);
  std::copy_if(entries.begin(), entries.end(), std::back_inserter(selected),
               [&](const EntrySummary& entry) {
                 return is_name ? matches(entry.labels.name, text) : key && entry.key == *key;
               });
  if (!selected.empty()) {
    return selected;
  }
  if (looks_like_key(text)) {
    return std::move(key).error();
  }
  std::vector<std::string> names;
  for (const EntrySummary& entry : entries) {
    names.push_back(entry.labels.name);
  }
  const std::string meant = nearest(text, names);
  return make_error(ErrorCode::invalid_argument,
                    "\"{}\" is neither the name of a module in the store nor a prefix of a key "
                    "({} to {} hex digits){}; {}",
                    text, kMinKeyDigits, kKeyDigits,
                    meant.empty() ? "" : fmt::format("; did you mean \"{}\"?", meant),
                    where_to_look(entries.size()));
}

bool is_part(const EntrySummary& entry) {
  const auto has = [](const std::string& text, std::string_view what) {
    return text.find(what) != std::string::npos;
  };
  const EntryLabels& labels = entry.labels;
  return (has(labels.flags, kRdcArgument) || has(labels.flags, kLtoArgument)) &&
         !has(labels.compiler, "nvjitlink");
}

Result<std::optional<BlobSummary>> find_blob(const std::vector<BlobSummary>& blobs,
                                             const std::string& text) {
  std::optional<BlobSummary> match;
  if (!looks_like_key(text)) {
    return match;
  }
  const std::string prefix = lower(text);
  for (const BlobSummary& blob : blobs) {
    if (!blob.id.hex().starts_with(prefix)) {
      continue;
    }
    if (match) {
      return make_error(ErrorCode::invalid_argument,
                        "{} is a prefix of several blobs: {}, {}, ...; give more digits", text,
                        match->id.hex(), blob.id.hex());
    }
    match = blob;
  }
  return match;
}

std::vector<std::pair<const char*, std::string>> signer_rows(const std::string& signers) {
  std::vector<std::pair<const char*, std::string>> rows;
  for (const std::string& signer : split_signers(without_mark(signers))) {
    rows.emplace_back(rows.empty() ? "signed by" : "then by",
                      signer == kUnsigned ? "none: imported with --insecure" : printable(signer));
  }
  return rows;
}

std::string key_text(const BlobSummary& blob) {
  const bool is_text =
      std::all_of(blob.key.begin(), blob.key.end(), [](char c) { return c >= ' ' && c <= '~'; });
  return is_text ? blob.key
                 : "0x" + hex_of_bytes(reinterpret_cast<const std::uint8_t*>(blob.key.data()),
                                       blob.key.size());
}

Json blob_json(const BlobSummary& blob) {
  return Json{{"id", blob.id.hex()},
              {"kind", blob.kind},
              {"key", key_text(blob)},
              {"size_bytes", blob.size_bytes},
              {"created", blob.created_s},
              {"last_used", blob.last_used_s},
              {"hits", blob.hits},
              {"signer", blob.signer},
              {"signers", split_signers(blob.signer)}};
}

void EntryFilter::add_to(CLI::App& app) {
  app.add_option("--arch", arch_, "only entries for this target; repeatable")
      ->type_name("TARGET")
      ->delimiter(',')
      ->allow_extra_args(false);
  app.add_option("--name", name_, "only entries of modules whose names match, with * and ?")
      ->type_name("GLOB");
}

bool EntryFilter::names(const std::string& name) const {
  return name_.empty() || matches(name, name_);
}

Result<std::vector<EntrySummary>> EntryFilter::apply(std::vector<EntrySummary> entries) const {
  CUKILN_TRY(const auto targets, parse_targets(arch_));
  std::erase_if(entries, [&](const EntrySummary& entry) {
    const bool has_target =
        targets.empty() || std::any_of(targets.begin(), targets.end(), [&](Target target) {
          return entry.labels.target == target.name();
        });
    return !has_target || !names(entry.labels.name);
  });
  return entries;
}

Result<StoreEntry> whole_entry(StoreAdmin& store, const CacheKey& key) {
  CUKILN_TRY(auto entry, store.peek(key));
  if (!entry) {
    return make_error(ErrorCode::not_found, "the entry {} was removed meanwhile; try again",
                      key.hex());
  }
  if (auto source = store.source_text(key)) {
    entry->source_text = *std::move(source);
  }
  return *std::move(entry);
}

Exit exit_of_key_error(const Error& error) noexcept {
  return error.code() == ErrorCode::invalid_argument ? Exit::usage : Exit::failed;
}

std::string short_key(const CacheKey& key) { return key.hex().substr(0, kShownKeyDigits); }
std::string short_key(const BlobId& id) { return id.hex().substr(0, kShownKeyDigits); }

std::string where_to_look(std::size_t entries) {
  return entries == 0 ? "the store has no entries"
                      : fmt::format("'cukiln ls' shows all {}", entries);
}

std::int64_t now_s() { return Clock::system().now_s(); }

}  // namespace cukiln::cli
