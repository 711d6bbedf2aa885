// One process that asks a loader for one module, for tests that need several: a stampede, a killed
// owner.
//
//   build_process STORE NVRTC WORKER SOURCE [fork] [log] [exit-while-working]
//
// Prints one line: the outcome, the key, and what took the result's place in the store, if nothing
// did.

#include <sys/types.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include <cukiln/cukiln.hpp>

int main(int argc, char** argv) {
  using namespace cukiln;
  if (argc < 5) {
    return 2;
  }
  bool with_log = false, forks = false, exits = false;
  for (int i = 5; i < argc; ++i) {
    with_log |= std::strcmp(argv[i], "log") == 0;
    forks |= std::strcmp(argv[i], "fork") == 0;
    exits |= std::strcmp(argv[i], "exit-while-working") == 0;
  }
  StoreOptions store_options;
  store_options.directory = argv[1];
  store_options.system_directory.clear();
  LoaderOptions options;
  options.nvrtc_library = argv[2];
  options.worker = argv[3];
  if (with_log) {
    options.log = [](LogLevel, std::string_view text) {
      std::fprintf(stderr, "%.*s\n", static_cast<int>(text.size()), text.data());
    };
  }
  auto store = open_store(store_options);
  if (!store) {
    std::printf("no store: %s\n", store.error().message().c_str());
    return 1;
  }
  auto loader = KernelLoader::create(**store, options);
  ModuleSpec spec;
  spec.sources = {Source::file(argv[4])};
  spec.targets = {{90, 'a'}};

  if (forks) {  // a child that lives on with copies of every descriptor
    std::thread([] {
      ::usleep(300'000);
      if (::fork() == 0) {
        std::fclose(stdout);
        ::sleep(60);
        ::_exit(0);
      }
    }).detach();
  }
  if (exits) {
    std::thread([&] { static_cast<void>((*loader)->compile(spec)); }).detach();
    ::usleep(300'000);
    std::exit(0);  // NOLINT: static destructors run while the thread works
  }
  const auto reports = (*loader)->compile(spec);
  if (!reports) {
    std::printf("failed %s\n", reports.error().message().c_str());
    return 1;
  }
  const ModuleReport& report = reports->front();
  if (!report.status) {
    std::printf("failed %s\n", report.status.error().message().c_str());
    return 1;
  }
  std::printf("%s %s %s\n", name_of(report.outcome), report.key.hex().c_str(),
              report.not_stored.c_str());
  return 0;
}
