// SPDX-License-Identifier: Apache-2.0
#include "core/loader/module_watch.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <utility>

#include "core/base/fork_gate.hpp"
#include "core/base/result.hpp"
#include "core/key/compile_request.hpp"

namespace cukiln {

namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr std::size_t kMaxOldModules = 64;
constexpr std::chrono::milliseconds kPollInterval(1000);
constexpr int kSettleMs = 20;  // an editor renames and writes: one reload for all of it
constexpr int kMaxSettles = 25;

/// An editor may be about to write a source that is gone, and a capture ends.
bool may_pass(const Error& error) {
  return error.code() == ErrorCode::not_found || error.code() == ErrorCode::invalid_argument;
}

std::string text_with_log(const Error& error) {
  return error.log().empty() ? error.message() : error.message() + "\n" + error.log();
}

/// Returns the reason of a compile by the sources: `source changed: apply.cu`, if they are not
/// those of the entry that is loaded. Empty: they are, or it was not stored.
std::string source_change(const Lookup& loaded, const ModuleSpec& spec,
                          const CompileRequest& request) {
  const auto was = loaded && *loaded ? RequestFields::parse((*loaded)->request_canonical)
                                     : Result<RequestFields>(RequestFields());
  for (std::size_t i = 0; was && i < was->sources.size() && i < spec.sources.size(); ++i) {
    if (was->sources[i].digest != request.sources[i].digest) {
      return "source changed: " + name_of(spec.sources[i]);
    }
  }
  return {};
}

/// The files that a spec names.
std::vector<std::string> named_files(const ModuleSpec& spec) {
  std::vector<std::string> paths = spec.objects;
  for (const Source& source : spec.sources) {
    paths.push_back(name_of(source));
  }
  return paths;
}

}  // namespace

ModuleWatch::ModuleWatch(KernelLoader::Impl& loader, const WatchOptions& options)
    : loader_(loader),
      options_(options),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      next_poll_(SteadyClock::now() + kPollInterval) {}

Result<void> ModuleWatch::start() {
  loader_.modules.set_wake(wake_.get());
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);  // the host's handlers run in its own threads
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  auto started = guarded([this]() -> Result<void> {
    thread_ = std::thread([this] { run(); });
    return {};
  });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return started ? std::move(started)
                 : std::move(started).error().with_context("no thread for a watch");
}

ModuleWatch::~ModuleWatch() {
  loader_.modules.set_wake(-1);
  stopped_ = true;
  ::eventfd_write(wake_.get(), 1);
  if (thread_.joinable()) {
    thread_.join();
  }
}

void ModuleWatch::run() noexcept {
  while (!stopped_) {
    const auto passed = guarded([this]() -> Result<void> {
      check_modules();
      wait();
      return {};
    });
    if (!passed) {  // most likely there is no memory
      loader_.log.warn("a watch could not look for edited files: {}", passed.error().message());
      pollfd wake{wake_.get(), POLLIN, 0};
      ::poll(&wake, 1, static_cast<int>(kPollInterval.count()));
    }
  }
}

/// Checks the modules that were loaded since the last call, and those with a changed file.
void ModuleWatch::check_modules() {
  const std::vector<Watched> modules = loader_.modules.watched();
  for (auto known = files_.begin(); known != files_.end();) {
    const bool is_there = std::any_of(modules.begin(), modules.end(), [&](const Watched& module) {
      return module.id == known->first;
    });
    if (!is_there) {
      folders_.drop(known->first);
    }
    known = is_there ? std::next(known) : files_.erase(known);
  }
  for (const Watched& module : modules) {
    const bool is_new = !files_.contains(module.id);
    if (!stopped_ && (changed_.erase(module.id) != 0 || is_new)) {
      Files& files = files_[module.id];
      if (is_new) {
        files.paths = named_files(*module.spec);
      }
      const EventDelivery delivery(loader_.tiers.events(), loader_.events);
      check(module, files);
    }
  }
}

/// Waits until a file changed, a module was added, or a second has passed.
void ModuleWatch::wait() {
  pollfd both[] = {{folders_.fd(), POLLIN, 0}, {wake_.get(), POLLIN, 0}};
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(next_poll_ - SteadyClock::now()).count();
  ::poll(both, 2, static_cast<int>(std::max<std::int64_t>(left, 0)));
  eventfd_t ignored = 0;
  ::eventfd_read(wake_.get(), &ignored);
  if (SteadyClock::now() >= next_poll_) {
    changed_.merge(folders_.check_all());
    changed_.merge(std::exchange(retries_, {}));
    next_poll_ = SteadyClock::now() + kPollInterval;
  }
  bool settles = both[0].revents != 0 || !changed_.empty();
  for (int i = 0; settles && i < kMaxSettles && !stopped_; ++i) {
    changed_.merge(folders_.take_changes());
    settles = ::poll(both, 1, kSettleMs) > 0;
  }
}

