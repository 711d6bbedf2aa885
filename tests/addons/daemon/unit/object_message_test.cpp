// SPDX-License-Identifier: Apache-2.0
#include "addons/daemon/client/object_message.hpp"

#include <doctest/doctest.h>

#include "addons/daemon/protocol/sealed_file.hpp"
#include "core/base/hasher.hpp"
#include "core/base/serial.hpp"
#include "core/store/blob_name.hpp"
#include "support/store_entries.hpp"

using namespace cukiln;
using cukiln::testing::make_entry;
using cukiln::testing::same_content;

namespace {

const StoreBlob kBlob{"triton", "key", SharedBytes(std::string(5000, 'b'))};

wire::DaemonFrame frame_of(const Object& object) {
  wire::DaemonFrame frame;
  auto sealed = seal_object(object);
  REQUIRE(sealed);
  frame.attachment = *std::move(sealed);
  return frame;
}
/// The attachment as it is sent.
std::string bytes_of(const Object& object) {
  const auto bytes = wire::map_sealed_file(frame_of(object).attachment.get(), 1 << 20);
  REQUIRE(bytes);
  return std::string(bytes->view());
}
std::string with_checksum(const std::string& body) {
  return body + std::string(view_of(checksum_of(body)));
}
bool opens(const std::string& attachment) {
  return open_object(SharedBytes(attachment)).has_value();
}

}  // namespace

TEST_CASE("an entry and a blob round-trip, and their bytes are not copied") {
  StoreEntry entry = make_entry(1);
  entry.origin = Origin::remote;
  entry.signer = "ci";
  const auto read = entry_of(frame_of(encode(entry)));
  REQUIRE(read);
  CHECK(same_content(*read, entry));
  CHECK(read->compile_us == entry.compile_us);
  CHECK(read->cubin.ptx.empty());
  wire::DaemonFrame with_ptx;
  with_ptx.attachment = *seal_object(encode(entry), "its PTX");
  CHECK(entry_of(with_ptx)->cubin.ptx.view() == "its PTX");
  const auto blob = blob_of(frame_of(encode(kBlob)));
  REQUIRE(blob);
  CHECK(blob->kind == "triton");
  CHECK(blob->key == "key");
  CHECK(blob->bytes.view() == kBlob.bytes.view());
  const SharedBytes attachment(bytes_of(encode(kBlob)));
  const auto opened = open_object(attachment);
  REQUIRE(opened);
  CHECK(opened->data.data() + opened->data.size() + sizeof(Checksum) ==
        attachment.data() + attachment.size());
}

TEST_CASE("an object that is not what its name says, or of the other kind, is refused") {
  Object entry = encode(make_entry(1));
  CHECK_FALSE(blob_of(frame_of(entry)));
  entry.name = encode(make_entry(2)).name;
  CHECK_FALSE(entry_of(frame_of(entry)));
  Object blob = encode(kBlob);
  CHECK_FALSE(entry_of(frame_of(blob)));
  blob.summary = "another key";
  CHECK_FALSE(blob_of(frame_of(blob)));
  CHECK_FALSE(blob_of({}));
}

TEST_CASE("fault 62: an object that is short, or has a field out of its range, is refused") {
  for (const Object& object : {encode(make_entry(1)), encode(kBlob)}) {
    const std::string all = bytes_of(object);
    const std::string body = all.substr(0, all.size() - sizeof(Checksum));
    CHECK(with_checksum(body) == all);
    const std::size_t head = body.size() - object.data.size();
    for (std::size_t size = 0; size < head; ++size) {
      CHECK_FALSE(opens(with_checksum(body.substr(0, size))));
      CHECK_FALSE(opens(body.substr(0, size)));
    }
    CHECK(opens(with_checksum(body.substr(0, head))));
  }
  Object object = encode(kBlob);
  object.origin = static_cast<Origin>(3);
  CHECK_FALSE(opens(bytes_of(object)));
}

// fault 91
TEST_CASE("a flipped bit anywhere in an object is noticed, and so is an extra byte") {
  const std::string bytes = bytes_of(encode(kBlob));
  REQUIRE(opens(bytes));
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    std::string wrong = bytes;
    wrong[at] = static_cast<char>(wrong[at] ^ 1 << at % 8);
    CHECK_FALSE(opens(wrong));
  }
  CHECK_FALSE(opens(bytes + '\0'));
}
