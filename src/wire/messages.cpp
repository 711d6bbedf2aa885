// SPDX-License-Identifier: Apache-2.0
#include "wire/messages.hpp"

#include <utility>

#include "base/serial.hpp"

namespace cukiln::wire {

std::string Hello::encode() const {
  SerialWriter out;
  out.u32(protocol).u32(nvrtc_major).u32(nvrtc_minor).bytes(error);
  out.u32(landlock).u8(filters_calls ? 1 : 0);
  return out.take();
}

std::optional<Hello> Hello::decode(ByteView body) {
  SerialReader in(body);
  Hello message;
  message.protocol = in.u32();
  message.nvrtc_major = in.u32();
  message.nvrtc_minor = in.u32();
  message.error = in.bytes();
  message.landlock = in.u32();
  message.filters_calls = in.u8() != 0;
  return whole(in, std::move(message));
}

std::string Probed::encode() const {
  SerialWriter out;
  out.bytes(version).u8(observed ? 1 : 0).bytes(error);
  return out.take();
}

std::optional<Probed> Probed::decode(ByteView body) {
  SerialReader in(body);
  Probed message;
  message.version = in.bytes();
  message.observed = in.u8() != 0;
  message.error = in.bytes();
  return whole(in, std::move(message));
}

std::string Lock::encode() const {
  SerialWriter out;
  out.bytes(path).bytes(owner_line);
  return out.take();
}

std::optional<Lock> Lock::decode(ByteView body) {
  SerialReader in(body);
  Lock message;
  message.path = in.bytes();
  message.owner_line = in.bytes();
  return whole(in, std::move(message));
}

std::string Locked::encode() const {
  SerialWriter out;
  out.bytes(error);
  return out.take();
}

std::optional<Locked> Locked::decode(ByteView body) {
  SerialReader in(body);
  Locked message;
  message.error = in.bytes();
  return whole(in, std::move(message));
}

std::string Busy::encode() const {
  SerialWriter out;
  out.bytes(owner_line);
  return out.take();
}

std::optional<Busy> Busy::decode(ByteView body) {
  SerialReader in(body);
  Busy message;
  message.owner_line = in.bytes();
  return whole(in, std::move(message));
}

std::string Compile::encode() const {
  SerialWriter out;
  out.bytes(unit_path).bytes(unit_text);
  out.strings(arguments).strings(name_expressions).u8(real_clock ? 1 : 0);
  return out.take();
}

std::optional<Compile> Compile::decode(ByteView body) {
  SerialReader in(body);
  Compile message;
  message.unit_path = in.bytes();
  message.unit_text = in.bytes();
  message.arguments = in.strings();
  message.name_expressions = in.strings();
  message.real_clock = in.u8() != 0;
  return whole(in, std::move(message));
}

std::string Answers::encode() const {
  SerialWriter out;
  out.u32(static_cast<std::uint32_t>(answers.size()));
  for (const auto& [path, kind, file, absent_folder, bytes] : answers) {
    out.bytes(path).u8(static_cast<std::uint8_t>(kind)).u32(file);
    out.bytes(absent_folder).bytes(bytes);
  }
  return out.take();
}

std::optional<Answers> Answers::decode(ByteView body) {
  SerialReader in(body);
  Answers message;
  const std::uint32_t count = in.u32();
  for (std::uint32_t i = 0; i < count && in.ok(); ++i) {
    Answer answer;
    answer.path = in.bytes();
    const std::uint8_t kind = in.u8();
    if (kind > static_cast<std::uint8_t>(FileKind::error)) {
      return std::nullopt;
    }
    answer.kind = static_cast<FileKind>(kind);
    answer.file = in.u32();
    answer.absent_folder = in.bytes();
    answer.bytes = SharedBytes(std::string(in.bytes()));
    message.answers.push_back(std::move(answer));
  }
  return whole(in, std::move(message));
}

std::string Compiled::encode() const {
  SerialWriter out;
  out.u8(static_cast<std::uint8_t>(status)).u32(static_cast<std::uint32_t>(nvrtc_code));
  out.bytes(nvrtc_text).u64(static_cast<std::uint64_t>(compile_us));
  out.u8(uses_time ? 1 : 0).bytes(log).bytes(image);
  out.strings(lowered).strings(looked_at);
  return out.take();
}

std::optional<Compiled> Compiled::decode(ByteView body) {
  SerialReader in(body);
  Compiled message;
  const std::uint8_t status = in.u8();
  if (status > static_cast<std::uint8_t>(CompileStatus::unusable)) {
    return std::nullopt;
  }
  message.status = static_cast<CompileStatus>(status);
  message.nvrtc_code = static_cast<std::int32_t>(in.u32());
  message.nvrtc_text = in.bytes();
  message.compile_us = static_cast<std::int64_t>(in.u64());
  message.uses_time = in.u8() != 0;
  message.log = in.bytes();
  message.image = in.bytes();
  message.lowered = in.strings();
  message.looked_at = in.strings();
  return whole(in, std::move(message));
}

std::string Crashed::encode() const {
  SerialWriter out;
  out.u32(signal).u8(out_of_memory).u8(stack_overflow);
  return out.take();
}

std::optional<Crashed> Crashed::decode(ByteView body) {
  SerialReader in(body);
  Crashed message;
  message.signal = in.u32();
  message.out_of_memory = in.u8();
  message.stack_overflow = in.u8();
  return whole(in, message);
}

}  // namespace cukiln::wire
