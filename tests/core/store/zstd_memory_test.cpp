// SPDX-License-Identifier: Apache-2.0
// zstd without memory for its context. The function below takes the place of zstd's own.
#include <dlfcn.h>
#include <doctest/doctest.h>
#include <zstd.h>

#include <new>
#include <string>

#include "core/store/source_text.hpp"

namespace {
bool has_memory = true;
}  // namespace

extern "C" ZSTD_CCtx* ZSTD_createCCtx() {
  using Create = ZSTD_CCtx* (*)();
  static const auto create = reinterpret_cast<Create>(::dlsym(RTLD_NEXT, "ZSTD_createCCtx"));
  return has_memory ? create() : nullptr;
}

// fault 90
TEST_CASE("a text for which there is no memory to compress it is an error as of any allocation") {
  has_memory = false;
  CHECK_THROWS_AS(cukiln::compress("text"), std::bad_alloc);
  has_memory = true;
  CHECK_FALSE(cukiln::compress("text").empty());
}
