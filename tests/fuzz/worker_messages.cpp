// SPDX-License-Identifier: Apache-2.0
// libFuzzer: decodes messages between a compile worker and its owner. Built by scripts/fuzz.
//
// The first byte selects the message, or a stream of frames. A worker runs NVRTC on untrusted
// sources, so its owner cannot trust its messages. Rules: a message is decoded whole or not at all;
// a decoded message encodes to an equivalent one of the same size.

#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <string>

#include "core/base/bytes.hpp"
#include "core/base/file.hpp"
#include "core/wire/frame.hpp"
#include "core/wire/messages.hpp"
#include "fuzz/require.hpp"

namespace {

using namespace cukiln;
using namespace cukiln::wire;
using cukiln::testing::require;

/// Compares encodings and not bytes, because any byte but zero decodes to a flag that is set.
template <class Message>
void try_message(ByteView body) {
  if (const auto message = Message::decode(body)) {
    const std::string encoded = message->encode();
    require(encoded.size() == body.size(), "a message is read to its end");
    const auto again = Message::decode(encoded);
    require(again && again->encode() == encoded, "an encoding decodes to itself");
  }
}

void try_stream(ByteView stream) {
  int ends[2];
  require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0, "socketpair works");
  const UniqueFd sender(ends[0]);
  const UniqueFd receiver(ends[1]);
  // Less than a socket holds, so that nothing waits.
  require(::send(sender.get(), stream.data(), stream.size(), MSG_DONTWAIT | MSG_NOSIGNAL) ==
              static_cast<ssize_t>(stream.size()),
          "a socket takes a small stream");
  ::shutdown(sender.get(), SHUT_WR);
  FrameSocket socket(receiver.get());
  std::size_t taken = 0;
  for (;;) {
    Frame frame;
    const IoStatus status = socket.receive(frame);
    if (status != IoStatus::ok) {
      require(status == IoStatus::closed || status == IoStatus::malformed, "a stream ends");
      return;
    }
    taken += kHeaderBytes + frame.body.size();
    require(taken <= stream.size(), "no more is taken than came");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) {
    return 0;
  }
  const ByteView body(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 12) {
    case 0: try_message<Hello>(body); break;
    case 1: try_message<Probed>(body); break;
    case 5: try_message<Compile>(body); break;
    case 6: try_message<Answers>(body); break;
    case 7: try_message<Compiled>(body); break;
    case 8: try_message<Crashed>(body); break;
    case 11: try_message<Link>(body); break;
    default: try_stream(body); break;
  }
  return 0;
}
