// SPDX-License-Identifier: Apache-2.0
// A kernel that is edited while it runs: the host launches on, by the handle that it got once, and
// a watch has the handle run what the file says. Here the host is its own programmer.

#include <cukiln/cukiln.hpp>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <future>
#include <string>

#include "device.hpp"

namespace {

int fail(const cukiln::Error& error) {
  std::fprintf(stderr, "%s\n", error.to_string().c_str());
  return error.code() == cukiln::ErrorCode::compile_failed ? 1 : 3;
}

void save(const std::string& path, const std::string& expression) {
  std::ofstream(path) << "extern \"C\" __global__ void apply(float* y, float x) {\n  *y = "
                      << expression << ";\n}\n";
}

}  // namespace

int main() {
  Device device;
  if (!device.open()) {
    std::fprintf(stderr,
                 "no GPU here: this example needs NVIDIA's driver, NVRTC and a GPU of any kind\n");
    return 3;
  }
  auto settings = cukiln::Settings::load();
  if (!settings) return fail(settings.error());
  std::promise<void> refused;
  settings->loader.events = [&refused](const cukiln::Event& event) {  // in the watch's thread
    if (event.kind != cukiln::EventKind::reload) return;
    std::printf("%s: %s, %.0f ms\n", event.failed ? "not reloaded" : "reloaded",
                event.reason.c_str(), event.elapsed.count());
    if (event.failed) refused.set_value();
  };
  auto store = cukiln::Store::open(settings->store);
  if (!store) return fail(store.error());
  auto loader = cukiln::KernelLoader::create(*store, settings->loader);
  if (!loader) return fail(loader.error());

  const auto folder = std::filesystem::temp_directory_path() / "cukiln-hot-reload";
  std::filesystem::create_directories(folder);
  const std::string path = folder / "apply.cu";
  save(path, "2 * x");
  cukiln::ModuleSpec spec;
  spec.sources = {cukiln::SourceFile{path}};
  auto kernel = loader->get(spec);
  if (!kernel) return fail(kernel.error());
  auto apply = cukiln::TypedKernel<float*, float>::create(*kernel);
  if (!apply) return fail(apply.error());
  auto watch = loader->watch();  // ends with this object
  if (!watch) return fail(watch.error());

  float* const y = device.allocate<float>(1);
  long launches = 0;
  const auto run = [&] {
    ++launches;
    return apply->launch(nullptr, {}, y, 10.0f) ? device.download(y, 1).front() : -1.0f;
  };
  if (run() != 20.0f) return 1;
  save(path, "3 * x");  // as an editor does
  float result = run();
  while (result == 20.0f) result = run();
  std::printf("2 * 10 became %g (30 expected) after %ld launches\n", result, launches);

  save(path, "4 * z");  // a mistake: NVRTC's log is printed, and the kernel stays
  refused.get_future().wait();
  const float last = run();
  std::printf("and stays %g\n", last);
  return result == 30.0f && last == 30.0f ? 0 : 1;
}
