// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/base/result.hpp"
#include "core/compile/compiler.hpp"
#include "core/store/cubin_store.hpp"

namespace cukiln::testing {

/// Keeps entries in a map; tests can make it fail.
class MapStore final : public ObjectTier {
 public:
  const char* tier_name() const noexcept override { return "map"; }
  Lookup find(const RequestDigest& request, ByteView canonical, SetCheck& check, Purpose) override {
    CUKILN_TRY(const auto sets, list_sets(request, canonical));
    for (const RecordedSet& set : sets) {
      CUKILN_TRY(auto entry, get(set.key));
      if (check.holds(set.dependencies, entry && entry->may_trust_toolkit())) return entry;
    }
    return std::optional<StoreEntry>();
  }
  Result<SetTree> find_sets(const RequestDigest&, ByteView) override { return SetTree(); }
  Result<std::vector<RecordedSet>> list_sets(const RequestDigest& request, ByteView) override {
    const std::lock_guard lock(mutex_);
    ++questions;
    if (broken) return Error(ErrorCode::io, "the disk is gone");
    std::vector<RecordedSet> sets;
    for (auto key = order_.rbegin(); key != order_.rend(); ++key) {  // the youngest first
      const auto at = entries_.find(*key);
      if (at != entries_.end() && at->second.request == request) {
        sets.push_back({*key, at->second.dependencies});
      }
    }
    return sets;
  }
  using ObjectTier::get, ObjectTier::peek, ObjectTier::put;
  Lookup get(const CacheKey& key) override {
    const std::lock_guard lock(mutex_);
    const auto at = entries_.find(key);
    return at == entries_.end() ? std::optional<StoreEntry>() : at->second;
  }
  Lookup peek(const CacheKey& key) override { return get(key); }
  Result<PutOutcome> put(const StoreEntry& entry) override {
    const std::lock_guard lock(mutex_);
    if (throws) throw std::bad_alloc();
    ++puts;
    if (broken) return Error(ErrorCode::io, "the disk is full");
    order_.push_back(entry.key);
    return entries_.emplace(entry.key, entry).second ? PutOutcome::stored
                                                     : PutOutcome::already_there;
  }
  Result<bool> remove(const ObjectName& name) override {
    const std::lock_guard lock(mutex_);
    const CacheKey key{name.bytes};
    order_.erase(std::remove(order_.begin(), order_.end(), key), order_.end());
    return entries_.erase(key) != 0;
  }
  Result<std::vector<EntrySummary>> list() override { return std::vector<EntrySummary>{}; }
  StoreStats stats() override { return {}; }
  Result<std::string> source_text(const CacheKey&) override { return std::string(); }
  std::size_t size() {
    const std::lock_guard lock(mutex_);
    return entries_.size();
  }
  std::atomic<bool> broken{false};
  std::atomic<bool> throws{false};
  std::atomic<int> questions{0};
  std::atomic<int> puts{0};

 private:
  std::mutex mutex_;
  std::map<CacheKey, StoreEntry> entries_;
  std::vector<CacheKey> order_;
};

/// "Compiles" by reading given headers and returning their text as the image, and "links" by
/// putting the images together.
class TextCompiler final : public Compiler {
 public:
  Result<Toolchain> toolchain() override {
    if (!is_installed) return Error(ErrorCode::not_found, "NVRTC was not found");
    return Toolchain{"13.0.88", {}};
  }
  Result<Toolchain> linker() override { return toolchain(); }
  std::vector<std::string> toolkit_folders() override { return {}; }
  Result<CompileOutcome> compile(const CompileJob& job) override {
    ++calls;
    if (!job.guard.lock_path.empty() && busy_rounds > 0) {
      --busy_rounds;
      CompileOutcome outcome;
      outcome.state = CompileState::busy;
      return outcome;
    }
    ++compiles;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    if (error) return Error(*error, "no");
    CompileOutcome outcome;
    std::string text;
    if (job.input.request.link) {
      for (const LinkParts::Part& part : job.input.parts->parts) {
        text += part.name.substr(part.name.rfind('/') + 1) + ":";
        text += part.image.view();
        text += ";";
      }
      outcome.result.dependencies = job.input.parts->dependencies;
      outcome.result.uses_time = job.input.parts->uses_time;
      outcome.result.observed = job.input.parts->observed;
      outcome.result.cubin.image = SharedBytes(text);
      if (job.guard.publish) job.guard.publish(outcome.result);
      return outcome;
    }
    for (const std::string& header : headers) {
      const FileAnswer& answer = job.files.local()->serve(header);
      if (answer.kind == FileAnswer::Kind::file) {
        outcome.result.dependencies.add_file(header, answer.digest);
        text += answer.bytes.view();
      } else {
        outcome.result.dependencies.add_absent(header);
      }
    }
    if (refuses) {
      if (job.nvrtc_failure != nullptr) {
        *job.nvrtc_failure = {6, "a.cu(1): error: " + text};
        if (is_of_front_end) job.nvrtc_failure->dependencies = outcome.result.dependencies;
      }
      return Error(ErrorCode::compile_failed, "no");
    }
    outcome.result.cubin.image = SharedBytes(text);
    outcome.result.uses_time = uses_time;
    outcome.result.observed = observed;
    outcome.result.compile_us = 1'000;
    if (job.guard.publish) job.guard.publish(outcome.result);
    return outcome;
  }
  std::atomic<int> calls{0};
  std::atomic<int> compiles{0};
  std::atomic<int> busy_rounds{0};
  std::vector<std::string> headers{"/cukiln/inc/0/a.cuh", "/cukiln/inc/0/b.cuh"};
  std::optional<ErrorCode> error;
  bool refuses = false;  ///< as NVRTC does
  bool is_of_front_end = true;
  bool is_installed = true;
  bool uses_time = false;
  bool observed = true;
};

}  // namespace cukiln::testing
