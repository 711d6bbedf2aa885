// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>

#include "key/dependency_set.hpp"
#include "key/file_server.hpp"
#include "key/set_tree.hpp"

namespace cukiln {

/// Tells a store which of its recorded sets holds now, where the files are.
class SetCheck {
 public:
  virtual ~SetCheck() = default;
  /// What is at a virtual path.
  virtual SetTree::Label label(const std::string& path) = 0;
  virtual bool holds(const DependencySet& set) = 0;
  /// What is at this path is in none of the sets.
  virtual void differs(const std::string& path) { static_cast<void>(path); }
  /// The set holds, and its entry could not be used.
  enum class Loss { damaged, evicted };
  virtual void lost(Loss loss) { static_cast<void>(loss); }
};

/// By the files of this host, for one lookup: what an earlier one saw at a path is not believed.
class FileCheck final : public SetCheck {
 public:
  explicit FileCheck(FileServer& files) : files_(files) { files_.forget_labels(); }

  SetTree::Label label(const std::string& path) override { return files_.label(path); }
  bool holds(const DependencySet& set) override {
    const FileServer::Mismatch found = files_.check(set);
    if (found.what == FileServer::Mismatch::What::none) {
      return true;
    }
    note(found);
    return false;
  }
  void differs(const std::string& path) override {
    const bool absent = files_.label(path) == SetTree::Label{};
    note({absent ? FileServer::Mismatch::What::vanished : FileServer::Mismatch::What::changed,
          path,
          {},
          {}});
  }
  void lost(Loss loss) override {
    loss_ = loss;
    lost_ = true;
  }

  /// The first reason why a set did not hold; none: there was no set.
  const FileServer::Mismatch& mismatch() const noexcept { return mismatch_; }
  bool has_lost() const noexcept { return lost_; }
  Loss loss() const noexcept { return loss_; }

 private:
  void note(FileServer::Mismatch found) {
    if (mismatch_.what == FileServer::Mismatch::What::none) {
      mismatch_ = std::move(found);
    }
  }

  FileServer& files_;
  FileServer::Mismatch mismatch_;
  Loss loss_ = Loss::damaged;
  bool lost_ = false;
};

}  // namespace cukiln
