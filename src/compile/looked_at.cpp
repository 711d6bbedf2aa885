#include "compile/looked_at.hpp"

#include <utility>

namespace cukiln {

bool has_time_macro(ByteView text) noexcept {
  return text.find("__TIME__") != ByteView::npos || text.find("__DATE__") != ByteView::npos ||
         text.find("__TIMESTAMP__") != ByteView::npos;
}

LookedAt::LookedAt(const CompileRequest& request, const VirtualSource& unit) {
  for (const VirtualSource& source : request.sources) {
    sources_[source.path] = source.text;
    uses_time_ = uses_time_ || has_time_macro(source.text);
  }
  sources_[unit.path] = unit.text;
}

const SharedBytes* LookedAt::source(const std::string& path) const {
  const auto at = sources_.find(path);
  return at != sources_.end() ? &at->second : nullptr;
}

void LookedAt::add_file(const std::string& path, const Digest128& digest, bool has_time) {
  dependencies_.present.push_back({path, digest});
  uses_time_ = uses_time_ || has_time;
}

void LookedAt::add_unreadable(const std::string& sentence) {
  if (refused_.empty()) {
    refused_ = sentence;
  }
}

DependencySet LookedAt::take(const std::vector<std::string>& inferred_absent) {
  dependencies_.absent.insert(dependencies_.absent.end(), inferred_absent.begin(),
                              inferred_absent.end());
  dependencies_.sort();
  return std::move(dependencies_);
}

}  // namespace cukiln
