// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "base/bytes.hpp"
#include "base/file.hpp"
#include "wire/daemon_messages.hpp"

#include <cukiln/result.hpp>

namespace cukiln::wire {

// The messages between cukilnd and its signer (cache/WIRE.md, "The signer"), each one datagram of a
// SOCK_SEQPACKET socket. `decode` returns nothing for a message that is not whole.

/// The datagram that carries an offer, with the offer as a sealed file.
inline constexpr ByteView kSigningDatagram = "CKS1";
/// The limit for an offer: sources, files and the entry together.
inline constexpr std::uint64_t kMaxOfferBytes = 256ull << 20;

/// A result that a daemon has compiled, with everything that the signer needs to compile it again.
struct SigningOffer {
  CompileOrder order;              ///< the request with its sources; the signer ignores its paths
  std::vector<SharedBytes> files;  ///< the content of each file in the entry's dependency set
  SharedBytes entry;               ///< an EntryBody

  /// Errors: io.
  Result<UniqueFd> seal() const;
  /// Decodes an offer whose files and entry refer to `attachment`.
  static std::optional<SigningOffer> decode(const SharedBytes& attachment);
};

/// Why a signer does not sign an offer. The names are part of the audit log.
enum class SigningRefusal : std::uint8_t {
  none,           ///< it signs
  malformed,      ///< not a sealed file, too large, or not an offer
  altered,        ///< entry, request and key do not belong together
  signed_before,  ///< the entry came from a bundle or a remote store
  not_portable,   ///< the compile read a file of the machine by its path
  arguments,      ///< an argument that the library does not give NVRTC
  scope,          ///< the key may not sign the module
  expired,        ///< the key has expired
  rate,           ///< more entries or bytes than are signed in a minute
  compiler,       ///< the signer's NVRTC is another one
  not_compiled,   ///< the signer's own compile failed
  differs,        ///< the signer's own compile gave another result
};
constexpr SigningRefusal last_of(SigningRefusal /*type*/) noexcept {
  return SigningRefusal::differs;
}
const char* name_of(SigningRefusal refusal) noexcept;

/// The signer's answer to an offer.
struct SigningVerdict {
  SigningRefusal refusal = SigningRefusal::none;
  std::string text;  ///< why, for people; empty if it signs

  template <class Self>
  static auto fields(Self& self) {
    return std::tie(self.refusal, self.text);
  }

  std::string encode() const;
  static std::optional<SigningVerdict> decode(ByteView datagram);
};
inline constexpr std::size_t kMaxVerdictBytes = 4096;

}  // namespace cukiln::wire
