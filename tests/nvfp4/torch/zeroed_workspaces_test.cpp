// SPDX-License-Identifier: Apache-2.0
#include "nvfp4/torch/zeroed_workspaces.hpp"

#include <algorithm>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "nvfp4/torch/cuda.hpp"
#include "support/loader_fixture.hpp"

namespace cukiln::torch {
namespace {

constexpr std::size_t kBytes = 4224;
constexpr Driver::CUresult kOutOfMemory = 2;
constexpr Driver::CUresult kNotWhileCapturing = 900;

/// A driver in memory. Its functions have no argument for it: there is one at a time.
struct FakeDriver {
  struct Object {
    void* argument;
    void (*destroy)(void*);
  };
  struct Capture {
    int status = 1;
    std::uint64_t id = 0;
    std::vector<Object> owned;  // by the graph
  };

  FakeDriver() {
    now = this;
    driver.cuMemAlloc = [](void** out, std::size_t bytes) -> Driver::CUresult {
      if (now->mode != Driver::kCaptureModeRelaxed) {
        return Driver::kCaptureIsInvalid;
      }
      now->blocks.push_back(std::make_unique<std::byte[]>(bytes));
      std::fill_n(now->blocks.back().get(), bytes, std::byte{0xAA});
      *out = now->blocks.back().get();
      return now->alloc_result;
    };
    driver.cuMemFree = [](void* memory) -> Driver::CUresult {
      const auto freed = std::find_if(now->blocks.begin(), now->blocks.end(),
                                      [&](const auto& each) { return each.get() == memory; });
      now->blocks.erase(freed);
      return Driver::kSuccess;
    };
    driver.cuMemsetD8Async = [](void* memory, unsigned char value, std::size_t bytes,
                                Stream stream) -> Driver::CUresult {
      std::fill_n(static_cast<unsigned char*>(memory), bytes, value);
      now->zeroed_on = stream;
      return now->memset_result;
    };
    driver.cuStreamCreate = [](Stream* out, unsigned flags) -> Driver::CUresult {
      *out = stream(99);
      ++now->streams;
      return flags == Driver::kStreamNonBlocking ? Driver::kSuccess : kOutOfMemory;
    };
    driver.cuStreamSynchronize = [](Stream) -> Driver::CUresult { return Driver::kSuccess; };
    driver.cuStreamDestroy = [](Stream) -> Driver::CUresult {
      --now->streams;
      return Driver::kSuccess;
    };
    driver.cuStreamGetId = [](Stream stream, std::uint64_t* id) -> Driver::CUresult {
      if (now->captures.count(stream) != 0) {
        return kNotWhileCapturing;  // and the capture is lost
      }
      *id = reinterpret_cast<std::uint64_t>(stream) + now->id_offset;
      return Driver::kSuccess;
    };
    driver.cuStreamGetCaptureInfo = [](Stream stream, int* status, std::uint64_t* id,
                                       Driver::CUgraph* graph, const void*,
                                       std::size_t*) -> Driver::CUresult {
      const auto found = now->captures.find(stream);
      if (found == now->captures.end()) {
        *status = Driver::kCaptureNone;
        return Driver::kSuccess;
      }
      *status = found->second->status;
      *id = found->second->id;
      *graph = reinterpret_cast<Driver::CUgraph>(found->second);
      return Driver::kSuccess;
    };
    driver.cuThreadExchangeStreamCaptureMode = [](int* exchanged) -> Driver::CUresult {
      std::swap(*exchanged, now->mode);
      return Driver::kSuccess;
    };
    driver.cuUserObjectCreate = [](Driver::CUuserObject* out, void* argument,
                                   void (*destructor)(void*), unsigned count,
                                   unsigned flags) -> Driver::CUresult {
      *out = reinterpret_cast<Driver::CUuserObject>(new Object{argument, destructor});
      return count == 1 && flags == Driver::kNoDestructorSync ? Driver::kSuccess : kOutOfMemory;
    };
    driver.cuUserObjectRelease = [](Driver::CUuserObject object, unsigned) -> Driver::CUresult {
      const std::unique_ptr<Object> own(reinterpret_cast<Object*>(object));
      own->destroy(own->argument);
      return Driver::kSuccess;
    };
    driver.cuGraphRetainUserObject = [](Driver::CUgraph graph, Driver::CUuserObject object,
                                        unsigned count, unsigned flags) -> Driver::CUresult {
      if (now->retain_result == Driver::kSuccess) {
        const std::unique_ptr<Object> own(reinterpret_cast<Object*>(object));
        reinterpret_cast<Capture*>(graph)->owned.push_back(*own);
      }
      return count == 1 && flags == Driver::kMoveUserObject ? now->retain_result : kOutOfMemory;
    };
  }
  ~FakeDriver() { now = nullptr; }
  FakeDriver(const FakeDriver&) = delete;
  FakeDriver& operator=(const FakeDriver&) = delete;

