// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/key/compile_request.hpp"
#include "core/key/variables.hpp"
#include "core/loader/module_request.hpp"
#include "core/store/cubin_store.hpp"
#include "core/store/signers.hpp"

#include <cukiln/kernel_info.hpp>

namespace cukiln {

// The JSON of entries, for the command line's --json and the daemon's admin HTTP server. Inline, so
// that the library, which writes no JSON, does not contain it.
using EntryJson = nlohmann::ordered_json;

inline const char* name_of(Origin origin) noexcept {
  switch (origin) {
    case Origin::compiled: return "compiled";
    case Origin::imported: return "imported";
    case Origin::remote: return "remote";
  }
  return "unknown";
}

/// Returns the flags of the compile that had no effect: `-O3 --compiler-options=-fPIC`.
inline std::string dropped_flags(const EntryLabels& labels) {
  const std::string& flags = labels.flags;
  const std::string_view mark = kDroppedMark;
  const std::size_t at = flags.find(mark);
  return at == std::string::npos || flags.back() != ']'
             ? std::string()
             : flags.substr(at + mark.size(), flags.size() - at - mark.size() - 1);
}

inline EntryJson json_of(const std::vector<KernelInfo>& kernels) {
  EntryJson list = EntryJson::array();
  for (const KernelInfo& kernel : kernels_among(kernels)) {
    list.push_back(EntryJson{{"name", kernel.name},
                             {"lowered", kernel.lowered},
                             {"registers", kernel.registers},
                             {"shared_bytes", kernel.shared_bytes},
                             {"local_bytes", kernel.local_bytes},
                             {"spill_bytes", kernel.spill_bytes}});
  }
  return list;
}

inline EntryJson json_of(const std::vector<VariableInfo>& variables) {
  EntryJson list = EntryJson::array();
  for (const VariableInfo& variable : variables) {
    list.push_back(EntryJson{{"name", variable.name},
                             {"lowered", variable.lowered},
                             {"size_bytes", variable.size_bytes},
                             {"is_constant", variable.is_constant}});
  }
  return list;
}

/// An entry in a list. Times are seconds since 1970.
inline EntryJson json_of(const EntrySummary& entry) {
  constexpr double kUsPerMs = 1000;
  return EntryJson{{"key", entry.key.hex()},
                   {"name", entry.labels.name},
                   {"source", entry.labels.source},
                   {"target", entry.labels.target},
                   {"flags", entry.labels.flags},
                   {"compiler", entry.labels.compiler},
                   {"cubin_bytes", entry.cubin_bytes},
                   {"compile_ms", static_cast<double>(entry.compile_us) / kUsPerMs},
                   {"peak_bytes", entry.peak_bytes},
                   {"created", entry.created_s},
                   {"last_used", entry.last_used_s},
                   {"hits", entry.hits},
                   {"kernels", json_of(entry.kernels)},
                   {"variables", json_of(variables_among(entry.kernels))},
                   {"dependencies", entry.dependencies},
                   {"origin", name_of(entry.origin)},
                   {"signer", without_mark(entry.signer)},
                   {"signers", split_signers(without_mark(entry.signer))}};
}

/// An entry without cubin and source. `summary` has its history, `fields` is the parsed
/// `entry.request_canonical`.
inline EntryJson json_of(const EntrySummary& summary, const StoreEntry& entry,
                         const RequestFields& fields) {
  EntryJson json = json_of(summary);
  EntryJson present = EntryJson::array();
  for (const Observation& seen : entry.dependencies.observations) {
    if (seen.kind == Observation::Kind::file) {
      present.push_back(
          EntryJson{{"path", seen.path}, {"digest", seen.hash.hex()}, {"identity", seen.identity}});
    }
  }
  json["dependencies"] = std::move(present);
  json["absent"] = entry.dependencies.paths(Observation::Kind::absent);
  json["folders"] = entry.dependencies.paths(Observation::Kind::folder);
  json["portable"] = entry.dependencies.portable();
  EntryJson sources = EntryJson::array();
  for (const RequestFields::Source& source : fields.sources) {
    sources.push_back(EntryJson{
        {"path", source.path}, {"digest", source.digest.hex()}, {"size_bytes", source.size}});
  }
  json["request"] = EntryJson{
      {"digest", entry.request.hex()},
      {"sources", std::move(sources)},
      {"target", fields.target.name()},
      {"output", name_of(fields.output())},
      {"arguments", fields.options.arguments},
      {"names", fields.options.name_expressions},
      {"compiler",
       {{"version", fields.toolchain.version}, {"digest", fields.toolchain.content.hex()}}}};
  const NvrtcProgram program = fields.program.value_or(NvrtcProgram{});
  EntryJson headers = EntryJson::array();
  for (const RequestFields::Source& header : fields.headers) {
    headers.push_back(EntryJson{
        {"path", header.path}, {"digest", header.digest.hex()}, {"size_bytes", header.size}});
  }
  json["request"]["headers"] = std::move(headers);
  json["request"]["working_folder"] = program.working_folder;
  json["request"]["link"] = nullptr;
  if (fields.link) {
    EntryJson objects = EntryJson::array();
    for (const RequestFields::Source& object : fields.link->objects) {
      objects.push_back(EntryJson{
          {"path", object.path}, {"digest", object.digest.hex()}, {"size_bytes", object.size}});
    }
    const Toolchain& linker = fields.link->linker;
    json["request"]["link"] =
        EntryJson{{"linker", {{"version", linker.version}, {"digest", linker.content.hex()}}},
                  {"options", fields.link->options},
                  {"objects", std::move(objects)}};
  }
  json["dropped_flags"] = dropped_flags(summary.labels);
  json["log"] = entry.cubin.log;
  return json;
}

}  // namespace cukiln
