// SPDX-License-Identifier: Apache-2.0
#include "addons/daemon/client/object_message.hpp"

#include <algorithm>
#include <memory>
#include <utility>

#include "addons/daemon/protocol/sealed_file.hpp"
#include "core/base/hasher.hpp"
#include "core/base/serial.hpp"

namespace cukiln {

namespace {

template <class Content, class Decode>
std::optional<Content> decoded(const wire::DaemonFrame& frame, const Decode& decode,
                               std::string* ptx = nullptr) {
  const auto bytes = wire::map_sealed_file(frame.attachment.get(), wire::kMaxAttachmentBytes);
  auto object = bytes ? open_object(*bytes, ptx) : std::nullopt;
  if (!object) {
    return std::nullopt;
  }
  auto content = decode(*std::move(object));
  return content ? std::optional<Content>(*std::move(content)) : std::nullopt;
}

}  // namespace

Result<UniqueFd> seal_object(const Object& object, ByteView ptx) {
  SerialWriter head;
  head.raw(view_of(object.name)).bytes(object.kind).bytes(object.request).bytes(object.summary);
  head.bytes(object.details).bytes(object.signer).u8(static_cast<std::uint8_t>(object.origin));
  head.u64(static_cast<std::uint64_t>(object.created_s)).bytes(ptx);
  SerialWriter out;
  out.bytes(head.view());
  const Checksum checksum = Checksummer().add(out.view()).add(object.data.view()).finish();
  return wire::make_sealed_file({out.view(), object.data.view(), view_of(checksum)});
}

std::optional<Object> open_object(const SharedBytes& attachment, std::string* ptx) {
  const ByteView all = attachment.view();
  const ByteView body = all.substr(0, all.size() - std::min(all.size(), sizeof(Checksum)));
  SerialReader outer(body);
  SerialReader in(outer.bytes());
  Object object;
  object.name = digest_from<ObjectName>(in.raw(sizeof object.name.bytes));
  for (std::string* const field :
       {&object.kind, &object.request, &object.summary, &object.details, &object.signer}) {
    *field = in.bytes();
  }
  const std::uint8_t origin = in.u8();
  object.origin = static_cast<Origin>(origin);
  object.created_s = static_cast<std::int64_t>(in.u64());
  const ByteView with_it = in.bytes();
  if (!outer.ok() || !in.ok() || !in.at_end() ||
      origin > static_cast<std::uint8_t>(Origin::remote) ||
      checksum_of(body) != digest_from<Checksum>(all.substr(body.size()))) {
    return std::nullopt;
  }
  if (ptx != nullptr) {
    *ptx = with_it;
  }
  object.data =
      SharedBytes(std::make_shared<SharedBytes>(attachment), outer.raw(outer.remaining()));
  return object;
}

std::optional<StoreEntry> entry_of(const wire::DaemonFrame& frame) {
  std::string ptx;
  auto entry = decoded<StoreEntry>(
      frame, [](Object object) { return decode_entry(std::move(object)); }, &ptx);
  if (entry) {
    entry->cubin.ptx = SharedBytes(std::move(ptx));
  }
  return entry;
}

std::optional<StoreBlob> blob_of(const wire::DaemonFrame& frame) {
  return decoded<StoreBlob>(frame, decode_blob);
}

}  // namespace cukiln
