// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "addons/nvrtc/host.hpp"
#include "addons/nvrtc/linker_functions.hpp"
#include "core/base/bytes.hpp"
#include "core/base/hasher.hpp"
#include "core/base/mutex.hpp"

namespace cukiln::dropin {

/// What nvJitLink got for a link so far, in order: its own bytes, options and inputs.
using LinkDigest = ContentHash;

/// What the getters return after a link.
struct LinkResult {
  struct Output {
    int code = kLinkInternalError;  ///< of the functions for its size and its bytes: the same
    std::string bytes;
  };
  std::array<Output, kLinkParts> parts;
  std::int64_t link_us = 0;

  std::string encode() const;
  /// Nothing if these are not the bytes of one.
  static std::optional<LinkResult> decode(std::string_view bytes);
};

/// What all links of a process share. The store has a blob for each step that nvJitLink took: one
/// that says no more than that, or the result of the link that ended there. Threads: safe.
class LinkHost : public DropinStore {
 public:
  LinkHost(const RealLinker& real, const char* report);

  const RealLinker& real() const noexcept { return real_; }
  /// The digest of nvJitLink's own bytes. Errors: io (no store on disk, no such file).
  Result<LinkDigest> identity();

  /// True if the store knows that nvJitLink takes this: the options, or an input after them.
  bool was_accepted(const LinkDigest& step);
  std::optional<LinkResult> find_result(const LinkDigest& step);
  /// Stores the result of the last step, and that nvJitLink took those before it.
  void put(const std::vector<LinkDigest>& steps, const LinkResult& result);

 private:
  const RealLinker& real_;
  const std::string library_;  ///< absolute
  Mutex known_mutex_;
  std::optional<LinkDigest> identity_ CUKILN_GUARDED_BY(known_mutex_);
  std::unordered_set<std::string> accepted_ CUKILN_GUARDED_BY(known_mutex_);  ///< found before
};

/// One link of the host's. Options and inputs are kept while it is known from earlier links that
/// nvJitLink takes them, and what is known of the result is returned. For any other call the link
/// is made in the real nvJitLink too, and all calls go there. Functions return an nvJitLinkResult.
/// Threads: safe, one call at a time.
class Link {
 public:
  /// `caller` is an address in the library that links.
  Link(LinkHost& host, const void* caller) : host_(host), caller_(caller) {}
  ~Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  /// As nvJitLinkCreate; has_handle() tells whether there is a handle.
  int create(std::uint32_t count, const char* const* options);
  bool has_handle();

  int add_data(int type, const void* data, std::size_t bytes, const char* name);
  int add_file(int type, const char* path);
  int complete();
  int size(LinkPart part, std::size_t* bytes);
  int bytes(LinkPart part, void* out);
  /// As nvJitLinkDestroy.
  int destroy();

 private:
  struct Input {
    int type = 0;
    std::string data;
    std::optional<std::string> name;
  };
  int add(Input input) CUKILN_REQUIRES(mutex_);
  int add_real(const Input& input) CUKILN_REQUIRES(mutex_);
  int make_real() CUKILN_REQUIRES(mutex_);
  int complete_real() CUKILN_REQUIRES(mutex_);
  LinkResult read_real() CUKILN_REQUIRES(mutex_);
  /// Makes the link nvJitLink's own from now on: its result is not stored.
  void bypass(std::string_view why) CUKILN_REQUIRES(mutex_);
  /// Returns a code of the real nvJitLink, and reports the first that is an error.
  int checked(int code) CUKILN_REQUIRES(mutex_);
  void report(std::string_view what, std::int64_t microseconds, std::string_view why)
      CUKILN_REQUIRES(mutex_);

  LinkHost& host_;
  const void* const caller_;

  Mutex mutex_;
  std::vector<std::string> options_ CUKILN_GUARDED_BY(mutex_);
  std::deque<Input> inputs_ CUKILN_GUARDED_BY(mutex_);       ///< nvJitLink keeps pointers to them
  std::vector<LinkDigest> steps_ CUKILN_GUARDED_BY(mutex_);  ///< of the options, and each input
  std::optional<LinkResult> result_ CUKILN_GUARDED_BY(mutex_);  ///< found in the store
  std::string bypass_reason_ CUKILN_GUARDED_BY(mutex_);         ///< why the result is not stored
  bool is_reported_ CUKILN_GUARDED_BY(mutex_) = false;
  bool is_real_ CUKILN_GUARDED_BY(mutex_) = false;
  std::int64_t real_us_ CUKILN_GUARDED_BY(mutex_) = 0;  ///< in the real nvJitLink
  Handle real_ CUKILN_GUARDED_BY(mutex_) = nullptr;
};

}  // namespace cukiln::dropin
