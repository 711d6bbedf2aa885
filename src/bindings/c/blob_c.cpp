// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string_view>

#include "bindings/c/convert.hpp"
#include "bindings/c/handles.hpp"
#include "bindings/c/last_error.hpp"

#include <cukiln/blob_store.hpp>

using namespace cukiln;  // NOLINT: what is defined here is in no namespace
using c::guarded;
using c::null_argument;

struct cukiln_blob_lease {  // NOLINT(readability-identifier-naming): C's name
  BlobLease lease;
};

namespace {

constexpr uint64_t kMaxWaitMs = 86'400'000;

std::string_view bytes_of(const void* bytes, size_t size) {
  return bytes == nullptr ? std::string_view()
                          : std::string_view(static_cast<const char*>(bytes), size);
}

/// Memory that a C caller frees with cukiln_free.
void* allocate(size_t bytes) {
  void* const memory = std::malloc(std::max<size_t>(bytes, 1));
  if (memory == nullptr) {
    throw std::bad_alloc();
  }
  return memory;
}

/// Copies bytes for a C caller, into memory that it frees; null if there are none.
void return_bytes(const std::optional<std::string>& bytes, void** data, size_t* data_bytes) {
  *data = nullptr;
  *data_bytes = 0;
  if (bytes) {
    *data = allocate(bytes->size());
    bytes->copy(static_cast<char*>(*data), bytes->size());
    *data_bytes = bytes->size();
  }
}

/// Runs `body` with the blobs of a loader. `out` is where the result goes.
template <class Body>
cukiln_code with_blobs(cukiln_loader* loader, const void* out, Body&& body) {
  return guarded([&]() -> Result<void> {
    if (loader == nullptr || out == nullptr) {
      return null_argument(loader == nullptr ? "loader" : "out");
    }
    BlobStore blobs(loader->store);
    return body(blobs);
  });
}

/// Lays out summaries with all that they point to in one block of memory.
cukiln_blob* copy_of(const std::vector<BlobSummary>& blobs) {
  constexpr size_t kIdBytes = 65;
  size_t bytes = blobs.size() * sizeof(cukiln_blob);
  for (const BlobSummary& blob : blobs) {
    bytes += kIdBytes + blob.kind.size() + 1 + blob.key.size();
  }
  auto* const rows = static_cast<cukiln_blob*>(allocate(bytes));
  char* rest = reinterpret_cast<char*>(rows + blobs.size());
  const auto add = [&](std::string_view text, bool with_end) {
    char* const at = rest;
    text.copy(at, text.size());
    rest += text.size();
    if (with_end) {
      *rest++ = '\0';
    }
    return at;
  };
  cukiln_blob* row = rows;
  for (const BlobSummary& blob : blobs) {
    const std::string id = blob.id.hex();
    const char* const kept_id = add(id, true);
    const char* const kind = add(blob.kind, true);
    const char* const key = add(blob.key, false);
    *row++ = {kept_id,          kind,     key, blob.key.size(), blob.bytes, blob.created_s,
              blob.last_used_s, blob.hits};
  }
  return rows;
}

}  // namespace

extern "C" {

cukiln_code cukiln_blob_get(cukiln_loader* loader, const char* kind, const void* key,
                            size_t key_bytes, void** data, size_t* data_bytes) {
  return with_blobs(loader, data, [&](BlobStore& blobs) -> Result<void> {
    if (data_bytes == nullptr) {
      return null_argument("data_bytes");
    }
    return_bytes(std::nullopt, data, data_bytes);
    const auto found = blobs.get(c::text_or_empty(kind), bytes_of(key, key_bytes));
    if (!found) {
      return found.error();
    }
    return_bytes(*found, data, data_bytes);
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
    auto got = blobs.get_or_lease(c::text_or_empty(kind), bytes_of(key, key_bytes), wait, token);
    if (!got) {
      return std::move(got).error();
    }
    return_bytes(got->bytes, data, data_bytes);
    if (got->lease) {
      *lease = new cukiln_blob_lease{*std::move(got->lease)};
    }
    return {};
  });
}

int cukiln_blob_lease_is_exclusive(const cukiln_blob_lease* lease) {
  return lease != nullptr && lease->lease.exclusive() ? 1 : 0;
}

cukiln_code cukiln_blob_lease_put(cukiln_blob_lease* lease, const void* data, size_t data_bytes) {
  return guarded([&]() -> Result<void> {
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
    const auto found = blobs.contains(c::text_or_empty(kind), bytes_of(key, key_bytes));
    if (!found) {
      return found.error();
    }
    *there = *found ? 1 : 0;
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
    const auto was_there = blobs.remove(c::text_or_empty(kind), bytes_of(key, key_bytes));
    if (!was_there) {
      return was_there.error();
    }
    *removed = *was_there ? 1 : 0;
    return {};
  });
}

cukiln_code cukiln_blob_list(cukiln_loader* loader, const char* kind, cukiln_blob** blobs,
                             size_t* count) {
  return with_blobs(loader, blobs, [&](BlobStore& store) -> Result<void> {
    if (count == nullptr) {
      return null_argument("count");
    }
    *blobs = nullptr;
    *count = 0;
    const auto listed = store.list(c::text_or_empty(kind));
    if (!listed) {
      return listed.error();
    }
    *blobs = copy_of(*listed);
    *count = listed->size();
    return {};
  });
}

}  // extern "C"
