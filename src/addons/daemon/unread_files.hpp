// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <set>

#include "addons/daemon/fair_share.hpp"

namespace cukiln::daemon {

/// The sealed files of replies that connections have not read, which are in memory until then. A
/// file that many connections get, such as a compile's result, counts once. Threads: the loop's
/// only.
class UnreadFiles {
 public:
  /// A connection, which must be removed before its end.
  class Reader {
   public:
    virtual ~Reader() = default;
    /// True if the client has not read all that was sent.
    virtual bool has_unread() const noexcept = 0;
  };
  explicit UnreadFiles(FairShare bytes) : limit_(bytes) {}

  /// Counts a file that `reader` gets next. False, and not counted, if there is no room for it.
  bool add(const Reader& reader, int file);
  void remove(const Reader& reader) noexcept;

 private:
  struct Held {
    std::uint64_t bytes = 0;
    std::set<ino_t> files;
  };
  struct File {
    std::uint64_t bytes = 0;
    std::uint64_t readers = 0;
  };
  bool has_room(const Reader& reader, ino_t file, std::uint64_t bytes) const;
  void remove_read() noexcept;

  const FairShare limit_;
  std::uint64_t all_ = 0;
  std::map<ino_t, File> files_;
  std::map<const Reader*, Held> held_;
};

}  // namespace cukiln::daemon
