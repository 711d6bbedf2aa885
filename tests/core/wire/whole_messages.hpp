// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <string>

#include "core/base/bytes.hpp"

namespace cukiln::testing {

/// Every shorter body, and every longer one, must be refused.
template <class Message>
void check_only_whole(const Message& message) {
  const std::string body = message.encode();
  for (std::size_t size = 0; size < body.size(); ++size) {
    CHECK_FALSE(Message::decode(ByteView(body).substr(0, size)).has_value());
  }
  CHECK_FALSE(Message::decode(body + "x").has_value());
  CHECK(Message::decode(body).has_value());
}

}  // namespace cukiln::testing
