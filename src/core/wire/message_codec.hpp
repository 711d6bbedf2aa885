// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/base/bytes.hpp"
#include "core/base/serial.hpp"

namespace cukiln::wire {

// Encodes and decodes the messages of both protocols that are a sequence of fields. Such a message
// lists them in order:
//
//   template <class Self>
//   static auto fields(Self& self) { return std::tie(self.path, self.owner_line); }
//
// Integers and text are encoded as SerialWriter does, bool as a byte of 0 or 1, an enumeration as a
// byte up to `last_of(Enum)`, an array of bytes (`bytes` of a digest) raw, and a vector as a `u32`
// count with its elements. Header-only, because the compile worker uses it and links no layer.

template <class Message>
concept HasFields = requires(Message& message) { Message::fields(message); };
template <class Digest>
concept HasRawBytes = requires(Digest& digest) { digest.bytes.data(); };

template <class Field>
void put_field(SerialWriter& out, const Field& field);
template <class Element>
void put_field(SerialWriter& out, const std::vector<Element>& elements);
template <class First, class Second>
void put_field(SerialWriter& out, const std::pair<First, Second>& field);

template <class Message>
void put_fields(SerialWriter& out, const Message& message) {
  std::apply([&](const auto&... field) { (put_field(out, field), ...); }, Message::fields(message));
}

template <class Element>
void put_field(SerialWriter& out, const std::vector<Element>& elements) {
  out.u32(static_cast<std::uint32_t>(elements.size()));
  for (const Element& element : elements) {
    put_field(out, element);
  }
}

template <class First, class Second>
void put_field(SerialWriter& out, const std::pair<First, Second>& field) {
  put_field(out, field.first);
  put_field(out, field.second);
}

template <class Field>
void put_field(SerialWriter& out, const Field& field) {
  if constexpr (HasFields<const Field>) {
    put_fields(out, field);
  } else if constexpr (std::is_same_v<Field, bool>) {
    out.u8(field ? 1 : 0);
  } else if constexpr (std::is_enum_v<Field>) {
    out.u8(static_cast<std::uint8_t>(field));
  } else if constexpr (std::is_integral_v<Field>) {
    static_assert(sizeof(Field) == 1 || sizeof(Field) == 4 || sizeof(Field) == 8);
    if constexpr (sizeof(Field) == 1) {
      out.u8(field);
    } else if constexpr (sizeof(Field) == 4) {
      out.u32(static_cast<std::uint32_t>(field));
    } else {
      out.u64(static_cast<std::uint64_t>(field));
    }
  } else if constexpr (HasRawBytes<const Field>) {
    out.raw(ByteView(reinterpret_cast<const char*>(field.bytes.data()), sizeof field.bytes));
  } else {
    out.bytes(field);  // std::string, SharedBytes
  }
}

/// These return false if a field is out of its range. A message that is too short is left to
/// `whole`.
template <class Field>
bool get_field(SerialReader& in, Field& field);
template <class Element>
bool get_field(SerialReader& in, std::vector<Element>& elements);
template <class First, class Second>
bool get_field(SerialReader& in, std::pair<First, Second>& field);

template <class Message>
bool get_fields(SerialReader& in, Message& message) {
  return std::apply([&](auto&... field) { return (get_field(in, field) && ...); },
                    Message::fields(message));
}

template <class Element>
bool get_field(SerialReader& in, std::vector<Element>& elements) {
  const std::uint32_t count = in.u32();
  for (std::uint32_t i = 0; i < count && in.ok(); ++i) {
    if (!get_field(in, elements.emplace_back())) {
      return false;
    }
  }
  return true;
}

template <class First, class Second>
bool get_field(SerialReader& in, std::pair<First, Second>& field) {
  return get_field(in, field.first) && get_field(in, field.second);
}

template <class Field>
bool get_field(SerialReader& in, Field& field) {
  if constexpr (HasFields<Field>) {
    return get_fields(in, field);
  } else if constexpr (std::is_same_v<Field, bool>) {
    const std::uint8_t value = in.u8();
    field = value == 1;
    return value <= 1;
  } else if constexpr (std::is_enum_v<Field>) {
    const std::uint8_t value = in.u8();
    field = static_cast<Field>(value);
    return value <= static_cast<std::uint8_t>(last_of(field));
  } else if constexpr (std::is_integral_v<Field>) {
    if constexpr (sizeof(Field) == 1) {
      field = in.u8();
    } else if constexpr (sizeof(Field) == 4) {
      field = static_cast<Field>(in.u32());
    } else {
      field = static_cast<Field>(in.u64());
    }
    return true;
  } else if constexpr (HasRawBytes<Field>) {
    const ByteView bytes = in.raw(sizeof field.bytes);
    bytes.copy(reinterpret_cast<char*>(field.bytes.data()), bytes.size());
    return true;
  } else {
    field = Field(std::string(in.bytes()));
    return true;
  }
}

template <class Message>
std::string encode_fields(const Message& message) {
  SerialWriter out;
  put_fields(out, message);
  return out.take();
}

/// Nothing if the body is short, has bytes left over, or has a field out of its range.
template <class Message>
std::optional<Message> decode_fields(ByteView body) {
  SerialReader in(body);
  Message message;
  const bool valid = get_fields(in, message);
  return valid ? whole(in, std::move(message)) : std::nullopt;
}

}  // namespace cukiln::wire
