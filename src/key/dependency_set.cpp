#include "key/dependency_set.hpp"

#include <algorithm>

#include "base/hasher.hpp"
#include "base/result.hpp"
#include "base/serial.hpp"

namespace cukiln {

namespace {

void sort_unique(std::vector<std::string>& paths) {
  std::sort(paths.begin(), paths.end());
  paths.erase(std::unique(paths.begin(), paths.end()), paths.end());
}

}  // namespace

void DependencySet::sort() {
  std::sort(present.begin(), present.end(),
            [](const Present& a, const Present& b) { return a.path < b.path; });
  present.erase(std::unique(present.begin(), present.end()), present.end());
  sort_unique(folders);
  sort_unique(absent);
}

std::string DependencySet::canonical() const {
  SerialWriter out;
  out.u32(static_cast<std::uint32_t>(present.size()));
  for (const auto& [path, digest] : present) {
    out.bytes(path).raw(view_of(digest));
  }
  out.strings(folders).strings(absent);
  return out.take();
}

Result<DependencySet> DependencySet::parse(ByteView canonical) {
  SerialReader in(canonical);
  DependencySet set;
  const std::uint32_t count = in.u32();
  for (std::uint32_t i = 0; i < count && in.ok(); ++i) {
    Present present;
    present.path = in.bytes();
    const ByteView digest = in.raw(16);
    if (in.ok()) {
      std::memcpy(present.digest.bytes.data(), digest.data(), 16);
    }
    set.present.push_back(std::move(present));
  }
  set.folders = in.strings();
  set.absent = in.strings();
  if (!in.at_end()) {
    return Error(ErrorCode::corrupt, "the stored dependency set is damaged");
  }
  return set;
}

bool DependencySet::portable() const noexcept {
  const auto is_virtual = [](const std::string& path) { return path.rfind("/cukiln/", 0) == 0; };
  return std::all_of(present.begin(), present.end(),
                     [&](const Present& p) { return is_virtual(p.path); });
}

CacheKey cache_key_of(ByteView request_canonical, ByteView set_canonical) {
  SerialWriter out;
  out.bytes(request_canonical).bytes(set_canonical);
  return CacheKey{digest_of(out.view())};
}

}  // namespace cukiln
