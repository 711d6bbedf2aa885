// SPDX-License-Identifier: Apache-2.0
#include "core/key/dependency_set.hpp"

#include <algorithm>

#include "core/base/result.hpp"
#include "core/base/serial.hpp"
#include "core/key/compile_request.hpp"

namespace cukiln {

using Kind = Observation::Kind;

std::uint32_t DependencySet::next_identity() const noexcept {
  std::uint32_t next = 0;
  for (const Observation& seen : observations) {
    next = seen.kind == Kind::absent ? next : std::max(next, seen.identity + 1);
  }
  return next;
}

void DependencySet::add_file(std::string path, const ContentHash& hash) {
  add_file(std::move(path), hash, next_identity());
}

void DependencySet::add_file(std::string path, const ContentHash& hash, std::uint32_t identity) {
  observations.push_back({Kind::file, std::move(path), hash, identity});
}

void DependencySet::add_folder(std::string path) { add_folder(std::move(path), next_identity()); }

void DependencySet::add_folder(std::string path, std::uint32_t identity) {
  observations.push_back({Kind::folder, std::move(path), {}, identity});
}

void DependencySet::add_absent(std::string path) {
  observations.push_back({Kind::absent, std::move(path), {}, 0});
}

std::string DependencySet::canonical() const {
  SerialWriter out;
  out.u32(static_cast<std::uint32_t>(observations.size()));
  for (const auto& [kind, path, hash, identity] : observations) {
    out.u8(static_cast<std::uint8_t>(kind)).bytes(path);
    if (kind == Kind::file) {
      out.raw(view_of(hash));
    }
    if (kind != Kind::absent) {
      out.u32(identity);
    }
  }
  return out.take();
}

Result<DependencySet> DependencySet::parse(ByteView canonical) {
  SerialReader in(canonical);
  DependencySet set;
  const std::uint32_t count = in.u32();
  // A damaged count must not make us allocate: the input bounds it.
  constexpr std::size_t kMinObservationBytes = 1 + 4;
  set.observations.reserve(std::min<std::size_t>(count, in.remaining() / kMinObservationBytes));
  std::uint32_t next_identity = 0;
  bool valid = true;
  for (std::uint32_t i = 0; i < count && in.ok() && valid; ++i) {
    Observation seen;
    const std::uint8_t kind = in.u8();
    valid = kind >= static_cast<std::uint8_t>(Kind::file) &&
            kind <= static_cast<std::uint8_t>(Kind::absent);
    seen.kind = static_cast<Kind>(kind);
    seen.path = in.bytes();
    if (seen.kind == Kind::file) {
      seen.hash = digest_from<ContentHash>(in.raw(sizeof(ContentHash::bytes)));
    }
    if (seen.kind != Kind::absent) {
      seen.identity = in.u32();
      valid = valid && seen.identity <= next_identity;
      next_identity += seen.identity == next_identity ? 1 : 0;
    }
    set.observations.push_back(std::move(seen));
  }
  if (!valid || !in.at_end()) {
    return make_error(ErrorCode::corrupt,
                      "the stored dependency set of {} bytes cannot be decoded: it is damaged",
                      canonical.size());
  }
  return set;
}

std::size_t DependencySet::files() const noexcept {
  return static_cast<std::size_t>(
      std::count_if(observations.begin(), observations.end(),
                    [](const Observation& seen) { return seen.kind == Kind::file; }));
}

std::vector<std::string> DependencySet::paths(Kind kind) const {
  std::vector<std::string> all;
  for (const Observation& seen : observations) {
    if (seen.kind == kind) {
      all.push_back(seen.path);
    }
  }
  return all;
}

const Observation* DependencySet::find(std::string_view path) const noexcept {
  const auto at = std::find_if(observations.begin(), observations.end(),
                               [&](const Observation& seen) { return seen.path == path; });
  return at != observations.end() ? &*at : nullptr;
}

bool DependencySet::portable() const noexcept {
  return std::all_of(observations.begin(), observations.end(), [](const Observation& seen) {
    return seen.kind != Kind::file || seen.path.starts_with("/cukiln/");
  });
}

CacheKey cache_key_of(const RequestDigest& request, ByteView set_canonical) noexcept {
  return hash_of<CacheKey>({"cukiln key", view_of(request), set_canonical});
}

CacheKey cache_key_of(ByteView request_canonical, ByteView set_canonical) noexcept {
  return cache_key_of(CompileRequest::digest_of(request_canonical), set_canonical);
}

}  // namespace cukiln
