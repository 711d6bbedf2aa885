// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>

#include "bindings/c/convert.hpp"
#include "bindings/c/handles.hpp"
#include "bindings/c/last_error.hpp"

using namespace cukiln;  // NOLINT: what is defined here is in no namespace
using c::check_pointers;
using c::to_code;

namespace {

/// An explanation with what its pointers point to.
struct OwnedExplanation : cukiln_explanation {
  explicit OwnedExplanation(Explanation from) : cukiln_explanation{}, explanation(std::move(from)) {
    key_hex = explanation.key ? explanation.key->hex() : std::string();
    nearest_hex = explanation.nearest ? explanation.nearest->hex() : std::string();
    for (const Difference& difference : explanation.differences) {
      rows.push_back({difference.field.c_str(), difference.was.c_str(), difference.now.c_str()});
    }
    hit = explanation.hit ? 1 : 0;
    key = key_hex.c_str();
    nearest = nearest_hex.c_str();
    differences = rows.data();
    difference_count = rows.size();
    target_name = explanation.target.name();
    target = target_name.c_str();
  }
  OwnedExplanation(const OwnedExplanation&) = delete;
  OwnedExplanation& operator=(const OwnedExplanation&) = delete;

  Explanation explanation;
  std::string key_hex;
  std::string nearest_hex;
  std::string target_name;
  std::vector<cukiln_difference> rows;
};

Result<void> hand_out(Result<Explanation> result, cukiln_explanation** out) {
  CUKILN_TRY(Explanation explanation, std::move(result));
  *out = new OwnedExplanation(std::move(explanation));
  return {};
}

}  // namespace

extern "C" {

cukiln_code cukiln_loader_device_count(cukiln_loader* loader, size_t* count) {
  return to_code([&]() -> Result<void> {
    CUKILN_CHECK(check_pointers({{"loader", loader}, {"count", count}}));
    *count = 0;
    CUKILN_TRY(const auto devices, loader->loader.devices());
    *count = devices.size();
    return {};
  });
}

cukiln_code cukiln_loader_device(cukiln_loader* loader, int ordinal, cukiln_device_info* device) {
  return to_code([&]() -> Result<void> {
    CUKILN_CHECK(check_pointers({{"loader", loader}, {"device", device}}));
    CUKILN_TRY(const auto devices, loader->loader.devices());
    const auto at = std::find_if(devices.begin(), devices.end(),
                                 [&](const DeviceInfo& one) { return one.ordinal == ordinal; });
    if (at == devices.end()) {
      return make_error(ErrorCode::invalid_argument,
                        "there is no device {}; expected an ordinal of the {} visible ones, from 0",
                        ordinal, devices.size());
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
  return to_code([&]() -> Result<void> {
    CUKILN_CHECK(check_pointers({{"loader", loader}, {"out", out}}));
    *out = nullptr;
    CUKILN_TRY(const ModuleSpec spec, c::read_module(module));
    CUKILN_TRY(const Target parsed, Target::parse(c::text_or_empty(target)));
    return hand_out(loader->loader.explain(spec, parsed), out);
  });
}

cukiln_code cukiln_loader_explain_keys(cukiln_loader* loader, const char* was, const char* now,
                                       cukiln_explanation** out) {
  return to_code([&]() -> Result<void> {
    CUKILN_CHECK(check_pointers({{"loader", loader}, {"out", out}}));
    *out = nullptr;
    CUKILN_TRY(const CacheKey key_was, CacheKey::parse(c::text_or_empty(was)));
    CUKILN_TRY(const CacheKey key_now, CacheKey::parse(c::text_or_empty(now)));
    return hand_out(loader->loader.explain(key_was, key_now), out);
  });
}

void cukiln_explanation_destroy(cukiln_explanation* explanation) {
  delete static_cast<OwnedExplanation*>(explanation);
}

cukiln_code cukiln_loader_cubin(cukiln_loader* loader, const char* key, void** cubin,
                                size_t* cubin_bytes) {
  return to_code([&]() -> Result<void> {
    CUKILN_CHECK(
        check_pointers({{"loader", loader}, {"cubin", cubin}, {"cubin_bytes", cubin_bytes}}));
    c::return_bytes({}, cubin, cubin_bytes);
    CUKILN_TRY(const CacheKey digest, CacheKey::parse(c::text_or_empty(key)));
    CUKILN_TRY(const std::string bytes, loader->loader.cubin(digest));
    c::return_bytes(bytes, cubin, cubin_bytes);
    return {};
  });
}

void cukiln_free(void* memory) { std::free(memory); }

cukiln_code cukiln_loader_stats(const cukiln_loader* loader, cukiln_stats* stats) {
  return to_code([&]() -> Result<void> {
    CUKILN_CHECK(check_pointers({{"loader", loader}, {"stats", stats}}));
    // Both structs are the schema's list of 64-bit counters.
    static_assert(sizeof(cukiln_stats) == sizeof(size_t) + sizeof(Stats));
    const Stats now = loader->loader.stats();
    cukiln_stats value{};
    std::memcpy(&value.entries, &now, sizeof now);
    return c::write_struct(value, *stats, "cukiln_stats");
  });
}

}  // extern "C"
