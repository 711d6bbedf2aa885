// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <unordered_map>

#include <sys/types.h>

#include "core/base/clock.hpp"
#include "core/store/object_name.hpp"

namespace cukiln {

/// The objects that one server has acknowledged to one signer, in a file beside the store that
/// every process of the user adds to. It is disposable: what has no mark is uploaded again. So is
/// what was marked long ago, since servers expire objects. Threads: one at a time.
class UploadMarks {
 public:
  static constexpr std::size_t kMaxMarks = 65'536;
  static constexpr std::int64_t kLastS = 15 * 86'400;  ///< half of what Redis keeps an object for

  /// Reads the file. Without a path the marks last as long as this.
  void open(std::string path, const Clock& clock);
  /// Whether the server has the object, also by what other processes noted since.
  bool has(const ObjectName& name);
  /// Notes that the server has the object. Above kMaxMarks the older half goes.
  void add(const ObjectName& name) { write(name, clock_->now_s()); }
  /// Notes that the server has an older object of that name.
  void remove(const ObjectName& name) { write(name, 0); }
  std::size_t size() const noexcept { return times_.size(); }
  /// Forgets the objects for which `keeps` is false.
  void retain(const std::function<bool(const ObjectName&)>& keeps);

 private:
  void set(const ObjectName& name, std::int64_t time_s);
  void write(const ObjectName& name, std::int64_t time_s);
  void read_new();
  bool is_fresh(std::int64_t time_s) const {
    return time_s <= clock_->now_s() && clock_->now_s() - time_s < kLastS;
  }
  void rewrite();

  std::string path_;
  const Clock* clock_ = &Clock::system();
  std::unordered_map<ObjectName, std::int64_t> times_;
  ino_t inode_ = 0;
  off_t read_ = 0;  ///< bytes of the file
};

}  // namespace cukiln
