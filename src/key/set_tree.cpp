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

// Encoded: a leaf is u8 0, u32 count, and for each key and hint; a branch is u8 1, u32 position,
// bytes path, u32 count, and for each child its label and `bytes` of the child.
struct SetTree::Node {
  std::vector<Leaf> leaves;  // a leaf: sets whose observations are alike, the youngest first
  std::uint32_t position = 0;
  std::string path;
  std::vector<std::pair<Label, std::unique_ptr<Node>>> children;  // a branch: at least one

  bool is_leaf() const noexcept { return children.empty(); }

  static std::unique_ptr<Node> of(const Leaf& leaf) {
    auto node = std::make_unique<Node>();
    node->leaves.push_back(leaf);
    return node;
  }

  Node* child(const Label& label) const noexcept {
    for (const auto& [its, node] : children) {
      if (its == label) {
        return node.get();
      }
    }
    return nullptr;
  }

  /// `budget`: leaves that may follow. Of branches with two children there are fewer than leaves.
  static std::unique_ptr<Node> read(ByteView bytes, std::size_t& budget, std::size_t depth = 0) {
    SerialReader in(bytes);
    auto node = std::make_unique<Node>();
    const std::uint8_t mark = in.u8();
    if (mark == kBranchMark) {
      node->position = in.u32();
      node->path = in.bytes();
    }
    const std::uint32_t count = in.u32();
    const std::uint32_t fewest = mark == kBranchMark ? 2 : 1;
    if (mark > kBranchMark || count < fewest || count > budget || depth > kMaxSets) {
      return nullptr;
    }
    for (std::uint32_t i = 0; i < count && in.ok(); ++i) {
      if (mark == kLeafMark) {
        --budget;
        node->leaves.push_back(read_leaf(in));
        continue;
      }
      Label label;
      const ByteView its = in.raw(label.size());
      std::copy(its.begin(), its.end(), label.begin());
      auto child = in.ok() ? read(in.bytes(), budget, depth + 1) : nullptr;
      if (child == nullptr || (!child->is_leaf() && child->position <= node->position)) {
        return nullptr;  // positions grow on the way down, which bounds the depth too
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

  /// False: nothing is left of it.
  bool remove(const CacheKey& key) {
    if (is_leaf()) {
      std::erase_if(leaves, [&](const Leaf& leaf) { return leaf.key == key; });
      return !leaves.empty();
    }
    std::erase_if(children, [&](auto& child) { return !child.second->remove(key); });
    if (children.size() == 1) {  // what all that is left agree on tells nothing
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

// Over the encoding: a look-up builds no tree.
std::vector<SetTree::Leaf> SetTree::candidates(const Look& look, std::string* differs) const {
  std::vector<Leaf> found;
  ByteView node = encoded_;
  while (!node.empty()) {
    SerialReader in(node);
    if (in.u8() == kLeafMark) {
      const std::uint32_t count = in.u32();
      for (std::uint32_t i = 0; i < count && in.ok() && in.remaining() >= kLeafBytes; ++i) {
        found.push_back(read_leaf(in));
      }
      return found;
    }
    in.u32();
    std::string path(in.bytes());
    const Label label = look(path);
    const std::uint32_t count = in.u32();
    node = {};
    for (std::uint32_t i = 0; i < count && in.ok() && node.empty(); ++i) {
      const bool same = in.raw(label.size()) == view_of_label(label);
      const ByteView child = in.bytes();
      node = same && in.ok() ? child : ByteView();
    }
    if (node.empty() && differs != nullptr) {
      *differs = std::move(path);
    }
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
  std::unordered_map<std::string_view, const Observation*> seen_at;
  for (std::size_t i = 0; root != nullptr && i < set.observations.size(); ++i) {
    seen_at.emplace(set.observations[i].path, &set.observations[i]);
  }
  // The child that agrees with the set, or else any.
  const auto next = [&](const Node& branch) {
    const auto at = seen_at.find(branch.path);
    Node* const same = at != seen_at.end() ? branch.child(cukiln::label_of(*at->second)) : nullptr;
    return same != nullptr ? same : branch.children.front().second.get();
  };
  if (std::vector<Leaf> all; root != nullptr && budget == 0) {  // full: one goes, whichever
    root->collect(all);
    root->remove(all.back().key);
  }
  for (;;) {
    if (root == nullptr) {
      root = Node::of(leaf);
      return save();
    }
    std::vector<Node*> way = {root.get()};
    while (!way.back()->is_leaf()) {
      way.push_back(next(*way.back()));
    }
    std::vector<Leaf>& alike = way.back()->leaves;
    const auto known = std::find_if(alike.begin(), alike.end(),
                                    [&](const Leaf& one) { return one.key == leaf.key; });
    if (known != alike.end()) {
      known->hint = leaf.hint;
      std::rotate(alike.begin(), known, known + 1);
      return save();
    }
    const auto other = load(alike.front());
    if (!other) {
      const CacheKey stale = alike.front().key;
      root = root->remove(stale) ? std::move(root) : nullptr;
      continue;
    }
    const auto& ours = set.observations;
    const auto& theirs = other->observations;
    const auto [mine, its] =
        std::mismatch(ours.begin(), ours.end(), theirs.begin(), theirs.end(),
                      [](const Observation& a, const Observation& b) {
                        return a.path == b.path && cukiln::label_of(a) == cukiln::label_of(b);
                      });
    if (mine == ours.end() || its == theirs.end() || mine->path != its->path) {
      // Alike but for what is one file and what two, or in another order: the walk cannot tell.
      alike.insert(alike.begin(), leaf);
      return save();
    }
    const auto position = static_cast<std::uint32_t>(mine - ours.begin());
    Node* const place = *std::find_if(way.begin(), way.end(), [&](const Node* node) {
      return node->is_leaf() || node->position >= position;
    });
    if (!place->is_leaf() && place->position == position) {
      if (place->path == mine->path) {
        place->children.emplace_back(cukiln::label_of(*mine), Node::of(leaf));
      } else {
        alike.insert(alike.begin(), leaf);
      }
      return save();
    }
    auto below = std::make_unique<Node>(std::move(*place));
    *place = Node();
    place->position = position;
    place->path = mine->path;
    place->children.emplace_back(cukiln::label_of(*its), std::move(below));
    place->children.emplace_back(cukiln::label_of(*mine), Node::of(leaf));
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
