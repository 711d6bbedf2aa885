// SPDX-License-Identifier: Apache-2.0
#include "addons/daemon/protocol/daemon_messages.hpp"

#include <algorithm>
#include <set>

#include "core/base/hasher.hpp"
#include "core/base/serial.hpp"
#include "core/wire/message_codec.hpp"

namespace cukiln::wire {

namespace {

constexpr std::size_t kMaxProgramBytes = 64;
constexpr std::uint32_t kMaxTimeoutMs = 24u * 3600 * 1000;
constexpr std::uint32_t kMaxSources = 1024;
constexpr int kMaxCapability = 9999;
constexpr auto kLastError = static_cast<std::uint32_t>(ErrorCode::internal);

/// Reads a bool, encoded as 0 or 1. Any other value makes the message invalid.
bool flag(SerialReader& in, bool& valid) noexcept {
  const std::uint8_t value = in.u8();
  valid = valid && value <= 1;
  return value == 1;
}

template <class Digest>
Digest digest(SerialReader& in) noexcept {
  return digest_from<Digest>(in.raw(sizeof(Digest::bytes)));
}

// Longer labels are cut: a daemon keeps and shows what its clients send.
constexpr std::size_t kMaxLabelBytes = 1 << 10;
constexpr std::size_t kMaxFlagsBytes = 16 << 10;

template <class Labels, class Use>
void for_each_label(Labels& labels, const Use& use) {
  auto& [name, source, target, flags, compiler] = labels;
  use(name, kMaxLabelBytes);
  use(source, kMaxLabelBytes);
  use(target, kMaxLabelBytes);
  use(flags, kMaxFlagsBytes);
  use(compiler, kMaxLabelBytes);
}

void put_labels(SerialWriter& out, const EntryLabels& labels) {
  for_each_label(labels, [&](const std::string& label, std::size_t max_bytes) {
    out.bytes(ByteView(label).substr(0, max_bytes));
  });
}

EntryLabels get_labels(SerialReader& in) {
  EntryLabels labels;
  for_each_label(labels, [&](std::string& label, std::size_t max_bytes) {
    label = in.bytes().substr(0, max_bytes);
  });
  return labels;
}

}  // namespace

std::string DaemonHello::encode() const {
  SerialWriter out;
  out.u32(version).u32(process).bytes(ByteView(program).substr(0, kMaxProgramBytes));
  return out.take();
}

std::optional<DaemonHello> DaemonHello::decode(ByteView body) {
  SerialReader in(body);
  DaemonHello message;
  const std::uint32_t version = in.u32();
  message.version = static_cast<std::uint16_t>(version);
  message.process = in.u32();
  message.program = in.bytes();
  if (version > 0xffff || message.program.size() > kMaxProgramBytes) {
    return std::nullopt;
  }
  return whole(in, std::move(message));
}

std::string ObtainTerms::encode() const { return encode_fields(*this); }

std::optional<ObtainTerms> ObtainTerms::decode(ByteView body) {
  auto terms = decode_fields<ObtainTerms>(body);
  return terms && terms->timeout_ms <= kMaxTimeoutMs ? std::move(terms) : std::nullopt;
}

std::string EntryKey::encode() const { return encode_fields(*this); }

std::optional<EntryKey> EntryKey::decode(ByteView body) { return decode_fields<EntryKey>(body); }

std::string BlobWanted::encode() const { return encode_fields(*this); }

std::optional<BlobWanted> BlobWanted::decode(ByteView body) {
  return decode_fields<BlobWanted>(body);
}

namespace {

/// In the place of a program's kind, for a module.
constexpr std::uint8_t kNoProgram = 0xff;

void put_texts(SerialWriter& out, const std::vector<VirtualSource>& texts) {
  out.u32(static_cast<std::uint32_t>(texts.size()));
  for (const VirtualSource& text : texts) {
    out.bytes(text.path).bytes(text.text);
  }
}

/// Reads `count` texts. False if one is too large.
bool get_texts(SerialReader& in, std::uint32_t count, std::vector<VirtualSource>& texts) {
  for (std::uint32_t i = 0; i < count && in.ok(); ++i) {
    std::string path(in.bytes());
    const ByteView text = in.bytes();
    if (text.size() > kMaxSourceBytes) {
      return false;
    }
    texts.emplace_back(std::move(path), SharedBytes(std::string(text)));
  }
  return true;
}

}  // namespace

std::string CompileOrder::encode() const {
  // A request that links is not ordered: DaemonCompiler orders its parts.
  const auto& [sources, options, target_machine, toolchain, program, texts, link] = request;
  static_cast<void>(link);
  SerialWriter out;
  put_texts(out, sources);
  out.strings(options.arguments).strings(options.name_expressions);
  out.u32(static_cast<std::uint32_t>(target_machine.capability));
  out.u8(static_cast<std::uint8_t>(target_machine.suffix));
  out.bytes(toolchain.version).raw(view_of(toolchain.content));
  put_labels(out, labels);
  out.bytes(library).bytes(builtins).strings(headers);
  const auto& [output, working_folder] = program.value_or(NvrtcProgram());
  out.u8(program ? static_cast<std::uint8_t>(output) : kNoProgram).bytes(working_folder);
  put_texts(out, texts);
  return out.take();
}

std::optional<CompileOrder> CompileOrder::decode(ByteView body) {
  SerialReader in(body);
  CompileOrder order;
  const std::uint32_t count = in.u32();
  if (count == 0 || count > kMaxSources || !get_texts(in, count, order.request.sources)) {
    return std::nullopt;
  }
  order.request.options.arguments = in.strings();
  order.request.options.name_expressions = in.strings();
  const std::uint32_t capability = in.u32();
  const std::uint8_t suffix = in.u8();
  if (capability > kMaxCapability || (suffix != 0 && suffix != 'a' && suffix != 'f')) {
    return std::nullopt;
  }
  order.request.target = {static_cast<int>(capability), static_cast<char>(suffix)};
  order.request.toolchain.version = in.bytes();
  order.request.toolchain.content = digest<ContentHash>(in);
  order.labels = get_labels(in);
  order.library = in.bytes();
  order.builtins = in.bytes();
  order.headers = in.strings();
  const std::uint8_t kind = in.u8();
  const ByteView working_folder = in.bytes();
  if (kind <= static_cast<std::uint8_t>(last_of(OutputKind{}))) {
    order.request.program = {static_cast<OutputKind>(kind), std::string(working_folder)};
  } else if (kind != kNoProgram || !working_folder.empty()) {
    return std::nullopt;
  }
  if (!get_texts(in, in.u32(), order.request.headers)) {
    return std::nullopt;
  }
  return whole(in, std::move(order));
}

std::string StillNeeded::encode() const { return encode_fields(*this); }

std::optional<StillNeeded> StillNeeded::decode(ByteView body) {
  return decode_fields<StillNeeded>(body);
}

std::string EntryTerms::encode() const {
  SerialWriter out;
  for (const bool value : {caused, stored, uses_time, observed}) {
    out.u8(value ? 1 : 0);
  }
  const Checksum check = checksum_of(out.view());
  return out.raw(view_of(check)).take();
}

std::optional<EntryTerms> EntryTerms::decode(ByteView body) {
  SerialReader in(body);
  EntryTerms terms;
  bool valid = true;
  terms.caused = flag(in, valid);
  terms.stored = flag(in, valid);
  terms.uses_time = flag(in, valid);
  terms.observed = flag(in, valid);
  const Checksum check = checksum_of(body.substr(0, body.size() - in.remaining()));
  valid = valid && in.raw(sizeof(Checksum)) == view_of(check);
  return valid ? whole(in, terms) : std::nullopt;
}

std::string Refusal::encode() const {
  SerialWriter out;
  out.u32(static_cast<std::uint32_t>(code)).bytes(message).bytes(log).bytes(set_canonical);
  return out.take();
}

std::optional<Refusal> Refusal::decode(ByteView body) {
  SerialReader in(body);
  Refusal refusal;
  const std::uint32_t code = in.u32();
  if (code == 0 || code > kLastError) {
    return std::nullopt;
  }
  refusal.code = static_cast<ErrorCode>(code);
  refusal.message = in.bytes();
  refusal.log = in.bytes();
  refusal.set_canonical = in.bytes();
  return whole(in, std::move(refusal));
}

std::string Declined::encode() const { return encode_fields(*this); }

std::optional<Declined> Declined::decode(ByteView body) { return decode_fields<Declined>(body); }

std::string Progress::encode() const { return encode_fields(*this); }

std::optional<Progress> Progress::decode(ByteView body) { return decode_fields<Progress>(body); }

std::string ClientReport::encode() const {
  SerialWriter out;
  out.u32(static_cast<std::uint32_t>(std::min(numbers.size(), kMaxNumbers)));
  for (std::size_t i = 0; i < std::min(numbers.size(), kMaxNumbers); ++i) {
    out.bytes(numbers[i].first).u64(std::min(numbers[i].second, kMaxNumber));
  }
  return out.take();
}

std::optional<ClientReport> ClientReport::decode(ByteView body) {
  SerialReader in(body);
  ClientReport report;
  const std::uint32_t count = in.u32();
  if (count > kMaxNumbers) {
    return std::nullopt;
  }
  std::set<std::string> names;
  for (std::uint32_t i = 0; i < count && in.ok(); ++i) {
    std::string name(in.bytes());
    const std::uint64_t number = in.u64();
    if (name.size() > kMaxProgramBytes || number > kMaxNumber || !names.insert(name).second) {
      return std::nullopt;
    }
    report.numbers.emplace_back(std::move(name), number);
  }
  return whole(in, std::move(report));
}

std::uint64_t DaemonSnapshot::counter(std::string_view name) const noexcept {
  const auto at = std::find_if(counters.begin(), counters.end(),
                               [&](const auto& counter) { return counter.first == name; });
  return at != counters.end() ? at->second : 0;
}

std::string DaemonSnapshot::encode() const { return encode_fields(*this); }

std::optional<DaemonSnapshot> DaemonSnapshot::decode(ByteView body) {
  return decode_fields<DaemonSnapshot>(body);
}

}  // namespace cukiln::wire