void ModuleWatch::check(const Watched& module, Files& files) {
  const auto began = SteadyClock::now();
  folders_.set(module.id, files.paths);
  Event event;
  const auto reloaded = guarded([&] { return reload(module, files, event); });
  if (stopped_ || (reloaded && !*reloaded)) {
    files.retries = 0;
    return;
  }
  if (!reloaded && may_pass(reloaded.error())) {
    retries_.insert(module.id);
    if (files.retries++ != 1) {  // reported once, if it has not passed within a second
      return;
    }
  } else {
    files.retries = 0;
  }
  event.kind = EventKind::reload;
  event.module = module.spec->name;
  event.target = module.spec->targets.front();
  event.failed = !reloaded;
  event.elapsed = time_since(began);
  if (reloaded) {
    loader_.log.info("{} for {} was reloaded: {}", event.module, event.target.name(), event.reason);
  } else {
    event.reason = text_with_log(reloaded.error());
    loader_.log.warn("{} for {} was edited and is not reloaded, its kernels stay: {}", event.module,
                     event.target.name(), event.reason);
  }
  loader_.events.add([&] { return std::move(event); });
}

/// Makes a module what its files are now. False if it is that already, or was unloaded.
Result<bool> ModuleWatch::reload(const Watched& module, Files& files, Event& event) {
  for (;;) {
    CUKILN_TRY(
        KernelLoader::Impl::Resolved resolved,
        loader_.resolve(*module.spec, module.spec->targets.front(), Builder::Purpose::inspect));
    const ModuleRequest& request = resolved.request;
    Built built;
    built.reason = "in the store";
    if (resolved.found.entry) {
      built.entry = *std::move(resolved.found.entry);
    } else {
      CUKILN_CHECK(check_allowed(true));
      const std::string changed =
          source_change(loader_.tiers.peek(module.key), *module.spec, request.request);
      NvrtcFailure failure;
      auto compiled = loader_.builder->build(request, std::move(resolved.found), {}, &stopped_,
                                             nullptr, &failure);
      if (!compiled) {
        if (!failure.dependencies || stopped_ ||
            watch_files(module, request, *failure.dependencies, files)) {
          return std::move(compiled).error();
        }
        continue;
      }
      built = *std::move(compiled);
      if (!changed.empty()) {
        built.reason = changed;
      }
      if (built.not_stored) {
        loader_.keep_unstored(built.entry);
      }
    }
    if (!watch_files(module, request, built.entry.dependencies, files)) {
      continue;  // edited meanwhile
    }
    const CacheKey key = built.entry.key;
    if (key == module.key) {
      return false;
    }
    const auto now = loader_.modules.find(module.id);
    if (now == nullptr) {
      return false;  // it was unloaded
    }
    auto next = loader_.modules.image(key, *now);
    CUKILN_CHECK(check_allowed(next == nullptr));
    if (next == nullptr) {
      CUKILN_TRY(auto api, loader_.driver());
      CUKILN_TRY(next, load_image(request, built.entry, std::move(api), now->devices(), nullptr));
    }
    CUKILN_CHECK(loader_.modules.exchange(module.id, key, next));
    event.key = key;
    event.reason = std::move(built.reason);
    return true;
  }
}

/// Whether a module may be reloaded; `is_new`: by an image that is not loaded yet.
Result<void> ModuleWatch::check_allowed(bool is_new) {
  if (loader_.seal.is_set() && !options_.after_seal) {
    return Error(ErrorCode::sealed,
                 "the loader is sealed; set WatchOptions::after_seal to reload after seal()");
  }
  if (is_new && loader_.modules.versions() >= kMaxOldModules) {
    return make_error(ErrorCode::incompatible,
                      "stop: {} old modules are loaded, since launches may still run them; end "
                      "this process and start it again to go on",
                      kMaxOldModules);
  }
  return {};
}

/// Watches what a compile looked at. False if some of that has changed since.
bool ModuleWatch::watch_files(const Watched& module, const ModuleRequest& request,
                              const DependencySet& set, Files& files) {
  const auto server = request.files(&loader_.stat_cache);
  std::vector<std::string> paths = named_files(*module.spec);
  for (const Observation& one : set.observations) {
    if (one.kind != Observation::Kind::folder && !is_within(one.path, kToolkitRoot)) {
      const std::vector<std::string> found = server->candidates(one.path);
      paths.insert(paths.end(), found.begin(), found.end());
    }
  }
  if (paths == files.paths) {
    return true;  // they were watched before the compile
  }
  folders_.set(module.id, paths);
  files.paths = std::move(paths);
  return server->check(set).what == FileServer::Mismatch::What::none;
}

void WatchSlot::end() {
  std::unique_ptr<ProcessLocal<ModuleWatch>> ended;  // joins its thread after the lock is released
  const ForkSafeLock lock(mutex);
  ended = std::move(running);
}

Result<Watch> WatchSlot::start(const std::shared_ptr<WatchSlot>& self, KernelLoader::Impl& loader,
                               const WatchOptions& options) {
  const ForkSafeLock lock(self->mutex);
  if (self->running != nullptr && self->running->existing() != nullptr) {
    return make_error(ErrorCode::invalid_argument,
                      "this loader is watched already; end that Watch first");
  }
  auto made = std::make_unique<ProcessLocal<ModuleWatch>>(loader, options);
  CUKILN_CHECK(made->existing()->start());
  self->running = std::move(made);
  return Watch({new std::shared_ptr<WatchSlot>(self), [](void* slot) {
                  const auto* const shared = static_cast<std::shared_ptr<WatchSlot>*>(slot);
                  (*shared)->end();
                  delete shared;
                }});
}

}  // namespace cukiln
