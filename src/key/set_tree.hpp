// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.hpp"
#include "key/dependency_set.hpp"

#include <cukiln/digest.hpp>

namespace cukiln {

/// Finds the one of a request's many recorded sets that can hold now, at the price of one.
///
/// All checkouts and branches of a project are one request, so a request has hundreds of sets. Two
/// sets are equal up to the first place where something else was found. The tree keeps those places
/// only: a branch is a path with what each set found there, a leaf the set's key. A walk looks at
/// one path for each branch on its way and ends at the only set that agrees with all of them; that
/// one is then checked whole. (A crit-bit tree whose bits are observations.)
///
/// It saves time and decides nothing: a wrong tree costs a compile, never a wrong cubin.
/// Value type over its encoding, which is what stores keep; not for several threads.
class SetTree {
 public:
  /// What is at a path: enough to tell two answers apart. All zero: absent.
  using Label = std::array<std::uint8_t, 16>;
  static Label label_of(Observation::Kind kind, const ContentHash& hash) noexcept;

  struct Leaf {
    CacheKey key;
    /// A number of the store's own that leads to the entry faster; 0: none.
    std::uint64_t hint = 0;
    friend bool operator==(const Leaf&, const Leaf&) = default;
  };

  /// More sets are not kept for one request, which bounds the encoding.
  static constexpr std::size_t kMaxSets = 1024;

  SetTree() = default;
  /// Takes bytes from outside. Nothing: they are damaged.
  static std::optional<SetTree> parse(ByteView encoded);
  /// Takes bytes that a checksum has found to be as this class wrote them. (A walk over others
  /// would stay within them, and find less.)
  static SetTree from_verified(std::string encoded) noexcept {
    SetTree tree;
    tree.encoded_ = std::move(encoded);
    return tree;
  }
  ByteView encoded() const noexcept { return encoded_; }

  bool empty() const noexcept { return encoded_.empty(); }
  std::size_t size() const { return leaves().size(); }
  /// All sets, in no order.
  std::vector<Leaf> leaves() const;

  /// The sets that may hold, usually one. `look` tells what is at a path now. Empty: what is at
  /// `*differs` now is in no set.
  using Look = std::function<Label(const std::string& path)>;
  std::vector<Leaf> candidates(const Look& look, std::string* differs = nullptr) const;

  /// Adds a set, or gives the one that is there its new hint. `load` reads the set of a leaf that
  /// it is compared with; what it cannot read any more is dropped from the tree.
  using Load = std::function<std::optional<DependencySet>(const Leaf& leaf)>;
  void insert(const Leaf& leaf, const DependencySet& set, const Load& load);
  void remove(const CacheKey& key);

 private:
  struct Node;

  std::string encoded_;
};

}  // namespace cukiln
