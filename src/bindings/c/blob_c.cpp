// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <string_view>
#include <variant>

#include "bindings/c/convert.hpp"
#include "bindings/c/handles.hpp"
#include "bindings/c/last_error.hpp"

#include <cukiln/blob_store.hpp>

using namespace cukiln;  // NOLINT: what is defined here is in no namespace
using c::check_pointers;
using c::null_argument;
using c::return_bytes;
using c::to_code;

struct cukiln_blob_lease {  // NOLINT(readability-identifier-naming): C's name
  BlobLease lease;
};

namespace {

constexpr uint64_t kMaxWaitMs = 86'400'000;

std::string_view bytes_of(const void* bytes, size_t size) {
  return bytes == nullptr ? std::string_view()
                          : std::string_view(static_cast<const char*>(bytes), size);
}

/// Runs `body` with the blobs of a loader. `out` is where the result goes.
template <class Body>
cukiln_code with_blobs(cukiln_loader* loader, const void* out, Body&& body) {
  return to_code([&]() -> Result<void> {
    CUKILN_CHECK(check_pointers({{"loader", loader}, {"out", out}}));
    BlobStore blobs(loader->store);
    return body(blobs);
  });
}

/// Lays out summaries with all that they point to in one block of memory.
cukiln_blob* copy_of(const std::vector<BlobSummary>& blobs) {
  constexpr size_t kIdBytes = 65;
  size_t bytes = blobs.size() * sizeof(cukiln_blob);
  for (const BlobSummary& blob : blobs) {
    bytes += kIdBytes + blob.kind.size() + blob.key.size() + blob.signer.size() + 3;
  }
  auto* const rows = static_cast<cukiln_blob*>(c::allocate(bytes));
  char* rest = reinterpret_cast<char*>(rows + blobs.size());
  const auto copy = [&rest](const std::string& text) {
    char* const start = rest;
    std::memcpy(start, text.c_str(), text.size() + 1);
    rest += text.size() + 1;
    return start;
  };
  cukiln_blob* row = rows;
  for (const BlobSummary& blob : blobs) {
    cukiln_blob& view = *row++;
    // schema: blob to C. Written by src/schema/generate.py
    view.id = copy(blob.id.hex());
    view.kind = copy(blob.kind);
    view.key = copy(blob.key);
    view.size_bytes = blob.size_bytes;
    view.created_s = blob.created_s;
    view.last_used_s = blob.last_used_s;
    view.hits = blob.hits;
    view.signer = copy(blob.signer);
    // end of schema
    view.key_bytes = blob.key.size();
  }
  return rows;
}

}  // namespace

extern "C" {

cukiln_code cukiln_blob_get(cukiln_loader* loader, const char* kind, const void* key,
                            size_t key_bytes, void** data, size_t* data_bytes) {
  return with_blobs(loader, data, [&](BlobStore& blobs) -> Result<void> {
    CUKILN_CHECK(check_pointers({{"data_bytes", data_bytes}}));
    return_bytes(std::nullopt, data, data_bytes);
    CUKILN_TRY(const auto bytes, blobs.get(c::text_or_empty(kind), bytes_of(key, key_bytes)));
    return_bytes(bytes, data, data_bytes);
    return {};
  });
}

cukiln_code cukiln_blob_get_or_lease(cukiln_loader* loader, const char* kind, const void* key,
                                     size_t key_bytes, uint64_t wait_ms,
                                     const cukiln_cancel_token* cancel, void** data,
                                     size_t* data_bytes, cukiln_blob_lease** lease) {
  return with_blobs(loader, data, [&](BlobStore& blobs) -> Result<void> {
    if (data_bytes == nullptr || lease == nullptr) {
      return null_argument(lease == nullptr ? "lease" : "data_bytes");
    }
    return_bytes(std::nullopt, data, data_bytes);
    *lease = nullptr;
    const auto wait = std::chrono::milliseconds(std::min<uint64_t>(wait_ms, kMaxWaitMs));
    const auto token = cancel != nullptr ? std::optional(cancel->token) : std::nullopt;
    CUKILN_TRY(BlobOrLease blob,
               blobs.get_or_lease(c::text_or_empty(kind), bytes_of(key, key_bytes), wait, token));
    if (auto* const granted = std::get_if<BlobLease>(&blob)) {
      *lease = new cukiln_blob_lease{std::move(*granted)};
    } else {
      return_bytes(std::get<std::string>(std::move(blob)), data, data_bytes);
    }
    return {};
  });
}

int cukiln_blob_lease_is_exclusive(const cukiln_blob_lease* lease) {
  return lease != nullptr && lease->lease.exclusive() ? 1 : 0;
}

cukiln_code cukiln_blob_lease_put(cukiln_blob_lease* lease, const void* data, size_t data_bytes) {
  return to_code([&]() -> Result<void> {
    if (lease == nullptr || (data == nullptr && data_bytes != 0)) {
      return null_argument(lease == nullptr ? "lease" : "data");
    }
    return lease->lease.put(bytes_of(data, data_bytes));
  });
}

void cukiln_blob_lease_destroy(cukiln_blob_lease* lease) { delete lease; }

cukiln_code cukiln_blob_contains(cukiln_loader* loader, const char* kind, const void* key,
                                 size_t key_bytes, int* there) {
  return with_blobs(loader, there, [&](BlobStore& blobs) -> Result<void> {
    *there = 0;
    CUKILN_TRY(*there, blobs.contains(c::text_or_empty(kind), bytes_of(key, key_bytes)));
    return {};
  });
}

cukiln_code cukiln_blob_put(cukiln_loader* loader, const char* kind, const void* key,
                            size_t key_bytes, const void* data, size_t data_bytes) {
  return with_blobs(loader, loader, [&](BlobStore& blobs) -> Result<void> {
    if (data == nullptr && data_bytes != 0) {
      return null_argument("data");
    }
    return blobs.put(c::text_or_empty(kind), bytes_of(key, key_bytes), bytes_of(data, data_bytes));
  });
}

cukiln_code cukiln_blob_remove(cukiln_loader* loader, const char* kind, const void* key,
                               size_t key_bytes, int* removed) {
  return with_blobs(loader, removed, [&](BlobStore& blobs) -> Result<void> {
    *removed = 0;
    CUKILN_TRY(*removed, blobs.remove(c::text_or_empty(kind), bytes_of(key, key_bytes)));
    return {};
  });
}

cukiln_code cukiln_blob_list(cukiln_loader* loader, const char* kind, cukiln_blob** blobs,
                             size_t* count) {
  return with_blobs(loader, blobs, [&](BlobStore& store) -> Result<void> {
    CUKILN_CHECK(check_pointers({{"count", count}}));
    *blobs = nullptr;
    *count = 0;
    CUKILN_TRY(const auto listed, store.list(c::text_or_empty(kind)));
    *blobs = copy_of(listed);
    *count = listed.size();
    return {};
  });
}

}  // extern "C"