  static Stream stream(std::uintptr_t number) { return reinterpret_cast<Stream>(number); }

  static void destroy(Capture& capture) {
    for (const Object& each : capture.owned) {
      each.destroy(each.argument);
    }
    capture.owned.clear();
  }

  std::byte* get(ZeroedWorkspaces& workspaces, std::uintptr_t on) {
    const auto got = workspaces.get(driver, stream(on));
    REQUIRE(got);
    CHECK(got->size_bytes >= kBytes);
    CHECK(reinterpret_cast<std::uintptr_t>(got->data) % 16 == 0);
    const auto* const bytes = static_cast<std::byte*>(got->data);
    CHECK(std::all_of(bytes, bytes + got->size_bytes,
                      [](std::byte each) { return each == std::byte{}; }));
    return static_cast<std::byte*>(got->data);
  }

  static FakeDriver* now;
  testing::LoaderFixture fixture;
  testing::LoaderFixture::Opened opened = fixture.open();
  Driver driver{opened.loader};
  std::vector<std::unique_ptr<std::byte[]>> blocks;
  std::map<Stream, Capture*> captures;
  int mode = 0;  // of captures: global
  int streams = 0;
  Stream zeroed_on = nullptr;
  std::uint64_t id_offset = 0;
  Driver::CUresult alloc_result = Driver::kSuccess;
  Driver::CUresult memset_result = Driver::kSuccess;
  Driver::CUresult retain_result = Driver::kSuccess;
};
FakeDriver* FakeDriver::now = nullptr;

}  // namespace

TEST_CASE("each stream has a workspace of zeros, the same at every launch") {
  FakeDriver fake;
  ZeroedWorkspaces workspaces(kBytes);
  std::byte* const first = fake.get(workspaces, 1);
  std::byte* const second = fake.get(workspaces, 2);
  CHECK((first + kBytes <= second || second + kBytes <= first));
  CHECK(fake.get(workspaces, 1) == first);
  CHECK(fake.get(workspaces, 2) == second);
  std::set<std::byte*> all;
  for (std::uintptr_t each = 0; each < 100; ++each) {
    all.insert(fake.get(workspaces, each));
  }
  CHECK(all.size() == 100);
  CHECK(fake.blocks.size() == 4);  // 32 at a time
  // The next stream with this handle is another one: kernels of the first may still run.
  fake.id_offset = 1000;
  CHECK(all.count(fake.get(workspaces, 1)) == 0);
}

TEST_CASE("each stream of a capture has a workspace, which is used again when the graph is gone") {
  FakeDriver fake;
  ZeroedWorkspaces workspaces(kBytes);
  std::byte* const eager = fake.get(workspaces, 1);
  FakeDriver::Capture first{1, 7, {}};
  FakeDriver::Capture second{1, 8, {}};
  fake.captures = {{FakeDriver::stream(1), &first}, {FakeDriver::stream(2), &first}};
  const std::set<std::byte*> of_first = {fake.get(workspaces, 1), fake.get(workspaces, 2)};
  CHECK(of_first.size() == 2);
  CHECK(of_first.count(eager) == 0);
  CHECK(of_first.count(fake.get(workspaces, 1)) == 1);
  CHECK(first.owned.size() == 2);
  fake.captures = {{FakeDriver::stream(1), &second}};
  std::byte* const of_second = fake.get(workspaces, 1);
  CHECK(of_first.count(of_second) == 0);
  CHECK(of_second != eager);
  fake.captures.clear();
  CHECK(fake.get(workspaces, 1) == eager);

  FakeDriver::destroy(first);
  FakeDriver::Capture third{1, 9, {}};
  fake.captures = {{FakeDriver::stream(1), &third}, {FakeDriver::stream(2), &third}};
  CHECK(of_first == std::set<std::byte*>{fake.get(workspaces, 1), fake.get(workspaces, 2)});
  CHECK(fake.get(workspaces, 2) != of_second);
}

TEST_CASE("graphs that come and go take no more memory than those that are there") {
  FakeDriver fake;
  ZeroedWorkspaces workspaces(kBytes);
  std::vector<std::unique_ptr<FakeDriver::Capture>> there;
  for (std::uint64_t id = 1; id <= 1000; ++id) {
    there.push_back(std::make_unique<FakeDriver::Capture>(FakeDriver::Capture{1, id, {}}));
    fake.captures = {{FakeDriver::stream(1), there.back().get()}};
    fake.get(workspaces, 1);
    if (there.size() > 10) {
      FakeDriver::destroy(*there.front());
      there.erase(there.begin());
    }
  }
  CHECK(fake.blocks.size() == 1);
}

TEST_CASE("a workspace is allocated in a capture without a trace in it") {
  FakeDriver fake;
  ZeroedWorkspaces workspaces(kBytes);
  FakeDriver::Capture capture{1, 1, {}};
  fake.captures = {{FakeDriver::stream(1), &capture}};
  fake.get(workspaces, 1);
  CHECK(fake.zeroed_on == FakeDriver::stream(99));
  CHECK(fake.streams == 0);
  CHECK(fake.mode == 0);
}

TEST_CASE("what the driver refuses leaves nothing behind") {
  FakeDriver fake;
  ZeroedWorkspaces workspaces(kBytes);
  const auto refused = [&] {
    CHECK_FALSE(workspaces.get(fake.driver, FakeDriver::stream(1)));
    CHECK(fake.mode == 0);
  };
  fake.alloc_result = kOutOfMemory;
  refused();
  fake.alloc_result = Driver::kSuccess;
  fake.blocks.clear();
  fake.memset_result = kOutOfMemory;
  refused();
  CHECK(fake.blocks.empty());
  CHECK(fake.streams == 0);
  fake.memset_result = Driver::kSuccess;

  FakeDriver::Capture capture{1, 1, {}};
  fake.captures = {{FakeDriver::stream(1), &capture}};
  fake.retain_result = kOutOfMemory;
  refused();
  fake.retain_result = Driver::kSuccess;
  std::set<std::byte*> all;
  for (std::uint64_t id = 1; id <= 32; ++id) {  // the refused one is free
    capture.id = id;
    all.insert(fake.get(workspaces, 1));
  }
  CHECK(all.size() == 32);
  CHECK(fake.blocks.size() == 1);
  capture.status = Driver::kCaptureInvalidated;
  capture.id = 33;
  refused();
}

TEST_CASE("threads on streams of their own get workspaces of their own") {
  FakeDriver fake;
  ZeroedWorkspaces workspaces(kBytes);
  std::vector<void*> got(4);
  std::vector<std::thread> threads;
  for (std::uintptr_t each = 0; each < got.size(); ++each) {
    threads.emplace_back([&, each] {
      for (int i = 0; i < 200; ++i) {
        const auto workspace = workspaces.get(fake.driver, FakeDriver::stream(each + 1));
        got[each] = workspace ? workspace->data : nullptr;
      }
    });
  }
  for (std::thread& each : threads) {
    each.join();
  }
  CHECK(std::set<void*>(got.begin(), got.end()).size() == got.size());
  CHECK(std::count(got.begin(), got.end(), nullptr) == 0);
}

}  // namespace cukiln::torch
