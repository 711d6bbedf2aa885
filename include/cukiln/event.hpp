// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include <cukiln/digest.hpp>
#include <cukiln/export.hpp>
#include <cukiln/target.hpp>

namespace cukiln {
inline namespace v0 {

/// A measured duration; `count()` is in milliseconds, with a fraction.
using Milliseconds = std::chrono::duration<double, std::milli>;

/// What happened to a module, or to an entry of the store.
enum class EventKind {
  hit,      ///< a cubin was found; `reason` says where
  miss,     ///< no tier had it; `reason` says why
  compile,  ///< a compile ended
  load,     ///< a module was loaded on its devices, or could not be
  evict,    ///< the store removed an entry to make room
  corrupt,  ///< the store found damage, which it removed; `reason` is what it found
  sealed,   ///< a compile or a load was needed after `seal()`; `reason` says why
  /// a Watch replaced an edited module, or, if `failed`, could not: `reason` says why, with
  /// NVRTC's log, and the kernels stay as they were
  reload,
};
CUKILN_API const char* name_of(EventKind kind) noexcept;

/// A structured event, for a host's own report. Members that an event does not have are empty.
struct Event {
  // schema: Event. Written by src/schema/generate.py
  EventKind kind = EventKind::hit;
  std::string module;   ///< its name; empty for `corrupt`
  Target target;        ///< 0 for `corrupt`
  CacheKey key;         ///< all zero if there is none (`miss`, a failed compile) or it is not known
  std::string reason;   ///< as in ModuleReport; the error's message if `failed`
  bool failed = false;  ///< the compile, the load, or the reload failed
  Milliseconds elapsed{0};  ///< of a compile, waits included, of a load, and of a reload
  // end of schema
};

/// Receives events. Empty (the default): none is made, and it costs nothing.
///
/// Threads: called in the thread in which the event happened (the caller's, one of a preload's, or
/// a Watch's), before the call that caused it returns, and concurrently if several threads have
/// events. The library holds no lock meanwhile: a slow sink delays that thread only, and the sink
/// may call the loader. Events of one thread are in order; those of a compile come when it has
/// ended. An exception is caught, and the event is lost. Fork: see KernelLoader.
///
/// Lookups in KernelTable have no events. What other processes do (cukilnd) has none here.
using EventSink = std::function<void(const Event& event)>;

}  // namespace v0
}  // namespace cukiln
