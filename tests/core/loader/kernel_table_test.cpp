// SPDX-License-Identifier: Apache-2.0
#include <cukiln/kernel_table.hpp>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "core/driver/kernel_state.hpp"
#include "support/writable_kernel_table.hpp"

namespace cukiln {
namespace {

// Handles that differ, over states that nothing looks into but `name`.
struct Kernels {
  explicit Kernels(std::size_t count) : states(count) {
    for (std::size_t i = 0; i < count; ++i) {
      states[i].name = "k" + std::to_string(i);
    }
  }
  Kernel operator[](std::size_t i) const { return Kernel(&states[i]); }
  std::vector<detail::KernelState> states;
};

std::string module_name(std::size_t i) { return "some_module/kernel_" + std::to_string(i); }

TEST_CASE("An empty table finds nothing") {
  const testing::WritableKernelTable table;
  CHECK(table.size() == 0);
  CHECK(!table.at(0));
  CHECK(!table.at(~std::size_t{0}));
  CHECK(!table.find(""));
  CHECK(!table.find("k"));
}

TEST_CASE("Ids are given in order, and lookups by id find what was added") {
  const Kernels kernels(1000);
  testing::WritableKernelTable table;
  for (std::size_t i = 0; i < 1000; ++i) {
    CHECK(table.add(kernels[i]) == i);
  }
  CHECK(table.size() == 1000);
  for (std::size_t i = 0; i < 1000; ++i) {
    REQUIRE(table.at(i).name() == kernels[i].name());
  }
  CHECK(!table.at(1000));
  CHECK(!table.at(1 << 20));
}

TEST_CASE("Every name is found, also after the index grew, and no other") {
  const Kernels kernels(5000);
  testing::WritableKernelTable table;
  for (std::size_t i = 0; i < 5000; ++i) {
    table.set_name(module_name(i), kernels[i]);
  }
  for (std::size_t i = 0; i < 5000; ++i) {
    REQUIRE(table.find(module_name(i)).name() == kernels[i].name());
  }
  CHECK(!table.find(module_name(5000)));
  CHECK(!table.find("some_module/kernel_"));
  CHECK(table.size() == 0);  // names alone take no id
}

TEST_CASE("A name that is taken moves to the new kernel") {
  const Kernels kernels(2);
  testing::WritableKernelTable table;
  table.set_name("quantize", kernels[0]);
  table.set_name("quantize", kernels[1]);
  CHECK(table.find("quantize").name() == "k1");
}

TEST_CASE("A removed kernel is under no id and no name, and the ids of others stay") {
  const Kernels kernels(3);
  testing::WritableKernelTable table;
  for (std::size_t i = 0; i < 3; ++i) {
    table.add(kernels[i]);
    table.set_name(module_name(i), kernels[i]);
  }
  table.set_name("alias", kernels[1]);
  table.remove({kernels[1]});
  CHECK(!table.at(1));
  CHECK(!table.find(module_name(1)));
  CHECK(!table.find("alias"));
  for (const std::size_t kept : {0, 2}) {
    CHECK(table.at(kept).name() == kernels[kept].name());
    CHECK(table.find(module_name(kept)).name() == kernels[kept].name());
  }
  CHECK(table.add(kernels[1]) == 3);
  table.set_name("alias", kernels[1]);
  CHECK(table.find("alias").name() == kernels[1].name());
}

TEST_CASE("Names are bytes: empty ones, NULs and long ones are distinct") {
  const Kernels kernels(4);
  const std::string nul("a\0b", 3);
  const std::string longer(5000, 'x');
  testing::WritableKernelTable table;
  table.set_name("", kernels[0]);
  table.set_name("a", kernels[1]);
  table.set_name(nul, kernels[2]);
  table.set_name(longer, kernels[3]);
  CHECK(table.find("").name() == "k0");
  CHECK(table.find("a").name() == "k1");
  CHECK(table.find(nul).name() == "k2");
  CHECK(table.find(longer).name() == "k3");
  CHECK(!table.find(longer.substr(1)));
}

TEST_CASE("Readers see every name that was added before, while a writer adds 10,000") {
  constexpr std::size_t kCount = 10'000;
  const Kernels kernels(kCount);
  testing::WritableKernelTable table;
  std::atomic<std::size_t> added{0};
  std::atomic<std::size_t> wrong{0};
  std::vector<std::jthread> readers;
  for (std::size_t reader = 0; reader < 8; ++reader) {
    readers.emplace_back([&, reader] {
      std::size_t state = reader * 7919 + 1;
      for (std::size_t done = 0; done < kCount;) {
        done = added.load(std::memory_order_acquire);
        for (int i = 0; i < 64 && done != 0; ++i) {
          state = state * 6364136223846793005u + 1442695040888963407u;
          const std::size_t id = (state >> 33) % done;
          const std::string& expected = kernels.states[id].name;
          if (table.at(id).name() != expected || table.find(expected).name() != expected) {
            ++wrong;
          }
          const std::size_t later = (state >> 33) % kCount;  // perhaps there, never another
          const Kernel perhaps = table.at(later);
          if (perhaps && perhaps.name() != kernels.states[later].name) {
            ++wrong;
          }
        }
        std::this_thread::yield();
      }
    });
  }
  std::jthread second_writer([&] {  // names that the others do not ask for
    for (std::size_t i = 0; i < kCount; ++i) {
      table.set_name(module_name(i), kernels[i]);
    }
  });
  for (std::size_t i = 0; i < kCount; ++i) {
    table.set_name(kernels.states[i].name, kernels[i]);
    table.add(kernels[i]);
    added.store(i + 1, std::memory_order_release);
  }
  readers.clear();
  second_writer.join();
  CHECK(wrong == 0);
  CHECK(table.size() == kCount);
  for (std::size_t i = 0; i < kCount; ++i) {
    REQUIRE(table.find(module_name(i)).name() == kernels.states[i].name);
  }
}

TEST_CASE("A name expression is found in any spelling, with module and target") {
  const Kernels kernels(2);
  testing::WritableKernelTable table;
  for (const char* name : {"ns::k<float, 4>", "m/ns::k<float, 4>", "a/m/ns::k<float, 4>@sm_90a"}) {
    table.set_name(name, kernels[1]);
  }
  for (const char* name : {"ns::k<float,4>", " & ns :: k < float ,4 >", "m/ns::k<float,4>",
                           "m/&ns::k< float, 4 >", "a/m/&ns::k<float,4>@sm_90a"}) {
    CAPTURE(name);
    CHECK(table.find(name).native() == kernels[1].native());
    CHECK(table.find(name).name() == "k1");
  }
  for (const char* name :
       {"ns::k<float,5>", "n/ns::k<float,4>", "ns::k<float,4>@sm_90a", ",", "/<"}) {
    CAPTURE(name);
    CHECK(!table.find(name));
  }
}

}  // namespace
}  // namespace cukiln
