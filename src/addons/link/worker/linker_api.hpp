// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "core/base/bytes.hpp"
#include "core/wire/messages.hpp"

namespace cukiln {

/// nvJitLink's C interface, opened at run time. Needs nothing but libc, because the compile worker
/// uses it too. Never closed, as NvrtcApi.
struct LinkerApi {
  using Handle = struct NvJitLink*;
  int (*version)(unsigned*, unsigned*) = nullptr;
  int (*create)(Handle*, std::uint32_t, const char**) = nullptr;
  int (*destroy)(Handle*) = nullptr;
  int (*add_data)(Handle, int, const void*, std::size_t, const char*) = nullptr;
  int (*add_file)(Handle, int, const char*) = nullptr;
  int (*complete)(Handle) = nullptr;
  int (*cubin_size)(Handle, std::size_t*) = nullptr;
  int (*cubin)(Handle, void*) = nullptr;
  int (*error_log_size)(Handle, std::size_t*) = nullptr;
  int (*error_log)(Handle, char*) = nullptr;
  int (*info_log_size)(Handle, std::size_t*) = nullptr;
  int (*info_log)(Handle, char*) = nullptr;

  /// Opens the library. Returns an error, or an empty string.
  std::string open(const std::string& library);
};

/// The values of nvJitLinkInputType.
enum class LinkInputType : int {
  cubin = 1,
  ptx = 2,
  lto_ir = 3,
  fatbin = 4,
  object = 5,
  library = 6,
  any = 10  ///< nvJitLink decides
};

/// Returns what an image is, by its first bytes; `any` if they do not tell.
LinkInputType link_input_type(ByteView image) noexcept;

/// Returns what a result of nvJitLink means, `an option is unknown to it`.
const char* linker_error_text(int code) noexcept;

/// What a library wrote to stderr while it linked.
class StderrCapture {
 public:
  StderrCapture();
  /// The text since the constructor; empty if stderr cannot be read.
  std::string text() const;
};

/// Links one module to a cubin. nvJitLink reports some errors on stderr only, a symbol that two
/// parts define among them, and returns success: such a link has failed too.
wire::Compiled link_with(const LinkerApi& api, const wire::Link& job);

}  // namespace cukiln
