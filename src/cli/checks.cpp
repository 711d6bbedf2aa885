// SPDX-License-Identifier: Apache-2.0
#include "cli/checks.hpp"

#include <algorithm>
#include <chrono>

#include "cli/human.hpp"
#include "cli/running_daemon.hpp"
#include "core/base/result.hpp"
#include "core/compile/bundled_headers.hpp"
#include "core/compile/nvrtc_compiler.hpp"
#include "core/compile/toolchain_identity.hpp"
#include "core/compile/worker_process.hpp"
#include "core/driver/module.hpp"
#include "core/loader/addons.hpp"
#include "core/loader/make_compiler.hpp"
#include "core/loader/settings.hpp"
#include "core/store/store_admin.hpp"

namespace cukiln::cli {

namespace {

using Status = Check::Status;

// The targets of the shipped kernels. An NVRTC compiles for others too.
constexpr Target kCheckedTargets[] = {{100, 'a'}, {90, 'a'}};

constexpr std::chrono::seconds kWorkerTimeout{20};

// Less does not hold an entry.
constexpr std::uint64_t kMinFreeBytes = 1 << 20;
// A larger store is not verified: reading it takes too long for `doctor`.
constexpr std::uint64_t kMaxCheckedBytes = 256ull << 20;

/// Names the file system of a magic number of statfs(2): `ext4` for `0xef53`.
std::string file_system_name(const std::string& magic) {
  constexpr std::pair<const char*, const char*> kNames[] = {
      {"0xef53", "ext4"},     {"0x58465342", "xfs"},       {"0x9123683e", "btrfs"},
      {"0x1021994", "tmpfs"}, {"0x794c7630", "overlayfs"}, {"0x2fc12fc1", "zfs"},
      {"0xf2f52010", "f2fs"}};
  for (const auto& [number, name] : kNames) {
    if (magic == number) {
      return name;
    }
  }
  return magic;
}

/// Returns `13.0` for `13.0.88`.
std::string minor_version(const std::string& version) {
  const std::size_t first = version.find('.');
  return version.substr(0, first == std::string::npos ? first : version.find('.', first + 1));
}

Check check_worker(const LoaderOptions& options) {
  Check check{.name = "worker"};
  if (auto path = find_worker(options.worker)) {
    check.detail = *std::move(path);
  } else {
    check.status = Status::missing;
    check.detail = path.error().message();
    check.advice =
        "install all of cukiln, or set CUKILN_WORKER to the path of cukiln-compile-worker";
  }
  return check;
}

/// Starts a worker, and checks which protections against a compiler that a text has taken over are
/// in force here. Kernels are compiled without them too.
Check check_sandbox(const LoaderOptions& options, const NvrtcInstall& install) {
  Check check{.name = "sandbox", .needed = false};
  const auto path = find_worker(options.worker);
  const auto worker =
      !path ? Result<std::unique_ptr<WorkerProcess>>(path.error())
            : WorkerProcess::start({.path = *path,
                                    .library = install.library,
                                    .builtins = install.builtins,
                                    .memory_bytes = options.compile_memory_bytes},
                                   {std::chrono::steady_clock::now() + kWorkerTimeout, {}});
  if (!worker) {
    check.status = Status::wrong;
    check.detail = worker.error().message();
    return check;
  }
  const wire::Hello& active = (*worker)->hello();
  std::vector<std::string> have;
  std::vector<std::string> lacks;
  std::vector<std::string> advice;
  const auto add = [&](bool is_active, std::string name, const char* missing, const char* wants) {
    if (is_active) {
      have.push_back(std::move(name));
    } else {
      lacks.emplace_back(missing);
      advice.emplace_back(wants);
    }
  };
  add(active.filters_calls, "seccomp", "seccomp", "permit seccomp filters in this container");
  add(active.landlock != 0, fmt::format("Landlock {}", active.landlock), "Landlock",
      "use Linux 5.13 or later with landlock in lsm= of its command line");
  add(active.hides_memory, "not dumpable", "hidden memory", "permit prctl in this container");
  add(active.max_tasks != 0, fmt::format("at most {} tasks", active.max_tasks), "limit of tasks",
      "use Linux 5.14 or later, and permit user namespaces (as root: CAP_SETUID)");
  add(options.compile_memory_bytes != 0, "at most " + human_bytes(options.compile_memory_bytes),
      "limit of memory", "set compile_memory_bytes");
  have.emplace_back("as this user");
  check.detail = fmt::format("{}", fmt::join(have, ", "));
  if (!lacks.empty()) {
    check.status = Status::missing;
    check.detail += fmt::format("; no {}", fmt::join(lacks, ", no "));
    check.advice = fmt::format("{}", fmt::join(advice, "; "));
  }
  check.fields["protections"] = Json{{"seccomp", active.filters_calls},
                                     {"landlock", active.landlock},
                                     {"not_dumpable", active.hides_memory},
                                     {"max_tasks", active.max_tasks},
                                     {"max_memory_bytes", options.compile_memory_bytes}};
  return check;
}

/// Checks that there are headers, and that they and NVRTC are of one release: NVRTC 12.9 fails to
/// compile headers of 13.0.
Check check_headers(const std::vector<std::string>& folders, const std::string& nvrtc_version) {
  Check check{.name = "headers"};
  if (!has_cuda_headers(folders) && !nvrtc_version.empty() && carries_headers(nvrtc_version)) {
    check.detail = fmt::format(
        "those that NVRTC {} carries; the first compile installs them in the store's folder",
        nvrtc_version);
    return check;
  }
  if (!has_cuda_headers(folders)) {
    check.status = Status::missing;
    check.detail = "no folder with CUDA's headers (cuda_fp16.h) found";
    check.advice =
        "install the headers of NVRTC's release (nvidia-cuda-runtime, or a toolkit), or NVRTC 13.3 "
        "or later, which carries them; or set CUKILN_INCLUDE_PATH to their folder";
    return check;
  }
  const std::string version = header_version(folders);
  check.detail =
      fmt::format("{} in {}", version.empty() ? "of an unknown release" : "CUDA " + version,
                  fmt::join(folders, ", "));
  if (!version.empty() && !nvrtc_version.empty() && version != minor_version(nvrtc_version)) {
    const bool same_major =
        version.substr(0, version.find('.')) == nvrtc_version.substr(0, nvrtc_version.find('.'));
    check.status = same_major ? Status::ok : Status::wrong;
    check.advice = fmt::format(
        "NVRTC is {}: {} headers of {}, or set CUKILN_INCLUDE_PATH to a folder that has them",
        nvrtc_version, same_major ? "prefer" : "install", minor_version(nvrtc_version));
  }
  return check;
}

/// An NVRTC and the targets that it would compile for.
struct Nvrtc {
  NvrtcInstall install;
  std::vector<std::string> targets;
  std::vector<std::string> notes;  ///< the libraries that were skipped, each with the reason
};

Result<std::vector<Nvrtc>> nvrtc_of_targets(NvrtcSearch search) {
  std::vector<Nvrtc> found;
  for (const Target target : kCheckedTargets) {
    search.target = target;
    CUKILN_TRY(NvrtcInstall install, find_nvrtc(search));
    auto at = std::find_if(found.begin(), found.end(), [&](const Nvrtc& other) {
      return other.install.library == install.library;
    });
    if (at == found.end()) {
      at = found.insert(found.end(), {install, {}, {}});
    }
    at->install.too_old += at->install.too_old.empty() ? install.too_old : std::string();
    at->targets.push_back(target.name());
    at->notes.insert(at->notes.end(), install.passed_over.begin(), install.passed_over.end());
  }
  return found;
}

/// Sets `version` to the library's version, if it can be probed.
Check check_nvrtc(NvrtcCompiler& compiler, const Nvrtc& found, std::string& version) {
  Check nvrtc{.name = "nvrtc"};
  const auto identity = compiler.identity();
  if (identity) {
    version = identity->toolchain.version;
    nvrtc.detail = fmt::format("{} in {}, for {} and others", version, found.install.library,
                               fmt::join(found.targets, ", "));
    nvrtc.advice = fmt::format("{}", fmt::join(found.notes, "; "));
    if (!identity->observed) {
      nvrtc.status = Status::wrong;
      nvrtc.advice =
          "this NVRTC reads files in a way that the worker cannot observe, so results are not "
          "stored; use NVRTC of the wheel nvidia-cuda-nvrtc";
    }
  } else {
    nvrtc.status = Status::wrong;
    nvrtc.detail = fmt::format("{}, for {}: {}", found.install.library,
                               fmt::join(found.targets, ", "), identity.error().message());
    nvrtc.advice = "set CUKILN_NVRTC_LIBRARY to another NVRTC";
  }
  if (!found.install.too_old.empty()) {
    nvrtc.status = Status::wrong;
    nvrtc.advice =
        found.install.too_old + "; install a newer one, or set CUKILN_NVRTC_LIBRARY to its path";
  }
  return nvrtc;
}

/// Whether modules can be linked, of an NVRTC that works.
Check check_linker(NvrtcCompiler& compiler) {
  Check check{.name = "nvjitlink", .needed = false};
  const auto linker = compiler.identity(Tool::nvjitlink);
  if (!linker) {
    check.status = linker.error().code() == ErrorCode::not_found ? Status::missing : Status::wrong;
    check.detail = linker.error().message();
    check.advice = "needed only to link modules (--link, -rdc=true, -dlto)";
    return check;
  }
  check.detail = fmt::format("{} in {}", linker->toolchain.version, linker->install.library);
  if (!linker->observed) {
    check.status = Status::wrong;
    check.advice =
        "this nvJitLink reads files in a way that the worker cannot observe, so linked modules are "
        "not stored; use that of the wheel nvidia-nvjitlink";
  }
  return check;
}

}  // namespace

const char* name_of(Check::Status status) noexcept {
  switch (status) {
    case Status::ok: return "ok";
    case Status::missing: return "missing";
    case Status::wrong: return "wrong";
  }
  return "unknown";
}

void check_compiler(const LoaderOptions& options, std::vector<Check>& checks) {
  const auto all = nvrtc_of_targets(nvrtc_search(options));
  if (!all) {
    Check nvrtc{.name = "nvrtc", .status = Status::missing};
    nvrtc.detail = all.error().message();
    nvrtc.advice =
        "install a CUDA toolkit of 12.8 or later; or, in a virtual environment (python3 -m venv "
        "DIR), DIR/bin/pip install nvidia-cuda-nvrtc nvidia-cuda-runtime, then nvrtc_library = "
        "\"…/libnvrtc.so.13\", the library's path below DIR, in /etc/cukiln/config.toml or "
        "CUKILN_NVRTC_LIBRARY. Stored kernels are served without it";
    checks.push_back(std::move(nvrtc));
    const std::vector<std::string> folders = find_headers(nvrtc_search(options));
    checks.push_back(check_headers(folders, {}));
    checks.back().needed = false;  // stored kernels are served without them
    if (folders.empty()) {
      checks.back().detail +=
          ": those that an entry was compiled with count as recorded, if it is known whose they "
          "were";
    }
  } else {
    for (const Nvrtc& one : *all) {
      std::string version;
      NvrtcCompilerOptions worker_options;
      worker_options.search = nvrtc_search(options);
      worker_options.install = one.install;
      worker_options.worker = options.worker;
      worker_options.memory_bytes = options.compile_memory_bytes;
      worker_options.link = addons().link_tool;
      NvrtcCompiler compiler(std::move(worker_options));
      checks.push_back(check_nvrtc(compiler, one, version));
      checks.push_back(check_headers(one.install.headers, version));
      if (!version.empty()) {
        checks.push_back(check_linker(compiler));
      }
    }
  }
  checks.push_back(check_worker(options));
  if (all && checks.back().status == Status::ok) {
    checks.push_back(check_sandbox(options, all->front().install));
  }
}

void check_limits(const LoaderOptions& options, std::vector<Check>& checks) {
  Check limits{.name = "limits"};
  CompileBudget budget({options.jobs, options.memory_bytes});
  const std::uint64_t memory = budget.memory_bytes();
  limits.detail =
      counted(budget.jobs(), "compile", "compiles") + " concurrently, " +
      (memory == 0 ? std::string("in memory of an unknown size")
                   : fmt::format("in {} ({})", human_bytes(memory), budget.memory_from()));
  if (memory != 0 && memory < CompileBudget::kTypicalBytes) {
    limits.advice = fmt::format(
        "a large kernel may need more: raise the limit, or set CUKILN_MEMORY to {} or more",
        human_bytes(CompileBudget::kTypicalBytes));
  }
  checks.push_back(std::move(limits));
}

void check_driver(const LoaderOptions& options, std::vector<Check>& checks) {
  Check driver{.name = "driver", .needed = false};
  const auto api = DriverApi::open(options.cuda_library);
  if (!api) {
    driver.status = api.error().code() == ErrorCode::not_found ? Status::missing : Status::wrong;
    driver.detail = api.error().message();
    driver.advice = "needed only to load kernels on this machine: install the NVIDIA driver";
    checks.push_back(std::move(driver));
    return;
  }
  driver.detail = "CUDA " + (*api)->version_text();
  checks.push_back(std::move(driver));

  Check devices{.name = "devices", .needed = false};
  const auto list = list_devices(**api);
  if (!list || list->empty()) {
    devices.status = list ? Status::missing : Status::wrong;
    devices.detail = list ? "the driver reports no device" : list.error().message();
    devices.advice = "check nvidia-smi and CUDA_VISIBLE_DEVICES";
  } else {
    for (const DeviceInfo& device : *list) {
      devices.detail +=
          fmt::format("{}{}: {}, {}, {}", devices.detail.empty() ? "" : "\n", device.ordinal,
                      device.name, target_of(device).name(), human_bytes(device.memory_bytes));
    }
  }
  checks.push_back(std::move(devices));
}

void check_daemon(const StoreOptions& options, std::vector<Check>& checks) {
  Check daemon{.name = "daemon", .needed = options.daemon == DaemonUse::require};
  if (options.daemon == DaemonUse::off) {
    daemon.detail = "off by the setting daemon: every process compiles for itself";
    checks.push_back(std::move(daemon));
    return;
  }
  const auto running = running_daemon(daemon_sockets(SettingsSources::of_this_process(), options));
  if (running) {
    daemon.detail = *running;
  } else {
    const bool absent = running.error().code() == ErrorCode::not_found;
    daemon.status = absent ? Status::missing : Status::wrong;
    daemon.detail = absent ? "not running" : running.error().message();
    daemon.advice = !absent ? "cukiln daemon stop; cukiln daemon start"
                    : has_daemon_program()
                        ? "cukiln daemon start, if many processes start at the same time"
                        : "";  // as in the Python package
  }
  checks.push_back(std::move(daemon));
}

void check_store(Context& context, std::vector<Check>& checks) {
  Check store{.name = "store"};
  auto opened = context.disk_store();
  if (!opened) {
    const bool disabled = context.settings().store.memory_only;
    store.status = disabled ? Status::missing : Status::wrong;
    store.needed = !disabled;
    store.detail = opened.error().message();
    store.advice =
        disabled ? "" : "until then kernels are kept in memory only and compiled at every start";
  }
  auto any = context.store();
  if (!any) {
    checks.push_back(std::move(store));
    return;
  }
  StoreAdmin admin(**any);
  const StoreFacts facts = admin.facts();
  // An image that has its kernels needs neither a compiler nor a store of the user's.
  const bool offline = context.settings().loader.offline;
  const bool compiles =
      !offline && std::none_of(checks.begin(), checks.end(), [](const Check& check) {
        return check.name == "nvrtc" && check.status == Status::missing;
      });
  if (opened) {
    store.detail = fmt::format(
        "{} on {}, schema {}, {}, {}", facts.directory, file_system_name(facts.file_system),
        facts.schema, counted(facts.entries, "entry", "entries"), human_bytes(facts.bytes));
    if (admin.read_only()) {
      store.advice = "the store is read-only: compiled kernels are not stored";
    }
    if (const std::uint64_t free = admin.disk_use().free_disk_bytes; free < kMinFreeBytes) {
      store.status = Status::wrong;
      store.detail += fmt::format("; its disk is nearly full: {} free", human_bytes(free));
      store.advice =
          "free space on the disk, shrink the store with 'cukiln gc --max-size SIZE', or set "
          "CUKILN_STORE to a folder on another disk";
    } else if (facts.bytes > kMaxCheckedBytes) {
      store.detail += "; 'cukiln verify' checks every entry";
    } else if (const auto health = admin.verify(false); !health || health->damaged != 0) {
      store.status = Status::wrong;
      store.detail +=
          health ? fmt::format("; {} damaged", health->damaged) : "; " + health.error().message();
      store.advice = "cukiln verify --repair";
    } else {
      store.detail += ", healthy";
    }
  } else if (!compiles && facts.system_entries != 0) {
    store.needed = false;
  }
  if (!compiles && (facts.system_entries != 0 || offline)) {
    for (Check& check : checks) {
      check.needed = check.needed && check.status == Status::wrong;
    }
  }
  checks.push_back(std::move(store));

  Check system{.name = "system store", .needed = false};
  const std::string& configured = context.settings().store.system_directory;
  if (!facts.system_directory.empty()) {
    system.detail = fmt::format("{}, read-only, {}", facts.system_directory,
                                counted(facts.system_entries, "entry", "entries"));
  } else if (!facts.system_problem.empty()) {
    system.status = Status::wrong;
    system.detail = "unreadable: " + facts.system_problem;
    system.advice =
        "until then it is not used; 'cukiln preload --system-store' writes one that all users read";
  } else {
    system.status = Status::missing;
    system.detail = configured.empty() ? "not configured" : "none in " + configured;
  }
  checks.push_back(std::move(system));

  Check sqlite{.name = "sqlite"};
  sqlite.detail = facts.sqlite_version;
  if (!facts.sqlite_has_wal_reset_fix) {
    sqlite.advice =
        "before 3.51.3 a rare race of two writers can damage the database; cukiln allows one "
        "writer at a time by a lock of its own, so the race cannot happen";
  }
  checks.push_back(std::move(sqlite));
}

/// The keys whose trust ends, as the end of a sentence.
std::string expiries(const RemoteProbe& probe) {
  std::string text;
  for (const RemoteProbe::Expiry& expiry : probe.expiries) {
    text += fmt::format("; {} {} {}", expiry.key,
                        expiry.has_passed ? "has expired on" : "is trusted until",
                        date_text(expiry.at_s));
  }
  return text;
}

void check_remote(Context& context, std::vector<Check>& checks) {
  const bool uploads = !context.settings().remote.sign.empty();
  Check remote{.name = "remote", .needed = uploads && !context.settings().remote.stores.empty()};
  auto store = open_remote(context.settings().remote, Logger());
  if (!store) {
    remote.status = Status::wrong;
    remote.detail = store.error().message();
    remote.advice =
        "correct the setting that the message names (see 'cukiln config'); until then no remote "
        "store is used";
    checks.push_back(std::move(remote));
    return;
  }
  if (*store == nullptr) {
    remote.status = Status::missing;
    remote.detail = "not configured";
    checks.push_back(std::move(remote));
    return;
  }
  const RemoteProbe probe = (*store)->probe();
  const auto ended = std::count_if(probe.expiries.begin(), probe.expiries.end(),
                                   [](const auto& expiry) { return expiry.has_passed; });
  for (const RemoteProbe::Server& server : probe.servers) {
    Check one = remote;
    if (server.works) {
      one.detail =
          fmt::format("{} answers in {}; this machine {}, {}{}", server.where, human_ms(server.ms),
                      probe.writes ? "writes" : "reads",
                      counted(probe.trusted_keys, "trusted key", "trusted keys"), expiries(probe));
      if (ended != 0 && static_cast<std::size_t>(ended) == probe.trusted_keys) {
        one.status = Status::wrong;
        one.advice = "set remote_trust to a key that has not expired: none of its objects is used";
      }
    } else {
      one.status = Status::wrong;
      one.detail = fmt::format("{}: {}", server.where, server.detail);
      one.advice = server.advice;
    }
    checks.push_back(std::move(one));
  }
}

}  // namespace cukiln::cli
