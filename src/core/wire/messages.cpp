// SPDX-License-Identifier: Apache-2.0
#include "core/wire/messages.hpp"

#include "core/wire/message_codec.hpp"

namespace cukiln::wire {

std::string Hello::encode() const { return encode_fields(*this); }
std::optional<Hello> Hello::decode(ByteView body) { return decode_fields<Hello>(body); }

std::string Probed::encode() const { return encode_fields(*this); }
std::optional<Probed> Probed::decode(ByteView body) { return decode_fields<Probed>(body); }

std::string Compile::encode() const { return encode_fields(*this); }
std::optional<Compile> Compile::decode(ByteView body) { return decode_fields<Compile>(body); }

std::string Link::encode() const { return encode_fields(*this); }
std::optional<Link> Link::decode(ByteView body) { return decode_fields<Link>(body); }

std::string Answers::encode() const { return encode_fields(*this); }
std::optional<Answers> Answers::decode(ByteView body) { return decode_fields<Answers>(body); }

std::string Compiled::encode() const { return encode_fields(*this); }
std::optional<Compiled> Compiled::decode(ByteView body) { return decode_fields<Compiled>(body); }

std::string Crashed::encode() const { return encode_fields(*this); }
std::optional<Crashed> Crashed::decode(ByteView body) { return decode_fields<Crashed>(body); }

}  // namespace cukiln::wire
