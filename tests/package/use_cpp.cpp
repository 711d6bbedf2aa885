// Opens a store in the folder given, makes a loader, and asks for what needs no GPU and no
// compiler.
#include <cukiln/cukiln.hpp>

#include <cstdio>
#include <string>

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: use_cpp STORE\n");
    return 2;
  }
  const std::string expected = std::to_string(CUKILN_VERSION_MAJOR) + "." +
                               std::to_string(CUKILN_VERSION_MINOR) + "." +
                               std::to_string(CUKILN_VERSION_PATCH);
  if (expected != cukiln::version()) {
    std::fprintf(stderr, "the library is %s; its headers are %s\n", cukiln::version(),
                 expected.c_str());
    return 1;
  }
  cukiln::StoreOptions options;
  options.directory = argv[1];
  auto store = cukiln::open_store(options);
  if (!store) {
    std::fprintf(stderr, "%s\n", store.error().message().c_str());
    return 1;
  }
  auto loader = cukiln::KernelLoader::create(**store);
  if (!loader) {
    std::fprintf(stderr, "%s\n", loader.error().message().c_str());
    return 1;
  }
  std::printf("cukiln %s\n", cukiln::version());
  return 0;
}
