// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "core/base/clock.hpp"
#include "core/base/event_queue.hpp"
#include "core/base/logger.hpp"
#include "core/store/generation.hpp"
#include "core/store/host_facts.hpp"

namespace cukiln {

/// How an SQLite store is opened. The clock, the facts, the events and what the log writes to
/// outlive the store.
struct SqliteStoreOptions {
  std::string directory;                 ///< absolute
  std::uint64_t max_bytes = 2ull << 30;  ///< the cap of the live data
  bool system = false;                   ///< another owner's store, which is only read
  bool allow_network_file_system = false;
  bool maintenance_owner = false;  ///< evicts and checkpoints for all processes while it is open
  std::chrono::milliseconds write_wait{2000};  ///< for other writers, before a write fails
  std::uint64_t reserve_bytes = 8ull << 20;    ///< kept on disk for evicting when the disk is full
  std::uint64_t checkpoint_bytes = 4ull << 20;
  int page_bytes = 4096;
  StoreSchema schema;
  const Clock* clock = &Clock::system();
  const HostFacts* facts = &HostFacts::system();
  Logger log;
  EventQueue* events = nullptr;  ///< null: none is wanted
};

}  // namespace cukiln
