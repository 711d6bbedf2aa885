// SPDX-License-Identifier: Apache-2.0
#include "core/key/set_tree.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <string>

#include "core/base/hasher.hpp"
#include "support/linked_projects.hpp"

using namespace cukiln;
using cukiln::testing::LinkedProjects;

namespace {

/// A project in which each file's text decides which paths are accessed next, as in a compile.
struct Project {
  std::map<std::string, std::string> files;  // no entry: absent

  DependencySet compile() const {
    DependencySet set;
    access("/root.h", set);
    return set;
  }
  SetTree::Label label(const std::string& path) const {
    const auto at = files.find(path);
    return at == files.end() ? SetTree::Label{}
                             : SetTree::label_of(Observation::Kind::file, hash_of(at->second));
  }

 private:
  /// A file's text names what it includes, one letter each.
  void access(const std::string& path, DependencySet& set) const {
    if (set.find(path) != nullptr) {
      return;
    }
    const auto at = files.find(path);
    if (at == files.end()) {
      set.add_absent(path);
      return;
    }
    set.add_file(path, hash_of(at->second));
    for (const char name : at->second) {
      if (name >= 'a' && name <= 'z') {
        access(std::string("/") + name + ".h", set);
      }
    }
  }
};

struct Recorded {
  std::map<CacheKey, DependencySet> sets;
  SetTree tree;

  SetTree::Load load() {
    return [this](const SetTree::Leaf& leaf) -> std::optional<DependencySet> {
      const auto at = sets.find(leaf.key);
      return at != sets.end() ? std::optional(at->second) : std::nullopt;
    };
  }
  CacheKey add(const DependencySet& set) {
    const CacheKey key = cache_key_of("request", set.canonical());
    sets.emplace(key, set);
    tree.insert({key, 7}, set, load());
    return key;
  }
  std::vector<SetTree::Leaf> find(const Project& project, int* probes = nullptr) const {
    return tree.candidates([&](const std::string& path) {
      if (probes != nullptr) {
        ++*probes;
      }
      return project.label(path);
    });
  }
};

Project random_project(std::minstd_rand& random) {
  Project project;
  const auto text = [&] {
    std::string letters;
    for (std::size_t i = random() % 3; i > 0; --i) {
      letters += static_cast<char>('a' + random() % 8);
    }
    return letters + std::to_string(random() % 3);
  };
  project.files["/root.h"] = text();
  for (char name = 'a'; name <= 'h'; ++name) {
    if (random() % 4 != 0) {
      project.files[std::string("/") + name + ".h"] = text();
    }
  }
  return project;
}

}  // namespace

// fault 101
TEST_CASE("each of hundreds of recorded sets is found, as the only candidate") {
  std::minstd_rand random(17);
  Recorded recorded;
  std::vector<std::pair<Project, CacheKey>> all;
  for (int i = 0; i < 400; ++i) {
    Project project = random_project(random);
    const CacheKey key = recorded.add(project.compile());
    all.emplace_back(std::move(project), key);
  }
  int probes = 0;
  for (const auto& [project, key] : all) {
    const auto found = recorded.find(project, &probes);
    REQUIRE(found.size() == 1);
    CHECK(found.front().key == key);
    CHECK(found.front().hint == 7);
  }
  CHECK(probes < 400 * 16);
  CHECK(recorded.tree.size() == recorded.sets.size());
  CHECK(recorded.tree.encoded().size() < 100 * recorded.sets.size());
}

TEST_CASE(
    "versions of one header are distinguished by one probe, and an unknown version is reported") {
  Recorded recorded;
  Project project;
  project.files["/root.h"] = "a0";
  for (int version = 0; version < 100; ++version) {
    project.files["/a.h"] = std::to_string(version);
    recorded.add(project.compile());
  }
  for (int version = 0; version < 100; ++version) {
    project.files["/a.h"] = std::to_string(version);
    int probes = 0;
    const auto found = recorded.find(project, &probes);
    REQUIRE(found.size() == 1);
    CHECK(recorded.sets.at(found.front().key) == project.compile());
    CHECK(probes == 1);
  }
  project.files["/a.h"] = "new";
  std::string differs;
  CHECK(recorded.tree
            .candidates([&](const std::string& path) { return project.label(path); }, &differs)
            .empty());
  CHECK(differs == "/a.h");
}

