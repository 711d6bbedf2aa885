// SPDX-License-Identifier: Apache-2.0
#include "addons/fleet/upload_marks.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>

#include "core/base/hasher.hpp"
#include "support/scratch.hpp"

using namespace cukiln;
using namespace cukiln::testing;

namespace {

struct SetClock final : Clock {
  std::int64_t seconds = 1'800'000'000;
  std::int64_t now_ns() const noexcept override { return seconds * 1'000'000'000; }
};

ObjectName name_of(std::uint64_t number) { return hash_of<ObjectName>(std::to_string(number)); }

struct File {
  ScratchFolder folder;
  std::string path = folder.path() + "/marks";
  SetClock clock;

  UploadMarks opened() const {
    UploadMarks marks;
    marks.open(path, clock);
    return marks;
  }
};

}  // namespace

TEST_CASE("processes see each other's marks") {
  File file;
  UploadMarks a = file.opened();
  UploadMarks b = file.opened();
  CHECK_FALSE(b.has(name_of(1)));
  a.add(name_of(1));
  CHECK(b.has(name_of(1)));
  b.add(name_of(2));
  CHECK(a.has(name_of(2)));
  a.remove(name_of(2));
  CHECK_FALSE(file.opened().has(name_of(2)));
  CHECK(file.opened().has(name_of(1)));
  // Also if one has replaced the file, or it was emptied.
  b.retain([](const ObjectName& name) { return name == name_of(1); });
  b.add(name_of(3));
  CHECK(a.has(name_of(3)));
  std::filesystem::resize_file(file.path, 0);
  b.add(name_of(4));
  CHECK(a.has(name_of(4)));
  using std::filesystem::perms;
  CHECK(std::filesystem::status(file.path).permissions() ==
        (perms::owner_read | perms::owner_write));
}

TEST_CASE("fault 337: a mark ends before the object does on a server that expires it") {
  File file;
  UploadMarks marks = file.opened();
  marks.add(name_of(1));
  file.clock.seconds += UploadMarks::kLastS - 1;
  CHECK(file.opened().has(name_of(1)));
  file.clock.seconds += 1;
  CHECK_FALSE(marks.has(name_of(1)));
  CHECK_FALSE(file.opened().has(name_of(1)));
  file.clock.seconds -= UploadMarks::kLastS + 1;  // the clock was wrong when it was written
  CHECK_FALSE(file.opened().has(name_of(1)));
}

TEST_CASE("fault 337: marks are bounded, and go with their objects") {
  File file;
  UploadMarks marks = file.opened();
  for (std::uint64_t number = 0; number <= UploadMarks::kMaxMarks; ++number) {
    file.clock.seconds += number % 2;
    marks.add(name_of(number));
  }
  CHECK(marks.size() == UploadMarks::kMaxMarks / 2);
  CHECK(marks.has(name_of(UploadMarks::kMaxMarks)));
  CHECK_FALSE(marks.has(name_of(0)));
  marks.retain([](const ObjectName& name) { return name == name_of(UploadMarks::kMaxMarks); });
  CHECK(file.opened().size() == 1);
  CHECK(std::filesystem::file_size(file.path) == 40);
  std::ifstream written(file.path, std::ios::binary);
  const std::string mark(std::istreambuf_iterator<char>(written), {});
  std::ofstream often(file.path, std::ios::binary);
  for (std::uint64_t number = 0; number <= 2 * UploadMarks::kMaxMarks; ++number) {
    often << mark;
  }
  often.close();
  file.opened().add(name_of(0));
  CHECK(std::filesystem::file_size(file.path) == 80);
}

TEST_CASE("fault 337: a file of marks that is damaged costs uploads and nothing else") {
  File file;
  file.opened().add(name_of(1));
  std::filesystem::resize_file(file.path, 39);
  UploadMarks marks = file.opened();
  CHECK_FALSE(marks.has(name_of(1)));
  marks.add(name_of(2));
  marks.add(name_of(3));
  CHECK(file.opened().has(name_of(2)));
  CHECK(file.opened().has(name_of(3)));
  std::ofstream(file.path) << std::string(4096, 'x');
  CHECK(file.opened().size() == 0);
  std::filesystem::remove(file.path);
  std::filesystem::create_directory(file.path);
  UploadMarks in_memory = file.opened();
  in_memory.add(name_of(4));
  CHECK(in_memory.has(name_of(4)));
}
