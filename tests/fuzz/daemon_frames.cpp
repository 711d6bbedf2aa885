// SPDX-License-Identifier: Apache-2.0
// libFuzzer: parses frames and messages between cukilnd and its clients. Built by scripts/fuzz.
//
// The first byte gives the size of the pieces in which the rest, a stream, arrives. Rules: frames
// have a limited size; a message is decoded whole or not at all; a decoded message encodes to the
// bytes that were read.

#include <cstdint>
#include <string>

#include "addons/daemon/client/object_message.hpp"
#include "addons/daemon/protocol/daemon_frame.hpp"
#include "addons/daemon/protocol/daemon_messages.hpp"
#include "core/base/bytes.hpp"
#include "core/base/hasher.hpp"
#include "core/wire/messages.hpp"
#include "fuzz/require.hpp"

namespace {

using namespace cukiln;
using namespace cukiln::wire;
using cukiln::testing::require;

template <class Message>
void try_message(ByteView body) {
  if (const auto message = Message::decode(body)) {
    require(message->encode() == body, "a message encodes to the bytes that were decoded");
  }
}

void try_all(ByteView body) {
  try_message<DaemonHello>(body);
  try_message<ObtainTerms>(body);
  try_message<EntryKey>(body);
  try_message<BlobWanted>(body);
  try_message<CompileOrder>(body);
  try_message<StillNeeded>(body);
  try_message<EntryTerms>(body);
  try_message<Refusal>(body);
  try_message<Declined>(body);
  try_message<Progress>(body);
  try_message<DaemonSnapshot>(body);
  try_message<Answers>(body);
  static_cast<void>(open_object(SharedBytes(std::string(body))));
  const Checksum checksum = checksum_of(body);
  static_cast<void>(open_object(SharedBytes(std::string(body) + std::string(view_of(checksum)))));
  Greeting greeting;
  static_cast<void>(Greeting::decode(body, greeting));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) {
    return 0;
  }
  const std::size_t piece = data[0] + std::size_t{1};
  const ByteView stream(reinterpret_cast<const char*>(data) + 1, size - 1);
  try_all(stream);
  DaemonFrameParser parser;
  for (std::size_t at = 0; at < stream.size(); at += piece) {
    parser.feed(stream.substr(at, piece));
    for (;;) {
      DaemonFrame frame;
      const auto next = parser.next(frame);
      if (next == DaemonFrameParser::Next::malformed) {
        return 0;
      }
      if (next == DaemonFrameParser::Next::more) {
        break;
      }
      require(frame.body.size() <= kMaxDaemonBody, "a frame has a limit");
      try_all(frame.body);
    }
  }
  return 0;
}
