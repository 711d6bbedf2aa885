// SPDX-License-Identifier: Apache-2.0
#include "core/key/set_tree.hpp"

#include <algorithm>
#include <memory>
#include <utility>

#include "core/base/serial.hpp"

namespace cukiln {

namespace {

constexpr std::uint8_t kLeafMark = 0;
constexpr std::uint8_t kBranchMark = 1;
constexpr std::size_t kLeafBytes = sizeof(CacheKey::bytes) + sizeof(std::uint64_t);

ByteView view_of_label(const SetTree::Label& label) noexcept {
  return {reinterpret_cast<const char*>(label.data()), label.size()};
}

SetTree::Label label_of(const Observation& seen) noexcept {
  return SetTree::label_of(seen.kind, seen.hash);
}

SetTree::Leaf read_leaf(SerialReader& in) noexcept {
  SetTree::Leaf leaf;
  leaf.key = digest_from<CacheKey>(in.raw(sizeof(CacheKey::bytes)));
  leaf.hint = in.u64();
  return leaf;
}

/// The number of observations with which both begin.
std::size_t common_observations(const DependencySet& a, const DependencySet& b) {
  const auto ends = std::mismatch(a.observations.begin(), a.observations.end(),
                                  b.observations.begin(), b.observations.end());
  return static_cast<std::size_t>(ends.first - a.observations.begin());
}

}  // namespace

// Encoding. A leaf node: u8 0, u32 count, then key and hint of each. A branch node: u8 1, u32
// position, bytes path, u32 count, then label and `bytes` of each child. Children of equal labels
// follow each other: their sets differ in what labels do not show, and a walk visits all of them.
//
// All sets below a branch are equal before its position, and those below one child there too.
struct SetTree::Node {
  // Leaf node: one set. More if they differ from the first observation on.
  std::vector<Leaf> leaves;
  // Branch node: the path probed, its index in the sets' observations, and the child of each label.
  std::uint32_t position = 0;
  std::string path;
  std::vector<std::pair<Label, std::unique_ptr<Node>>> children;

  bool is_leaf() const noexcept { return children.empty(); }

  static std::unique_ptr<Node> leaf_node(const Leaf& leaf) {
    auto node = std::make_unique<Node>();
    node->leaves.push_back(leaf);
    return node;
  }

  /// Adds a child behind those of the same label.
  void add_child(const Label& label, std::unique_ptr<Node> node) {
    const auto last = std::find_if(children.rbegin(), children.rend(),
                                   [&](const auto& child) { return child.first == label; });
    children.insert(last == children.rend() ? children.end() : last.base(),
                    {label, std::move(node)});
  }

  const Leaf& first_leaf() const noexcept {
    const Node* node = this;
    while (!node->is_leaf()) {
      node = node->children.front().second.get();
    }
    return node->leaves.front();
  }

  /// Null if malformed. `budget` is the number of leaves that may still follow; since a branch node
  /// has at least two children, it bounds the branch nodes too.
  static std::unique_ptr<Node> read(ByteView bytes, std::size_t& budget, std::size_t depth = 0) {
    SerialReader in(bytes);
    auto node = std::make_unique<Node>();
    const std::uint8_t mark = in.u8();
    if (mark == kBranchMark) {
      node->position = in.u32();
      node->path = in.bytes();
    }
    const std::uint32_t count = in.u32();
    const std::uint32_t min_count = mark == kBranchMark ? 2 : 1;
    if (mark > kBranchMark || count < min_count || count > budget || depth > kMaxSets) {
      return nullptr;
    }
    for (std::uint32_t i = 0; i < count && in.ok(); ++i) {
      if (mark == kLeafMark) {
        --budget;
        node->leaves.push_back(read_leaf(in));
        continue;
      }
      Label label;
      const ByteView label_bytes = in.raw(label.size());
      std::copy(label_bytes.begin(), label_bytes.end(), label.begin());
      auto child = in.ok() ? read(in.bytes(), budget, depth + 1) : nullptr;
      if (child == nullptr || (!child->is_leaf() && child->position <= node->position)) {
        return nullptr;  // positions must grow downwards, which bounds the depth too
      }
      node->children.emplace_back(label, std::move(child));
    }
    return in.at_end() ? std::move(node) : nullptr;
  }

