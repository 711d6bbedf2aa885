// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "addons/fleet/bounded_calls.hpp"
#include "addons/fleet/endpoint.hpp"
#include "addons/fleet/folder_files.hpp"
#include "core/base/result.hpp"

namespace cukiln {

namespace {

class FolderRemote final : public RemoteEndpoint {
 public:
  FolderRemote(const std::string& root, const RemoteOptions& options)
      : options_(options),
        where_("file://" + root),
        files_(std::make_shared<FolderFiles>(root, options.is_read_only, options.is_unsigned)),
        calls_(BoundedCalls::of(root)) {}

  const std::string& where() const noexcept override { return where_; }
  bool is_read_only() const noexcept override { return options_.is_read_only; }
  bool takes_unsigned() const noexcept override { return options_.is_unsigned; }
  bool has_parts() const noexcept override { return true; }

  RemoteAnswer get(const ObjectName& name, SteadyTime deadline) override {
    return bounded(deadline, [name](FolderFiles& files) { return files.get(name); });
  }
  RemoteAnswer put(const ObjectName& name, ByteView bytes, SteadyTime deadline) override {
    return bounded(deadline, [name, copy = std::string(bytes)](FolderFiles& files) {
      return files.put(name, copy);
    });
  }
  RemoteAnswer get_parts(const ObjectName& name, SteadyTime deadline) override {
    return bounded(
        deadline, [name, deadline](FolderFiles& files) { return files.get_parts(name, deadline); });
  }
  RemoteAnswer put_part(const ObjectName& name, const std::string& part, ByteView bytes,
                        SteadyTime deadline) override {
    return bounded(deadline, [name, part, copy = std::string(bytes)](FolderFiles& files) {
      return files.put_part(name, part, copy);
    });
  }
  std::optional<Result<RemoteCollection>> collect(std::int64_t max_age_s, bool dry_run) override {
    return files_->collect(max_age_s, dry_run);
  }

 private:
  /// Returns at the deadline, also if the file system does not.
  template <class Call>
  RemoteAnswer bounded(SteadyTime deadline, Call call) {
    const auto answer =
        std::make_shared<RemoteAnswer>(RemoteAnswer{RemoteStatus::busy, {}, "memory is exhausted"});
    const auto ended = calls_->run(
        [answer, files = files_, call = std::move(call)] { *answer = call(*files); }, deadline);
    switch (ended) {
      case BoundedCalls::Ended::done: return std::move(*answer);
      case BoundedCalls::Ended::late:
        return {RemoteStatus::busy, {}, "not begun: the calls before took too long"};
      case BoundedCalls::Ended::hung: break;
    }
    return {RemoteStatus::hung,
            {},
            "a call into the file system has not returned; its thread is "
            "left behind, and no other is begun before it returns"};
  }

  const RemoteOptions options_;
  const std::string where_;
  const std::shared_ptr<FolderFiles> files_;
  const std::shared_ptr<BoundedCalls> calls_;
};

}  // namespace

Result<std::unique_ptr<RemoteEndpoint>> make_folder_remote(const std::string& url,
                                                           const RemoteOptions& options) {
  std::string root = url.substr(url.find("://") + 3);
  while (root.size() > 1 && root.back() == '/') {
    root.pop_back();
  }
  if (!root.starts_with('/')) {
    return make_error(ErrorCode::invalid_argument,
                      "a folder's address is {}; expected file:///absolute/path", url);
  }
  return std::unique_ptr<RemoteEndpoint>(std::make_unique<FolderRemote>(root, options));
}

}  // namespace cukiln
