// SPDX-License-Identifier: Apache-2.0
#include "daemon/source_watch.hpp"

#include <poll.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/hasher.hpp"
#include "base/result.hpp"

namespace cukiln::daemon {

namespace {

using std::chrono::milliseconds;

/// Identifies a module while its files are edited: hashes all of an order but the texts.
ContentHash identity_of(const wire::CompileOrder& order, const wire::SourceRoots& source_roots) {
  wire::CompileOrder without;
  without.request.options = order.request.options;
  without.request.target = order.request.target;
  without.request.toolchain = order.request.toolchain;
  without.library = order.library;
  for (const VirtualSource& source : order.request.sources) {
    without.request.sources.push_back({source.path, {}});
  }
  return hash_of(without.encode() + source_roots.encode());
}

}  // namespace

SourceWatch::SourceWatch(Options options, TieredStore& store, Compile compile)
    : options_(std::move(options)),
      store_(store),
      compile_(std::move(compile)),
      folders_(options_.folders),
      thread_([this] { run(); }) {}

SourceWatch::~SourceWatch() {
  tasks_.post([this] { ending_ = true; });
  thread_.join();
}

FolderWatch::Stats SourceWatch::stats() const noexcept {
  return {published_folders_.load(std::memory_order_relaxed),
          published_events_.load(std::memory_order_relaxed),
          published_overflows_.load(std::memory_order_relaxed),
          published_limited_.load(std::memory_order_relaxed)};
}

void SourceWatch::publish_stats() {
  const FolderWatch::Stats now = folders_.stats();
  published_folders_.store(now.folders, std::memory_order_relaxed);
  published_events_.store(now.events, std::memory_order_relaxed);
  published_overflows_.store(now.overflows, std::memory_order_relaxed);
  published_limited_.store(now.limited, std::memory_order_relaxed);
}

void SourceWatch::add(Order order, Roots source_roots, std::string set_canonical) {
  tasks_.post([this, order = std::move(order), source_roots = std::move(source_roots),
               set = std::move(set_canonical)] { add_module(order, source_roots, set); });
}

void SourceWatch::forget(Modules::iterator module) {
  folders_.drop(module->number);
  by_number_.erase(module->number);
  text_bytes_ -= module->text_bytes;
  modules_.erase(module);
}

void SourceWatch::add_module(Order order, Roots source_roots, const std::string& set_canonical) {
  Module module;
  module.identity = identity_of(*order, *source_roots);
  const auto known = std::find_if(modules_.begin(), modules_.end(), [&](const Module& other) {
    return other.identity == module.identity;
  });
  if (known != modules_.end()) {
    module.dependencies = std::move(known->dependencies);
    forget(known);
  }
  module.number = ++last_number_;
  module.order = std::move(order);
  module.source_roots = std::move(source_roots);
  FileServer files(module.source_roots->roots, &stats_);
  bool is_current = true;
  if (!set_canonical.empty()) {  // empty after a crash
    if (const auto set = DependencySet::parse(set_canonical)) {
      is_current = files.check(*set).what == FileServer::Mismatch::What::none;
      depend(module, *set);
    }
  }
  for (const VirtualSource& source : module.order->request.sources) {
    module.text_bytes += source.text.size();
    if (!files.candidates(source.path).empty()) {
      const FileAnswer& now = files.serve(source.path);
      is_current &= now.kind == FileAnswer::Kind::file && now.digest == source.digest;
    }
  }
  text_bytes_ += module.text_bytes;
  modules_.push_front(std::move(module));
  by_number_[last_number_] = modules_.begin();
  watch(modules_.front(), files);
  if (!is_current) {  // edited during the compile
    changed_.insert(last_number_);
    quiet_at_ = latest_at_ = Clock::now() + options_.quiet_time;
  }
  while (modules_.size() > options_.max_modules ||
         (text_bytes_ > options_.max_text_bytes && modules_.size() > 1)) {
    forget(std::prev(modules_.end()));
  }
}

void SourceWatch::depend(Module& module, const DependencySet& set) {
  module.dependencies.clear();
  const auto add = [&](const std::string& path) {
    if (!is_within(path, kToolkitRoot)) {  // many, and never edited
      module.dependencies.push_back(path);
    }
  };
  for (const Observation& seen : set.observations) {
    if (seen.kind != Observation::Kind::folder) {
      add(seen.path);
    }
  }
}

void SourceWatch::watch(const Module& module, const FileServer& files) {
  std::vector<std::string> paths;
  const auto add = [&](const std::string& path) {
    const std::vector<std::string> real = files.candidates(path);
    paths.insert(paths.end(), real.begin(), real.end());
  };
  for (const VirtualSource& source : module.order->request.sources) {
    add(source.path);
  }
  std::for_each(module.dependencies.begin(), module.dependencies.end(), add);
  folders_.set(module.number, paths);
}

void SourceWatch::recompile_if_stale(Module& module) {
  FileServer files(module.source_roots->roots, &stats_);
  watch(module, files);
  auto order = std::make_shared<wire::CompileOrder>(*module.order);
  for (VirtualSource& source : order->request.sources) {
    if (files.candidates(source.path).empty()) {
      continue;  // a source from memory
    }
    const FileAnswer& now = files.serve(source.path);
    if (now.kind != FileAnswer::Kind::file) {
      return;  // removed, or an editor is about to replace it
    }
    source = {source.path, now.bytes, now.digest};
  }
  const std::string canonical = order->request.canonical();
  FileCheck check(files);
  const auto known = store_.find(CompileRequest::digest_of(canonical), canonical, check,
                                 CubinStore::Purpose::inspect);
  if (known && *known) {
    depend(module, (*known)->dependencies);  // changed back, or compiled by another process
    module.order = std::move(order);
    watch(module, files);
    return;
  }
  options_.log.info("{} for {}: recompiled, because its files have changed", order->labels.name,
                    order->labels.target);
  compile_(std::move(order), module.source_roots);
}

void SourceWatch::run() {
  Clock::time_point next_check = Clock::now() + options_.check_interval;
  while (!ending_) {
    auto until = Clock::time_point::max();
    if (!changed_.empty()) {
      until = std::min(quiet_at_, latest_at_);
    }
    if (!folders_.empty()) {
      until = std::min(until, next_check);
    }
    int timeout = -1;
    if (until != Clock::time_point::max()) {
      const auto left = std::chrono::ceil<milliseconds>(until - Clock::now()).count();
      timeout = static_cast<int>(std::clamp<std::int64_t>(left, 0, 1 << 30));
    }
    std::array<pollfd, 2> wait{{{tasks_.fd(), POLLIN, 0}, {folders_.fd(), POLLIN, 0}}};
    ::poll(wait.data(), wait.size(), timeout);
    const auto now = Clock::now();
    FolderWatch::Subjects changes;
    if ((wait[1].revents & POLLIN) != 0) {
      changes = folders_.take_changes();
    }
    if (now >= next_check) {
      changes.merge(folders_.check_all());
      next_check = now + options_.check_interval;
    }
    if (!changes.empty()) {
      if (changed_.empty()) {
        latest_at_ = now + options_.max_delay;
      }
      quiet_at_ = now + options_.quiet_time;
      changed_.merge(changes);
    }
    if ((wait[0].revents & POLLIN) != 0) {
      tasks_.run_pending(options_.log);
    }
    if (!changed_.empty() && now >= std::min(quiet_at_, latest_at_)) {
      for (const FolderWatch::Subject number : std::exchange(changed_, {})) {
        if (const auto at = by_number_.find(number); at != by_number_.end() && !ending_) {
          recompile_if_stale(*at->second);
        }
      }
    }
    publish_stats();
  }
}

}  // namespace cukiln::daemon