  void write(SerialWriter& out) const {
    if (is_leaf()) {
      out.u8(kLeafMark).u32(static_cast<std::uint32_t>(leaves.size()));
      for (const auto& [key, hint] : leaves) {
        out.raw(view_of(key)).u64(hint);
      }
      return;
    }
    out.u8(kBranchMark).u32(position).bytes(path).u32(static_cast<std::uint32_t>(children.size()));
    for (const auto& [label, node] : children) {
      SerialWriter inner;
      node->write(inner);
      out.raw(view_of_label(label)).bytes(inner.view());
    }
  }

  void collect(std::vector<Leaf>& out) const {
    out.insert(out.end(), leaves.begin(), leaves.end());
    for (const auto& [label, node] : children) {
      node->collect(out);
    }
  }

  /// False if the node is empty afterwards.
  bool remove(const CacheKey& key) {
    if (is_leaf()) {
      std::erase_if(leaves, [&](const Leaf& leaf) { return leaf.key == key; });
      return !leaves.empty();
    }
    std::erase_if(children, [&](auto& child) { return !child.second->remove(key); });
    if (children.size() == 1) {  // the remaining sets agree on this path: drop the branch
      auto only = std::move(children.front().second);
      *this = std::move(*only);
    }
    return !is_leaf() || !leaves.empty();
  }
};

SetTree::Label SetTree::label_of(Observation::Kind kind, const ContentHash& hash) noexcept {
  Label label{};
  if (kind == Observation::Kind::file) {
    std::copy_n(hash.bytes.begin(), label.size(), label.begin());
  } else if (kind == Observation::Kind::folder) {
    label.fill(0xff);
  }
  return label;
}

std::optional<SetTree> SetTree::parse(ByteView encoded) {
  SetTree tree;
  std::size_t budget = kMaxSets;
  if (!encoded.empty() && Node::read(encoded, budget) == nullptr) {
    return std::nullopt;
  }
  tree.encoded_ = encoded;
  return tree;
}

std::vector<SetTree::Leaf> SetTree::leaves() const {
  std::vector<Leaf> all;
  std::size_t budget = kMaxSets;
  if (const auto root = encoded_.empty() ? nullptr : Node::read(encoded_, budget)) {
    root->collect(all);
  }
  return all;
}

// Walks the encoding itself: a lookup allocates no nodes.
std::vector<SetTree::Leaf> SetTree::candidates(const Probe& probe, std::string* differs) const {
  std::vector<Leaf> found;
  std::string first_difference;
  std::vector<ByteView> nodes;  // still to be visited
  ByteView node = encoded_;
  for (;;) {
    if (node.empty()) {
      if (nodes.empty()) {
        break;
      }
      node = nodes.back();
      nodes.pop_back();
    }
    SerialReader in(node);
    node = {};
    if (in.u8() == kLeafMark) {
      const std::uint32_t count = in.u32();
      for (std::uint32_t i = 0; i < count && in.ok() && in.remaining() >= kLeafBytes; ++i) {
        found.push_back(read_leaf(in));
      }
      continue;
    }
    in.u32();
    std::string path(in.bytes());
    const std::optional<Label> label = probe(path);
    const std::uint32_t count = in.u32();
    bool matched = false;
    for (std::uint32_t i = 0; i < count && in.ok(); ++i) {
      const ByteView recorded = in.raw(sizeof(Label));
      const ByteView child = in.bytes();
      if (!in.ok() || (label && recorded != view_of_label(*label))) {
        if (matched) {
          break;  // equal labels follow each other
        }
        continue;
      }
      if (node.empty()) {
        node = child;
      } else {
        nodes.push_back(child);
      }
      matched = true;
    }
    if (!matched && first_difference.empty()) {
      first_difference = std::move(path);
    }
  }
  if (found.empty() && differs != nullptr) {
    *differs = std::move(first_difference);
  }
  return found;
}

/// Inserts into the decoded tree.
class SetTree::Insertion {
 public:
  Insertion(std::unique_ptr<Node> root, const Load& load) : root_(std::move(root)), load_(load) {}

  std::unique_ptr<Node> run(const Leaf& leaf, const DependencySet& set) {
    while (!try_place(leaf, set)) {
    }
    return std::move(root_);
  }

 private:
  using Path = std::vector<Node*>;  // from the root to a leaf node

