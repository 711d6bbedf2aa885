// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/bytes.hpp"
#include "core/key/dependency_set.hpp"

#include <cukiln/digest.hpp>

namespace cukiln {

/// A decision tree over the dependency sets recorded for one request. It finds the set that can
/// hold now at the cost of checking one.
///
/// All checkouts and branches of a project are one request, so a request may have hundreds of sets.
/// Two sets are equal up to the first path where something else was found (see DependencySet). The
/// tree keeps only those paths: a branch node has a path and one child for each label that a set
/// found there; a leaf has the set's key. A walk probes one path for each branch node and ends at
/// the only set that agrees with all of them, which the caller then checks whole. (It is a crit-bit
/// tree whose bits are observations.) Labels do not show which paths are one file: sets that differ
/// in that are below children of equal labels, and a walk ends at each of them.
///
/// The tree is an optimisation: a wrong one costs a compile and never gives a wrong cubin.
/// A value type over its encoding, which is what stores keep. Threads: one at a time.
class SetTree {
 public:
  /// What is at a path, reduced to what tells two states apart. All zero if absent.
  using Label = std::array<std::uint8_t, 16>;
  static Label label_of(Observation::Kind kind, const ContentHash& hash) noexcept;

  struct Leaf {
    CacheKey key;
    /// For the store's use, such as a row number that finds the entry faster; 0 if none.
    std::uint64_t hint = 0;
    friend bool operator==(const Leaf&, const Leaf&) = default;
  };

  /// The most sets that are kept for one request. It bounds the encoding.
  static constexpr std::size_t kMaxSets = 1024;

  SetTree() = default;
  /// Decodes and validates bytes from an untrusted source. Nothing if they are malformed.
  static std::optional<SetTree> parse(ByteView encoded);
  /// Takes an encoding whose checksum the caller has verified, without validating it. (A walk over
  /// malformed bytes stays within them and finds fewer sets.)
  static SetTree from_verified(std::string encoded) noexcept {
    SetTree tree;
    tree.encoded_ = std::move(encoded);
    return tree;
  }
  ByteView encoded() const noexcept { return encoded_; }

  bool empty() const noexcept { return encoded_.empty(); }
  std::size_t size() const { return leaves().size(); }
  /// All sets, in no particular order.
  std::vector<Leaf> leaves() const;

  /// The sets that may hold, usually one. `probe` returns the label of what is at a path now, or
  /// nothing if the path counts as each set recorded it: then all of them may hold. If no set has
  /// the label, the result is empty and `*differs` is the path.
  using Probe = std::function<std::optional<Label>(const std::string& path)>;
  std::vector<Leaf> candidates(const Probe& probe, std::string* differs = nullptr) const;

  /// Adds a set; if it is there already, updates its hint. `load` reads the recorded set of a leaf
  /// to compare with; leaves whose set it cannot read are removed from the tree.
  using Load = std::function<std::optional<DependencySet>(const Leaf& leaf)>;
  void insert(const Leaf& leaf, const DependencySet& set, const Load& load);
  void remove(const CacheKey& key);

 private:
  struct Node;
  class Insertion;

  std::string encoded_;
};

}  // namespace cukiln