TEST_CASE(
    "a path that counts as recorded leads to every set that may hold, others decide as ever") {
  Recorded recorded;
  Project project;
  project.files["/root.h"] = "ab0";
  for (int a = 0; a < 5; ++a) {
    for (int b = 0; b < 5; ++b) {
      project.files["/a.h"] = std::to_string(a);
      project.files["/b.h"] = std::to_string(b);
      recorded.add(project.compile());
    }
  }
  std::string differs;
  const auto found = [&](const std::string& unknown) {
    return recorded.tree.candidates(
        [&](const std::string& path) -> std::optional<SetTree::Label> {
          return path == unknown ? std::nullopt : std::optional(project.label(path));
        },
        &differs);
  };
  project.files["/b.h"] = "3";
  const auto any_a = found("/a.h");
  REQUIRE(any_a.size() == 5);
  for (const SetTree::Leaf& leaf : any_a) {
    CHECK(recorded.sets.at(leaf.key).find("/b.h")->hash == hash_of("3"));
  }
  CHECK(found("/b.h").size() == 5);
  project.files["/b.h"] = "new";
  CHECK(found("/a.h").empty());
  CHECK(differs == "/b.h");
}

// fault 81
TEST_CASE("sets that differ only in identity classes are found by one walk") {
  Recorded recorded;
  DependencySet copies;
  copies.add_file("/a.h", hash_of("x"));
  copies.add_file("/b.h", hash_of("x"));
  DependencySet links = copies;
  links.observations[1].identity = 0;
  recorded.add(copies);
  recorded.add(links);
  Project project;
  project.files = {{"/a.h", "x"}, {"/b.h", "x"}};
  CHECK(recorded.find(project).size() == 2);
}

// fault 342
TEST_CASE("every set of random projects with links is found, in whatever order they were added") {
  for (unsigned seed = 1; seed <= 60; ++seed) {
    CAPTURE(seed);
    LinkedProjects projects(seed);
    Recorded recorded;
    std::vector<LinkedProjects::Files> all;
    for (int i = 0; i < 60; ++i) {
      all.push_back(projects.make());
      recorded.add(projects.compile(all.back()));
      for (const auto& files : all) {
        const auto found = recorded.tree.candidates(
            [&](const std::string& path) { return LinkedProjects::label(files, path); });
        const CacheKey key = cache_key_of("request", projects.compile(files).canonical());
        CHECK(std::any_of(found.begin(), found.end(),
                          [&](const SetTree::Leaf& leaf) { return leaf.key == key; }));
      }
    }
    CHECK(recorded.tree.size() == recorded.sets.size());
    REQUIRE(SetTree::parse(recorded.tree.encoded()));
    for (const SetTree::Leaf& leaf : recorded.tree.leaves()) {
      recorded.tree.remove(leaf.key);
    }
    CHECK(recorded.tree.empty());
  }
}

TEST_CASE("sets that are removed or can no longer be read leave the tree") {
  std::minstd_rand random(3);
  Recorded recorded;
  std::vector<std::pair<Project, CacheKey>> all;
  for (int i = 0; i < 60; ++i) {
    Project project = random_project(random);
    const CacheKey key = recorded.add(project.compile());
    all.emplace_back(std::move(project), key);
  }
  const CacheKey gone = all[5].second;
  recorded.tree.remove(gone);
  recorded.sets.erase(gone);
  for (const auto& [project, key] : all) {
    const auto found = recorded.find(project);
    CHECK((key == gone || (found.size() == 1 && found.front().key == key)));
  }
  const std::size_t before = recorded.tree.size();
  recorded.sets.clear();  // evicted, which the tree does not know
  recorded.add(all[0].first.compile());
  CHECK(recorded.tree.size() <= before);
  const auto found = recorded.find(all[0].first);
  REQUIRE_FALSE(found.empty());
  CHECK(found.front().key == all[0].second);
  for (const SetTree::Leaf& leaf : recorded.tree.leaves()) {
    recorded.tree.remove(leaf.key);
  }
  CHECK(recorded.tree.empty());
}

TEST_CASE("a tree has a maximum size, and malformed bytes are refused") {
  Recorded recorded;
  Project project;
  project.files["/root.h"] = "a0";
  for (std::size_t version = 0; version < SetTree::kMaxSets + 20; ++version) {
    project.files["/a.h"] = std::to_string(version);
    recorded.add(project.compile());
  }
  CHECK(recorded.tree.size() <= SetTree::kMaxSets);
  CHECK(recorded.find(project).size() == 1);

  Recorded small;
  std::minstd_rand random(5);
  for (int i = 0; i < 5; ++i) {
    small.add(random_project(random).compile());
  }
  const std::string encoded(small.tree.encoded());
  CHECK(SetTree::parse(encoded)->encoded() == encoded);
  CHECK(SetTree::parse("")->empty());
  for (std::size_t length = 1; length < encoded.size(); ++length) {
    CHECK_FALSE(SetTree::parse(encoded.substr(0, length)));
  }
  for (std::size_t at = 0; at < encoded.size(); ++at) {
    std::string damaged = encoded;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x41);
    if (auto tree = SetTree::parse(damaged)) {  // still a valid tree: walking it must be safe
      tree->candidates([](const std::string&) { return SetTree::Label{}; });
      tree->leaves();
    }
  }
}
