// SPDX-License-Identifier: Apache-2.0
// fault 23: one process, two copies of the library in two link namespaces, one store. The second
// copy has its own SQLite, whose close would drop the first one's locks: it stays in memory and
// says why.
//
// usage: bindings_second_copy_test LIBCUKILN
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include <cukiln/cukiln.h>

namespace {

int failures = 0;
std::string warnings;

void check(bool ok, const char* what) {
  if (!ok) {
    std::fprintf(stderr, "failed: %s\nwarnings:\n%s", what, warnings.c_str());
    ++failures;
  }
}

void log(void*, cukiln_log_level level, const char* message) {
  if (level <= CUKILN_LOG_WARN) {
    warnings += std::string(message) + "\n";
  }
}

/// One copy of the library. Nothing of it is shared with another copy, not even libc.
class Copy {
 public:
  Copy(Lmid_t space, const char* path) : library_(dlmopen(space, path, RTLD_NOW | RTLD_LOCAL)) {
    if (library_ == nullptr) {
      std::fprintf(stderr, "%s\n", dlerror());
      std::exit(1);
    }
  }
  cukiln_loader* open(const std::string& store) const {
    cukiln_options options{};
    options.struct_bytes = sizeof options;
    options.store_directory = store.c_str();
    options.system_directory = "";
    options.log = log;
    cukiln_loader* loader = nullptr;
    check(symbol<decltype(&cukiln_loader_create)>("cukiln_loader_create")(&options, &loader) ==
              CUKILN_OK,
          "a loader");
    return loader;
  }
  void close(cukiln_loader* loader) const {
    symbol<decltype(&cukiln_loader_destroy)>("cukiln_loader_destroy")(loader);
  }

 private:
  template <class Function>
  Function symbol(const char* name) const {
    return reinterpret_cast<Function>(dlsym(library_, name));
  }
  void* library_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    return 2;
  }
  std::string folder = (std::filesystem::temp_directory_path() / "cukiln-copies-XXXXXX").string();
  check(mkdtemp(folder.data()) != nullptr, "mkdtemp");
  const std::string store = folder + "/store";

  const Copy first(LM_ID_BASE, argv[1]);
  const Copy second(LM_ID_NEWLM, argv[1]);
  cukiln_loader* const on_disk = first.open(store);
  check(warnings.empty(), "the first copy has the store on disk");
  cukiln_loader* const refused = second.open(store);
  check(warnings.find("another copy of the cukiln library") != std::string::npos,
        "the second copy says why it keeps nothing on disk");
  second.close(refused);

  warnings.clear();
  cukiln_loader* const shared = first.open(store);
  check(warnings.empty(), "the first copy is not disturbed");
  first.close(shared);
  first.close(on_disk);
  second.close(second.open(store));
  check(warnings.empty(), "the second copy has it once the first has let go");

  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  return failures == 0 ? 0 : 1;
}
