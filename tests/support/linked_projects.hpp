// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <string>

#include "core/base/hasher.hpp"
#include "core/key/dependency_set.hpp"
#include "core/key/set_tree.hpp"

namespace cukiln::testing {

/// Projects in which the compiler's next path depends on all it found, also on which paths are one
/// file, as with `#pragma once`.
class LinkedProjects {
 public:
  struct File {
    int text = 0;  ///< 0: absent
    int inode = 0;
  };
  using Files = std::map<std::string, File>;

  explicit LinkedProjects(unsigned seed) : random_(seed) {}

  Files make() {
    Files files;
    for (char name = 'a'; name < 'a' + kPaths; ++name) {
      files[std::string(1, name)] = {static_cast<int>(random_() % 3), name};
    }
    for (std::size_t links = random_() % 4; links > 0; --links) {
      files[any_path()] = files[any_path()];
    }
    return files;
  }
  DependencySet compile(const Files& files) const {
    DependencySet set;
    std::map<int, std::uint32_t> classes;
    std::string next = "a";
    while (!next.empty()) {
      const File& file = files.at(next);
      if (file.text == 0) {
        set.add_absent(next);
      } else {
        const auto identity =
            classes.emplace(file.inode, static_cast<std::uint32_t>(classes.size())).first->second;
        set.add_file(next, hash_of(std::to_string(file.text)), identity);
      }
      const auto digest = hash_of(set.canonical()).bytes;
      next = digest[1] % 6 == 0 ? "" : std::string(1, static_cast<char>('a' + digest[0] % kPaths));
      while (!next.empty() && set.find(next) != nullptr) {
        next = next[0] + 1 < 'a' + kPaths ? std::string(1, static_cast<char>(next[0] + 1)) : "";
      }
    }
    return set;
  }
  static SetTree::Label label(const Files& files, const std::string& path) {
    const File& file = files.at(path);
    return file.text == 0
               ? SetTree::Label{}
               : SetTree::label_of(Observation::Kind::file, hash_of(std::to_string(file.text)));
  }

 private:
  static constexpr int kPaths = 8;
  std::string any_path() {
    return std::string(1, static_cast<char>('a' + static_cast<int>(random_() % kPaths)));
  }
  std::minstd_rand random_;
};

}  // namespace cukiln::testing
