// SPDX-License-Identifier: Apache-2.0
#include "key/set_tree.hpp"

#include <algorithm>
#include <memory>
#include <unordered_map>
#include <utility>

#include "base/serial.hpp"

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

}  // namespace

// Encoding. A leaf node: u8 0, u32 count, then key and hint of each. A branch node: u8 1, u32
// position, bytes path, u32 count, then label and `bytes` of each child.
struct SetTree::Node {
  // Leaf node: sets that the tree cannot tell apart, the most recent first.
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

  Node* child(const Label& label) const noexcept {
    for (const auto& [child_label, node] : children) {
      if (child_label == label) {
        return node.get();
      }
    }
    return nullptr;
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
    for (std::uint32_t i = 0; i < count && in.ok() && (!label || !matched); ++i) {
      const ByteView recorded = in.raw(sizeof(Label));
      const ByteView child = in.bytes();
      if (!in.ok() || (label && recorded != view_of_label(*label))) {
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

void SetTree::insert(const Leaf& leaf, const DependencySet& set, const Load& load) {
  std::size_t budget = kMaxSets;
  auto root = encoded_.empty() ? nullptr : Node::read(encoded_, budget);
  const auto save = [&] {
    SerialWriter out;
    root->write(out);
    encoded_ = out.take();
  };
  std::unordered_map<std::string_view, const Observation*> by_path;
  for (std::size_t i = 0; root != nullptr && i < set.observations.size(); ++i) {
    by_path.emplace(set.observations[i].path, &set.observations[i]);
  }
  // The child that agrees with the set. If none does, any child will serve: its sets are equal up
  // to this branch, and only that part is compared.
  const auto descend = [&](const Node& branch) {
    const auto at = by_path.find(branch.path);
    Node* const same = at != by_path.end() ? branch.child(cukiln::label_of(*at->second)) : nullptr;
    return same != nullptr ? same : branch.children.front().second.get();
  };
  if (std::vector<Leaf> all; root != nullptr && budget == 0) {  // full: remove an arbitrary set
    root->collect(all);
    root->remove(all.back().key);
  }
  for (;;) {
    if (root == nullptr) {
      root = Node::leaf_node(leaf);
      return save();
    }
    std::vector<Node*> nodes = {root.get()};  // from the root to a leaf node
    while (!nodes.back()->is_leaf()) {
      nodes.push_back(descend(*nodes.back()));
    }
    std::vector<Leaf>& leaves = nodes.back()->leaves;
    const auto known = std::find_if(leaves.begin(), leaves.end(),
                                    [&](const Leaf& one) { return one.key == leaf.key; });
    if (known != leaves.end()) {
      known->hint = leaf.hint;
      std::rotate(leaves.begin(), known, known + 1);
      return save();
    }
    const auto other = load(leaves.front());
    if (!other) {
      const CacheKey stale = leaves.front().key;
      root = root->remove(stale) ? std::move(root) : nullptr;
      continue;
    }
    const auto& ours = set.observations;
    const auto& theirs = other->observations;
    const auto [our_first, their_first] =
        std::mismatch(ours.begin(), ours.end(), theirs.begin(), theirs.end(),
                      [](const Observation& a, const Observation& b) {
                        return a.path == b.path && cukiln::label_of(a) == cukiln::label_of(b);
                      });
    if (our_first == ours.end() || their_first == theirs.end() ||
        our_first->path != their_first->path) {
      // They differ in identity classes or order only, which labels do not show: same leaf node.
      leaves.insert(leaves.begin(), leaf);
      return save();
    }
    const auto position = static_cast<std::uint32_t>(our_first - ours.begin());
    Node* const split = *std::find_if(nodes.begin(), nodes.end(), [&](const Node* node) {
      return node->is_leaf() || node->position >= position;
    });
    if (!split->is_leaf() && split->position == position) {
      if (split->path == our_first->path) {
        split->children.emplace_back(cukiln::label_of(*our_first), Node::leaf_node(leaf));
      } else {
        leaves.insert(leaves.begin(), leaf);
      }
      return save();
    }
    auto below = std::make_unique<Node>(std::move(*split));
    *split = Node();
    split->position = position;
    split->path = our_first->path;
    split->children.emplace_back(cukiln::label_of(*their_first), std::move(below));
    split->children.emplace_back(cukiln::label_of(*our_first), Node::leaf_node(leaf));
    return save();
  }
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
