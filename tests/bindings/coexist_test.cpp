// SPDX-License-Identifier: Apache-2.0
// Another SQLite and another fmt, loaded first and with all their symbols in front, beside a cukiln
// that is loaded later: each keeps working on its own.
//
// usage: bindings_coexist_test LIBCUKILN LIBSQLITE

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include <cukiln/cukiln.h>

namespace {

int failures = 0;

void check(bool ok, const char* what) {
  if (!ok) {
    std::fprintf(stderr, "failed: %s (%s)\n", what, dlerror());
    ++failures;
  }
}

template <class Function>
Function symbol(void* library, const char* name) {
  void* const found = dlsym(library, name);
  if (found == nullptr) {
    std::fprintf(stderr, "no %s: %s\n", name, dlerror());
    std::exit(1);
  }
  return reinterpret_cast<Function>(found);
}

/// The host's own database, in the other SQLite.
class OtherDatabase {
 public:
  OtherDatabase(void* library, const std::string& path)
      : exec_(symbol<Exec>(library, "sqlite3_exec")),
        close_(symbol<Close>(library, "sqlite3_close")) {
    const auto open = symbol<int (*)(const char*, void**)>(library, "sqlite3_open");
    check(open(path.c_str(), &database_) == 0, "sqlite3_open");
    run("create table t(x)");
  }
  ~OtherDatabase() { close_(database_); }
  OtherDatabase(const OtherDatabase&) = delete;
  OtherDatabase& operator=(const OtherDatabase&) = delete;
  void run(const char* statement) {
    check(exec_(database_, statement, nullptr, nullptr, nullptr) == 0, statement);
  }

 private:
  using Exec = int (*)(void*, const char*, void*, void*, char**);
  using Close = int (*)(void*);
  Exec exec_;
  Close close_;
  void* database_ = nullptr;
};

void log(void*, cukiln_log_level level, const char* message) {
  if (level <= CUKILN_LOG_WARN) {
    std::fprintf(stderr, "cukiln: %s\n", message);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    return 2;
  }
  std::string folder = (std::filesystem::temp_directory_path() / "cukiln-coexist-XXXXXX").string();
  check(mkdtemp(folder.data()) != nullptr, "mkdtemp");

  void* const sqlite = dlopen(argv[2], RTLD_NOW | RTLD_GLOBAL);
  check(sqlite != nullptr, argv[2]);
  OtherDatabase other(sqlite, folder + "/host.db");
  other.run("insert into t values (1)");
  check(fmt::format("{:>5}|{}", 42, "host") == "   42|host", "the host's fmt, before");

  void* const library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  check(library != nullptr, argv[1]);
  if (library == nullptr) {
    return 1;
  }
  const auto create = symbol<decltype(&cukiln_loader_create)>(library, "cukiln_loader_create");
  const auto destroy = symbol<decltype(&cukiln_loader_destroy)>(library, "cukiln_loader_destroy");
  const auto stats_of = symbol<decltype(&cukiln_loader_stats)>(library, "cukiln_loader_stats");
  const auto last_error = symbol<decltype(&cukiln_last_error)>(library, "cukiln_last_error");

  const std::string store = folder + "/store";
  cukiln_options options{};
  options.struct_bytes = sizeof options;
  options.store_directory = store.c_str();
  options.system_directory = "";
  options.log = log;
  for (int round = 0; round < 2; ++round) {
    cukiln_loader* loader = nullptr;
    check(create(&options, &loader) == CUKILN_OK, last_error());
    cukiln_stats stats{};
    stats.struct_bytes = sizeof stats;
    check(stats_of(loader, &stats) == CUKILN_OK, last_error());
    check(stats.store_errors == 0, "a store without errors");
    other.run("insert into t values (2)");
    destroy(loader);
  }
  check(std::filesystem::exists(store), "a store on disk");
  other.run("insert into t values (3)");
  check(fmt::format("{:.3f}", 1.0 / 3) == "0.333", "the host's fmt, after");

  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  return failures == 0 ? 0 : 1;
}
