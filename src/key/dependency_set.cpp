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

void put_paths(SerialWriter& out, const std::vector<std::string>& paths) {
  out.u32(static_cast<std::uint32_t>(paths.size()));
  for (const std::string& path : paths) {
    out.bytes(path);
  }
}

std::vector<std::string> get_paths(SerialReader& in) {
  std::vector<std::string> paths;
  const std::uint32_t count = in.u32();
  for (std::uint32_t i = 0; i < count && in.ok(); ++i) {
    paths.emplace_back(in.bytes());
  }
  return paths;
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
  put_paths(out, folders);
  put_paths(out, absent);
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
  set.folders = get_paths(in);
  set.absent = get_paths(in);
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