  /// False if a set that cannot be read was removed: the walk has to begin again.
  bool try_place(const Leaf& leaf, const DependencySet& set) {
    if (root_ == nullptr) {
      root_ = Node::leaf_node(leaf);
      return true;
    }
    const std::optional<Path> nodes = descend(set);
    if (!nodes) {
      return false;
    }
    std::vector<Leaf>& leaves = nodes->back()->leaves;
    const auto known = std::find_if(leaves.begin(), leaves.end(),
                                    [&](const Leaf& one) { return one.key == leaf.key; });
    if (known != leaves.end()) {
      known->hint = leaf.hint;
      std::rotate(leaves.begin(), known, known + 1);
      return true;
    }
    const auto other = load(leaves.front());
    if (!other) {
      return false;
    }
    split(leaf, set, *other, *nodes);
    return true;
  }

  /// The way to the sets that agree with this one for longest. Where none agrees with it at a
  /// branch any child will serve: its sets are equal up to there, and only that part is compared.
  /// Nothing if a set could not be read.
  std::optional<Path> descend(const DependencySet& set) {
    Path nodes = {root_.get()};
    while (!nodes.back()->is_leaf()) {
      const Node& branch = *nodes.back();
      const Observation* const ours =
          branch.position < set.observations.size() ? &set.observations[branch.position] : nullptr;
      std::vector<Node*> same;
      for (const auto& [label, node] : branch.children) {
        if (ours != nullptr && ours->path == branch.path && label == cukiln::label_of(*ours)) {
          same.push_back(node.get());
        }
      }
      Node* next = same.empty() ? branch.children.front().second.get() : same.front();
      std::size_t longest = 0;
      for (std::size_t i = 0; i < same.size() && same.size() > 1; ++i) {
        const auto other = load(same[i]->first_leaf());
        if (!other) {
          return std::nullopt;
        }
        if (const std::size_t common = common_observations(set, *other); common > longest) {
          longest = common;
          next = same[i];
        }
      }
      nodes.push_back(next);
    }
    return nodes;
  }

  /// Adds a leaf beside `other`, the set at the end of the way.
  static void split(const Leaf& leaf, const DependencySet& set, const DependencySet& other,
                    const Path& nodes) {
    std::size_t position = common_observations(set, other);
    const auto is_at = [&](const DependencySet& one) { return position < one.observations.size(); };
    if (!is_at(set) || !is_at(other) ||
        set.observations[position].path != other.observations[position].path) {
      // What was looked at next did not depend on what was found alone. The branch is at the last
      // path that both looked at, with two children of one label.
      if (position == 0) {
        nodes.back()->leaves.insert(nodes.back()->leaves.begin(), leaf);
        return;
      }
      --position;
    }
    const Observation& ours = set.observations[position];
    Node* const node = *std::find_if(nodes.begin(), nodes.end(), [&](const Node* one) {
      return one->is_leaf() || one->position >= position;
    });
    if (node->is_leaf() || node->position > position) {
      auto below = std::make_unique<Node>(std::move(*node));
      *node = Node();
      node->position = static_cast<std::uint32_t>(position);
      node->path = ours.path;
      node->add_child(cukiln::label_of(other.observations[position]), std::move(below));
    }
    node->add_child(cukiln::label_of(ours), Node::leaf_node(leaf));
  }

  /// Reads a set; removes it from the tree if it cannot be read.
  std::optional<DependencySet> load(const Leaf& leaf) {
    const Leaf copy = leaf;  // removing it frees its node
    auto set = load_(copy);
    if (!set) {
      remove(copy.key);
    }
    return set;
  }

  void remove(const CacheKey& key) { root_ = root_->remove(key) ? std::move(root_) : nullptr; }

  std::unique_ptr<Node> root_;
  const Load& load_;
};

void SetTree::insert(const Leaf& leaf, const DependencySet& set, const Load& load) {
  std::size_t budget = kMaxSets;
  auto root = encoded_.empty() ? nullptr : Node::read(encoded_, budget);
  if (std::vector<Leaf> all; root != nullptr && budget == 0) {  // full: remove an arbitrary set
    root->collect(all);
    root->remove(all.back().key);
  }
  root = Insertion(std::move(root), load).run(leaf, set);
  SerialWriter out;
  root->write(out);
  encoded_ = out.take();
}

void SetTree::remove(const CacheKey& key) {
  std::size_t budget = kMaxSets;
  const auto root = encoded_.empty() ? nullptr : Node::read(encoded_, budget);
  SerialWriter out;
  if (root != nullptr && root->remove(key)) {
    root->write(out);
  }
  encoded_ = out.take();
}

}  // namespace cukiln
