// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "addons/nvrtc/host.hpp"
#include "addons/nvrtc/nvrtc_functions.hpp"
#include "addons/nvrtc/options.hpp"
#include "core/base/bytes.hpp"
#include "core/base/mutex.hpp"

namespace cukiln::dropin {

/// One program of the host's. Its compile goes through the store; where that cannot be, the program
/// is made in the real NVRTC too and all calls go there. Functions return an nvrtcResult. Threads:
/// safe, one call at a time.
class Program {
 public:
  /// `caller` is an address in the library that makes it.
  Program(Host& host, const void* caller, std::string text, std::string name,
          std::vector<std::pair<std::string, std::string>> headers);
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  int compile(int count, const char* const* options);
  int add_name(const char* expression);
  int lowered_name(const char* expression, const char** lowered);
  int size(Part part, std::size_t* bytes);
  int bytes(Part part, char* out);
  int pch_status();
  int pch_heap_required(std::size_t* bytes);
  int set_flow_callback(int (*callback)(void*, void*), void* payload);

 private:
  int bypass(int count, const char* const* options, const std::string& why) CUKILN_REQUIRES(mutex_);
  int make_real() CUKILN_REQUIRES(mutex_);
  ProgramSpec spec_of(const std::vector<std::string>& options, const Asked& asked) const
      CUKILN_REQUIRES(mutex_);
  void take(ProgramResult result, const Asked& asked) CUKILN_REQUIRES(mutex_);
  bool fetch_ptx() CUKILN_REQUIRES(mutex_);
  ByteView stored(Part part) const CUKILN_REQUIRES(mutex_);

  void report(std::string_view what, std::int64_t microseconds, std::string_view why) const {
    host_.report(what, microseconds, caller_, why);
  }

  Host& host_;
  const void* const caller_;
  const std::string text_;
  const std::string name_;
  const std::vector<std::pair<std::string, std::string>> headers_;
  const bool spells_time_;

  Mutex mutex_;
  std::vector<std::string> expressions_ CUKILN_GUARDED_BY(mutex_);
  std::map<std::string, std::string> lowered_ CUKILN_GUARDED_BY(mutex_);
  bool is_compiled_ CUKILN_GUARDED_BY(mutex_) = false;  ///< once without an error
  bool takes_names_ CUKILN_GUARDED_BY(mutex_) = true;   ///< no text was compiled yet
  bool lacks_ptx_ CUKILN_GUARDED_BY(mutex_) = false;    ///< a cubin's, which is made when asked for
  /// Of the last compile without an error for each kind of output, in their order.
  std::vector<std::pair<OutputKind, std::vector<std::string>>> options_ CUKILN_GUARDED_BY(mutex_);
  std::string working_folder_ CUKILN_GUARDED_BY(mutex_);            ///< of the last compile
  std::vector<std::string> ptx_options_ CUKILN_GUARDED_BY(mutex_);  ///< of the compile with the PTX
  std::string log_ CUKILN_GUARDED_BY(mutex_);
  PtxSource ptx_ CUKILN_GUARDED_BY(mutex_);  ///< of the last cubin
  SharedBytes outputs_[kParts] CUKILN_GUARDED_BY(mutex_);
  Handle real_ CUKILN_GUARDED_BY(mutex_) = nullptr;
};

}  // namespace cukiln::dropin
