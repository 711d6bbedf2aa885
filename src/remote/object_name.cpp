#include "remote/object_name.hpp"

#include <sodium.h>

#include "base/serial.hpp"

namespace cukiln {

std::string Blake2b256::hex() const {
  std::string text(bytes.size() * 2 + 1, '\0');
  ::sodium_bin2hex(text.data(), text.size(), bytes.data(), bytes.size());
  text.pop_back();
  return text;
}

Blake2b256 blake2b_of(ByteView bytes) noexcept {
  Blake2b256 out;
  ::crypto_generichash(out.bytes.data(), out.bytes.size(),
                       reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), nullptr,
                       0);
  return out;
}

ObjectName ObjectName::of_sets(ByteView request_canonical) {
  return {blake2b_of(SerialWriter().raw("sets").raw(request_canonical).view())};
}

ObjectName ObjectName::of_entry(ByteView request_canonical, ByteView set_canonical) {
  return {blake2b_of(SerialWriter().bytes(request_canonical).bytes(set_canonical).view())};
}

}  // namespace cukiln
