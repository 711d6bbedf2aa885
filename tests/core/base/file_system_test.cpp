// SPDX-License-Identifier: Apache-2.0
#include "core/base/file_system.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "support/mounts.hpp"
#include "support/scratch.hpp"

using namespace cukiln;
using namespace cukiln::testing;

TEST_CASE("the status of a file is that of stat, and its mount's number is that of its folder") {
  const ScratchFolder folder;
  const std::string path = folder.write("a", "text");
  struct stat status {};
  REQUIRE(::stat(path.c_str(), &status) == 0);
  const auto found = status_of(path);
  REQUIRE(found);
  CHECK(found->stamp == stamp_of(status));
  CHECK(found->mode == status.st_mode);
  CHECK(found->mount == status_of(folder.path())->mount);
  CHECK_FALSE(status_of(folder / "absent"));
  CHECK(errno == ENOENT);
}

// fault 340
TEST_CASE("stamps are reliable on an overlay only if they are in each of its layers") {
  const ScratchFolder folder;
  const std::string result = with_own_mounts([&] {
    // Two file systems of the kind that a disk has, one of them to be mounted read-only.
    shell_or_end("cd '" + folder.path() +
                 "' && mkdir rw ro memory top 'a b' && for i in rw ro; do "
                 "mke2fs -qF -t ext4 $i.image 8m >/dev/null && mount -o loop $i.image $i && "
                 "mkdir $i/lower $i/upper $i/work && echo one >$i/lower/file || exit 1; done && "
                 "umount ro && mount -o loop,ro ro.image ro && mount -t tmpfs tmpfs memory && "
                 "mkdir memory/lower memory/upper memory/work");
    if (status_of(folder.path())->mount == 0) {
      return std::string("old kernel");
    }
    std::string verdicts;
    const auto add = [&](const std::string& name, const std::string& path) {
      verdicts += name + (stamps_are_reliable(folder / path) ? "+ " : "- ");
    };
    const auto add_overlay = [&](const std::string& name, const std::string& layers) {
      shell_or_end("cd '" + folder.path() + "' && F=$PWD && mount -t overlay overlay -o " + layers +
                   " top");
      add(name, "top/file");
      shell_or_end("umount '" + folder.path() + "/top'");
    };
    add("disk", "rw/lower/file");
    add("image", "ro/lower/file");
    add("memory", "memory");
    shell_or_end("cd '" + folder.path() +
                 "' && mount --bind rw 'a b' && "
                 "mount -o remount,bind,ro 'a b'");
    add("bound", "a b/lower/file");  // others can write it elsewhere, and its stamps show that
    const std::string upper = ",upperdir=$F/rw/upper,workdir=$F/rw/work";
    add_overlay("all", "lowerdir=$F/rw/lower" + upper);
    add_overlay("lower-image", "lowerdir=$F/ro/lower" + upper);
    add_overlay("one-lower-image", "lowerdir=$F/rw/lower:$F/ro/lower" + upper);
    add_overlay("upper-memory",
                "lowerdir=$F/rw/lower,upperdir=$F/memory/upper,workdir=$F/memory/work");
    add_overlay("relative", "lowerdir=rw/lower" + upper);  // what is there when it is looked at?
    shell_or_end("cd '" + folder.path() +
                 "' && F=$PWD && mount -t overlay overlay -o lowerdir="
                 "$F/rw/lower" +
                 upper + " top && mv rw/lower rw/hidden");
    add("hidden", "top/file");
    return verdicts;
  });
  if (result.empty() || result == "old kernel") {
    MESSAGE("skipped: ", result.empty() ? "this process may not mount an image" : result);
    return;
  }
  CHECK(result ==
        "disk+ image- memory- bound+ all+ lower-image- one-lower-image- upper-memory- relative- "
        "hidden- ");
}
