// SPDX-License-Identifier: Apache-2.0
// A process that uses a store, for tests that need several of them:
//
//   store_worker DIRECTORY COMMAND [OPTION…]
//
// Prints one line for each operation as soon as it is done, so that a parent that kills this
// process knows which operations were acknowledged. Reads no environment variables.
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>
#include <thread>

#include "core/base/file_lock.hpp"
#include "core/base/result.hpp"
#include "core/store/store_admin.hpp"
#include "core/store/tiered_store.hpp"
#include "support/store_entries.hpp"

namespace cukiln::testing {
namespace {

void print_line(const std::string& line) {
  const std::string whole =
      line + "\n";  // one write: each line of a killed process is whole or absent
  static_cast<void>(!::write(STDOUT_FILENO, whole.data(), whole.size()));
}

struct Arguments {
  std::string directory;
  std::string command;
  std::map<std::string, std::string> options;

  std::uint64_t number(const std::string& name, std::uint64_t fallback) const {
    const auto at = options.find(name);
    return at == options.end() ? fallback : std::strtoull(at->second.c_str(), nullptr, 10);
  }
};

EntryShape shape_of(const Arguments& arguments) {
  EntryShape shape;
  shape.cubin_bytes = arguments.number("bytes", 20'000);
  return shape;
}

std::string name_of_outcome(const Result<PutOutcome>& outcome) {
  if (!outcome) {
    return std::string("error ") + name_of(outcome.error().code()) + " " +
           outcome.error().message();
  }
  switch (*outcome) {
    case PutOutcome::stored: return "stored";
    case PutOutcome::already_there: return "already_there";
    case PutOutcome::too_large: return "too_large";
    case PutOutcome::not_stored: return "not_stored";
  }
  return "unknown";
}

void put(TieredStore& store, const Arguments& arguments) {
  const std::uint64_t first = arguments.number("first", 0);
  const std::uint64_t count = arguments.number("count", UINT64_MAX);
  for (std::uint64_t i = 0; i < count; ++i) {
    const StoreEntry entry = make_entry(first + i, shape_of(arguments));
    print_line("put " + std::to_string(first + i) + " " + name_of_outcome(store.put(entry)));
  }
}

void get(TieredStore& store, const Arguments& arguments) {
  const std::uint64_t first = arguments.number("first", 0);
  const std::uint64_t count = arguments.number("count", 1);
  for (std::uint64_t i = first; i < first + count; ++i) {
    const StoreEntry entry = make_entry(i, shape_of(arguments));
    const bool disk_only = arguments.command == "get" && store.disk() != nullptr;
    const auto found = disk_only ? store.disk()->get(entry.key) : store.get(entry.key);
    std::string what = "error";
    if (found) {
      what = !*found ? "miss" : (same_content(**found, entry) ? "hit" : "wrong");
    }
    print_line("get " + std::to_string(i) + " " + what +
               (found ? "" : " " + found.error().message()));
  }
}

void collect(TieredStore& store, const Arguments& arguments) {
  GcOptions options;
  options.max_bytes = arguments.number("max", 0);
  const auto report = StoreAdmin(store).collect(options);
  print_line(report ? "gc " + std::to_string(report->entries) +
                          (report->already_running ? " busy" : " done")
                    : "gc error " + report.error().message());
}

void remove(TieredStore& store, const Arguments& arguments) {
  if (arguments.options.count("first") == 0) {
    const auto removed = store.remove_all();
    print_line(removed ? "removed " + std::to_string(*removed)
                       : "rm error " + removed.error().message());
    return;
  }
  const StoreEntry entry = make_entry(arguments.number("first", 0), shape_of(arguments));
  const auto removed = store.remove(ObjectName::of(entry.key));
  print_line(removed ? "removed " + std::to_string(int{*removed})
                     : "rm error " + removed.error().message());
}

void hold_writer_lock(TieredStore& store) {
  const auto lock = FileLock::acquire(store.disk()->directory().path("writer.lock"),
                                      FileLock::Mode::exclusive, std::chrono::seconds(10));
  print_line(lock ? "locked" : "not locked");
  ::pause();
}

/// Puts blobs of a kind: one, key=K value=V, or count=N of bytes=B each.
void put_blobs(TieredStore& store, const Arguments& arguments) {
  const auto text = [&](const char* option) {
    const auto at = arguments.options.find(option);
    return at == arguments.options.end() ? std::string() : at->second;
  };
  const std::uint64_t count = arguments.number("count", 0);
  const std::string kind = text("kind");
  for (std::uint64_t i = 0; i < std::max<std::uint64_t>(count, 1); ++i) {
    const std::string key = count == 0 ? text("key") : std::to_string(i);
    const auto name = BlobName::make(kind, key);
    const auto stored =
        !name ? Result<PutOutcome>(name.error())
              : store.put(StoreBlob::borrowed(
                    kind, key,
                    count == 0 ? text("value") : std::string(arguments.number("bytes", 1), 'b')));
    print_line(stored ? "stored" : "put error " + stored.error().message());
  }
}

/// Gets the blob `key`, or produces it in hold=MS: end=put, drop or never. With `held`
/// it ends when the parent closes its standard input. Waits at most wait=MS
/// for another process. With `fork`, a child outlives this process, for a
/// minute.
void produce_blob(TieredStore& store, const Arguments& arguments) {
  const auto name = BlobName::make("test", "key");
  const auto began = std::chrono::steady_clock::now();
  auto got =
      get_or_lease(store, *name, std::chrono::milliseconds(arguments.number("limit", 60'000)), {});
  if (!got) {
    print_line("error " + got.error().message());
    return;
  }
  if (got->blob) {
    print_line("hit " + std::string(got->blob->bytes));
    return;
  }
  const auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::steady_clock::now() - began);
  print_line(got->lease.exclusive() ? "produces alone"
                                    : "produces after " + std::to_string(waited.count()));
  if (arguments.options.count("fork") != 0 && ::fork() == 0) {
    for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
      ::close(stream);  // who reads them must not wait for this child
    }
    ::sleep(60);
    ::_exit(0);
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(arguments.number("hold", 0)));
  if (arguments.options.count("held") != 0) {
    char nothing = 0;
    static_cast<void>(!::read(STDIN_FILENO, &nothing, 1));
  }
  const auto end = arguments.options.find("end");
  if (end == arguments.options.end()) {
    const auto stored = store.put(StoreBlob::borrowed(name->kind, name->key, "produced"));
    got->lease.finish();
    print_line(stored ? "stored" : "put error " + stored.error().message());
  } else if (end->second == "never") {
    ::pause();
  }
}

int run(const Arguments& arguments) {
  if (const auto user = static_cast<uid_t>(arguments.number("user", 0)); user != 0) {
    if (::setgid(user) != 0 || ::setuid(user) != 0) {
      return 3;
    }
  }
  if (const std::uint64_t limit = arguments.number("file_limit", 0); limit != 0) {
    const rlimit both{limit, limit};
    ::setrlimit(RLIMIT_FSIZE, &both);
  }
  if (arguments.options.count("barrier") != 0) {
    char nothing = 0;
    static_cast<void>(!::read(STDIN_FILENO, &nothing, 1));  // until the parent closes its end
  }
  TieredStore::Options options;
  options.store.directory = arguments.directory;
  const auto system = arguments.options.find("system");
  options.store.system_directory = system == arguments.options.end() ? "" : system->second;
  options.store.max_bytes = arguments.number("cap", 2ull << 30);
  options.disk.reserve_bytes = arguments.number("reserve", 8ull << 20);
  options.disk.checkpoint_bytes = arguments.number("checkpoint", options.disk.checkpoint_bytes);
  options.disk.write_wait = std::chrono::milliseconds(arguments.number("wait", 5000));
  options.memory_bytes = 1 << 20;
  if (arguments.options.count("log") != 0) {
    options.store.log = [](LogLevel level, std::string_view message) {
      print_line(std::string(level == LogLevel::warn ? "log warn " : "log ") +
                 std::string(message));
    };
  }
  const auto store = TieredStore::open(options);
  if (!store) {
    print_line("refused " + store.error().message());
    return 1;
  }
  TieredStore& tiers = **store;
  print_line(tiers.bypass_reason().empty() ? "open" : "bypass " + tiers.bypass_reason());
  if (arguments.command == "put") {
    put(tiers, arguments);
  } else if (arguments.command == "get" || arguments.command == "system") {
    get(tiers, arguments);
  } else if (arguments.command == "gc") {
    collect(tiers, arguments);
  } else if (arguments.command == "rm") {
    remove(tiers, arguments);
  } else if (arguments.command == "blob") {
    put_blobs(tiers, arguments);
  } else if (arguments.command == "produce") {
    produce_blob(tiers, arguments);
  } else if (arguments.command == "hold") {
    if (arguments.options.count("count") != 0) {
      put(tiers, arguments);
    }
    hold_writer_lock(tiers);
  } else if (arguments.command != "open") {
    return 2;
  }
  print_line("end");
  return 0;
}

}  // namespace
}  // namespace cukiln::testing

int main(int count, char** values) {
  cukiln::testing::Arguments arguments;
  if (count < 3) {
    return 2;
  }
  arguments.directory = values[1];
  arguments.command = values[2];
  for (int i = 3; i < count; ++i) {
    const std::string option = values[i];
    const std::size_t equals = option.find('=');
    arguments.options[option.substr(0, equals)] =
        equals == std::string::npos ? "" : option.substr(equals + 1);
  }
  return cukiln::testing::run(arguments);
}
