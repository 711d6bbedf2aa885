// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>

#include "bindings/c/convert.hpp"
#include "bindings/c/handles.hpp"
#include "bindings/c/last_error.hpp"

using namespace cukiln;  // NOLINT: what is defined here is in no namespace
using c::guarded;
using c::null_argument;

namespace {

/// An explanation with what its pointers point to.
struct OwnedExplanation : cukiln_explanation {
  explicit OwnedExplanation(Explanation given) : cukiln_explanation{}, owned(std::move(given)) {
    key_hex = owned.key ? owned.key->hex() : std::string();
    nearest_hex = owned.nearest ? owned.nearest->hex() : std::string();
    for (const Difference& difference : owned.differences) {
      rows.push_back({difference.field.c_str(), difference.was.c_str(), difference.now.c_str()});
    }
    hit = owned.hit ? 1 : 0;
    key = key_hex.c_str();
    nearest = nearest_hex.c_str();
    differences = rows.data();
    difference_count = rows.size();
    target_name = owned.target.name();
    target = target_name.c_str();
  }
  OwnedExplanation(const OwnedExplanation&) = delete;
  OwnedExplanation& operator=(const OwnedExplanation&) = delete;

  Explanation owned;
  std::string key_hex;
  std::string nearest_hex;
  std::string target_name;
  std::vector<cukiln_difference> rows;
};

Result<void> hand_out(Result<Explanation> explanation, cukiln_explanation** out) {
  if (!explanation) {
    return std::move(explanation).error();
  }
  *out = new OwnedExplanation(*std::move(explanation));
  return {};
}

}  // namespace

extern "C" {

cukiln_code cukiln_loader_device_count(cukiln_loader* loader, size_t* count) {
  return guarded([&]() -> Result<void> {
    if (loader == nullptr || count == nullptr) {
      return null_argument(loader == nullptr ? "loader" : "count");
    }
    *count = 0;
    const auto devices = loader->loader.devices();
    if (!devices) {
      return devices.error();
    }
    *count = devices->size();
    return {};
  });
}

cukiln_code cukiln_loader_device(cukiln_loader* loader, int ordinal, cukiln_device_info* device) {
  return guarded([&]() -> Result<void> {
    if (loader == nullptr || device == nullptr) {
      return null_argument(loader == nullptr ? "loader" : "device");
    }
    const auto devices = loader->loader.devices();
    if (!devices) {
      return devices.error();
    }
    const auto at = std::find_if(devices->begin(), devices->end(),
                                 [&](const DeviceInfo& one) { return one.ordinal == ordinal; });
    if (at == devices->end()) {
      return Error(ErrorCode::invalid_argument, "there is no device " + std::to_string(ordinal) +
                                                    "; expected an ordinal of the " +
                                                    std::to_string(devices->size()) +
                                                    " visible ones, from 0");
    }
    const DeviceInfo& device_info = *at;
    cukiln_device_info view{};
    // schema: device_info to C. Written by src/schema/generate.py
    view.ordinal = device_info.ordinal;
    view.capability = device_info.capability;
    view.memory_bytes = device_info.memory_bytes;
    view.num_sms = device_info.num_sms;
    // end of schema
    at->name.copy(view.name, sizeof view.name - 1);
    return c::write_struct(view, *device, "cukiln_device_info");
  });
}

cukiln_code cukiln_loader_explain(cukiln_loader* loader, const cukiln_module* module,
                                  const char* target, cukiln_explanation** out) {
  return guarded([&]() -> Result<void> {
    if (loader == nullptr || out == nullptr) {
      return null_argument(loader == nullptr ? "loader" : "out");
    }
    *out = nullptr;
    auto spec = c::read_module(module);
    if (!spec) {
      return std::move(spec).error();
    }
    auto parsed = Target::parse(c::text_or_empty(target));
    if (!parsed) {
      return std::move(parsed).error();
    }
    return hand_out(loader->loader.explain(*spec, *parsed), out);
  });
}

cukiln_code cukiln_loader_explain_keys(cukiln_loader* loader, const char* was, const char* now,
                                       cukiln_explanation** out) {
  return guarded([&]() -> Result<void> {
    if (loader == nullptr || out == nullptr) {
      return null_argument(loader == nullptr ? "loader" : "out");
    }
    *out = nullptr;
    const auto key_was = CacheKey::parse(c::text_or_empty(was));
    if (!key_was) {
      return key_was.error();
    }
    const auto key_now = CacheKey::parse(c::text_or_empty(now));
    if (!key_now) {
      return key_now.error();
    }
    return hand_out(loader->loader.explain(*key_was, *key_now), out);
  });
}

void cukiln_explanation_destroy(cukiln_explanation* explanation) {
  delete static_cast<OwnedExplanation*>(explanation);
}

cukiln_code cukiln_loader_cubin(cukiln_loader* loader, const char* key, void** cubin,
                                size_t* cubin_bytes) {
  return guarded([&]() -> Result<void> {
    if (loader == nullptr || cubin == nullptr || cubin_bytes == nullptr) {
      return null_argument(loader == nullptr ? "loader" : "cubin or cubin_bytes");
    }
    *cubin = nullptr;
    *cubin_bytes = 0;
    const auto digest = CacheKey::parse(c::text_or_empty(key));
    if (!digest) {
      return digest.error();
    }
    const auto bytes = loader->loader.cubin(*digest);
    if (!bytes) {
      return bytes.error();
    }
    void* const copy = std::malloc(std::max<size_t>(bytes->size(), 1));  // freed by a C caller
    if (copy == nullptr) {
      throw std::bad_alloc();
    }
    bytes->copy(static_cast<char*>(copy), bytes->size());
    *cubin = copy;
    *cubin_bytes = bytes->size();
    return {};
  });
}

void cukiln_free(void* memory) { std::free(memory); }

cukiln_code cukiln_loader_stats(const cukiln_loader* loader, cukiln_stats* stats) {
  return guarded([&]() -> Result<void> {
    if (loader == nullptr || stats == nullptr) {
      return null_argument(loader == nullptr ? "loader" : "stats");
    }
    // Both structs are the schema's list of 64-bit counters.
    static_assert(sizeof(cukiln_stats) == sizeof(size_t) + sizeof(Stats));
    const Stats now = loader->loader.stats();
    cukiln_stats value{};
    std::memcpy(&value.entries, &now, sizeof now);
    return c::write_struct(value, *stats, "cukiln_stats");
  });
}

}  // extern "C"
