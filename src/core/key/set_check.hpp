// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "core/key/dependency_set.hpp"
#include "core/key/file_server.hpp"
#include "core/key/set_tree.hpp"

namespace cukiln {

/// With this a store finds out, during a lookup, which of a request's dependency sets holds for the
/// files as they are now. The implementation knows where the files are; it also learns why the
/// lookup missed.
class SetCheck {
 public:
  virtual ~SetCheck() = default;
  /// The label of what is at a virtual path now; nothing if the path counts as recorded.
  virtual std::optional<SetTree::Label> label(const std::string& path) = 0;
  /// Whether every observation of the set is true now. Paths that count as recorded are true only
  /// with `trust_toolkit`: else anything could have been recorded there.
  virtual bool holds(const DependencySet& set, bool trust_toolkit) = 0;
  /// Called when no recorded set has what is at this path now.
  virtual void differs(const std::string& path) { static_cast<void>(path); }
  /// Called when a set holds but its entry cannot be used.
  enum class Loss { damaged, evicted };
  virtual void lost(Loss loss) { static_cast<void>(loss); }
};

/// Checks by the files of this host, for one lookup: labels of an earlier lookup are dropped.
class FileCheck final : public SetCheck {
 public:
  explicit FileCheck(FileServer& files) : files_(files) { files_.clear_labels(); }

  std::optional<SetTree::Label> label(const std::string& path) override {
    return files_.is_as_recorded(path) ? std::nullopt : std::optional(files_.label(path));
  }
  bool holds(const DependencySet& set, bool trust_toolkit) override {
    const FileServer::Mismatch found = files_.check(set, trust_toolkit);
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

  /// Why the first set did not hold; `none` if there was no set, or the first one held.
  const FileServer::Mismatch& mismatch() const noexcept { return mismatch_; }
  /// Whether a set held whose entry could not be used, for the reason `loss()`.
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
