// SPDX-License-Identifier: Apache-2.0
#include "wire/signing_messages.hpp"

#include <memory>
#include <utility>

#include "base/serial.hpp"
#include "wire/message_codec.hpp"
#include "wire/sealed_file.hpp"

namespace cukiln::wire {

namespace {

constexpr std::size_t kMaxVerdictText = 1024;

SharedBytes part_of(const SharedBytes& whole, ByteView part) {
  return {std::make_shared<SharedBytes>(whole), part};
}

}  // namespace

Result<UniqueFd> SigningOffer::seal() const {
  SerialWriter out;
  out.bytes(order.encode()).u32(static_cast<std::uint32_t>(files.size()));
  for (const SharedBytes& file : files) {
    out.bytes(file);
  }
  return make_sealed_file({out.view(), entry.view()});
}

std::optional<SigningOffer> SigningOffer::decode(const SharedBytes& attachment) {
  SerialReader in(attachment);
  auto order = CompileOrder::decode(in.bytes());
  if (!order) {
    return std::nullopt;
  }
  SigningOffer offer;
  offer.order = *std::move(order);
  const std::uint32_t count = in.u32();
  for (std::uint32_t i = 0; i < count && in.ok(); ++i) {
    offer.files.push_back(part_of(attachment, in.bytes()));
  }
  offer.entry = part_of(attachment, in.raw(in.remaining()));
  return in.ok() ? std::optional(std::move(offer)) : std::nullopt;
}

const char* name_of(SigningRefusal refusal) noexcept {
  switch (refusal) {
    case SigningRefusal::none: return "none";
    case SigningRefusal::malformed: return "malformed";
    case SigningRefusal::altered: return "altered";
    case SigningRefusal::signed_before: return "signed_before";
    case SigningRefusal::not_portable: return "not_portable";
    case SigningRefusal::arguments: return "arguments";
    case SigningRefusal::scope: return "scope";
    case SigningRefusal::expired: return "expired";
    case SigningRefusal::rate: return "rate";
    case SigningRefusal::compiler: return "compiler";
    case SigningRefusal::not_compiled: return "not_compiled";
    case SigningRefusal::differs: return "differs";
  }
  return "unknown";
}

std::string SigningVerdict::encode() const {
  SigningVerdict bounded = *this;
  if (bounded.text.size() > kMaxVerdictText) {
    bounded.text.resize(kMaxVerdictText);
  }
  return encode_fields(bounded);
}

std::optional<SigningVerdict> SigningVerdict::decode(ByteView datagram) {
  auto verdict = decode_fields<SigningVerdict>(datagram);
  return verdict && verdict->text.size() <= kMaxVerdictText ? std::move(verdict) : std::nullopt;
}

}  // namespace cukiln::wire
