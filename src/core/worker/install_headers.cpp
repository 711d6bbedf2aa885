// SPDX-License-Identifier: Apache-2.0
#include "core/worker/install_headers.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include "core/compile/nvrtc_api.hpp"
#include "core/wire/messages.hpp"

namespace cukiln::worker {

int install_headers(const char* library, const char* builtins, const char* folder) {
  ::umask(022);
  NvrtcApi api;
  std::string reply = api.open(library, builtins);
  if (reply.empty() && api.install_bundled_headers == nullptr) {
    reply = "this NVRTC has no nvrtcInstallBundledHeaders";
  }
  if (reply.empty()) {
    const char* why = nullptr;
    const int code = api.install_bundled_headers(folder, 0, &why);
    reply = code == 0 ? kHeadersInstalled : why != nullptr ? why : api.error_string(code);
  }
  const bool sent = ::write(wire::kWorkerSocket, reply.data(), reply.size()) ==
                    static_cast<ssize_t>(reply.size());
  return sent && reply == kHeadersInstalled ? 0 : 1;
}

}  // namespace cukiln::worker
