// SPDX-License-Identifier: Apache-2.0
#include "core/loader/module_json.hpp"

#include <filesystem>

#include <nlohmann/json.hpp>

#include "core/key/nvcc_flags.hpp"
#include "core/loader/module_request.hpp"

namespace cukiln {

namespace {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

/// Normalises a path, so that `k.cu` and `./k.cu` are recorded once.
std::string recorded_path(const std::string& path) {
  return std::filesystem::path(absolute_path(path)).lexically_normal().string();
}

Json json_of(const Source& source) {
  const auto text = text_of(source);
  return text ? Json{{"path", name_of(source)}, {"text", *text}}
              : Json{{"path", recorded_path(name_of(source))}};
}

}  // namespace

const char* name_of(LinkMode mode) noexcept {
  switch (mode) {
    case LinkMode::none: return "none";
    case LinkMode::rdc: return "rdc";
    case LinkMode::lto: return "lto";
  }
  return "unknown";
}

Json module_json(const ModuleSpec& spec, Target target) {
  const auto flags = translate_flags(spec.flags);
  if (!flags || spec.sources.empty()) {
    return {};
  }
  Json module{{"name", spec.name.empty()
                           ? std::filesystem::path(name_of(spec.sources.front())).stem().string()
                           : spec.name},
              {"define", spec.define},
              {"flags", flags->arguments},
              {"names", canonical_names(spec.names, flags->standard)},
              {"target", target.name()},
              {"sources", Json::array()},
              {"headers", Json::array()},
              {"include", Json::array()}};
  if (!flags->standard.empty()) {
    module["flags"].push_back("-std=" + flags->standard);
  }
  for (const Source& source : spec.sources) {
    module["sources"].push_back(json_of(source));
  }
  for (const Source& header : spec.headers) {
    module["headers"].push_back(json_of(header));
  }
  for (const std::string& folder : spec.include) {
    module["include"].push_back(recorded_path(folder));
  }
  for (const std::string& folder : flags->include) {
    module["include"].push_back(recorded_path(absolute_path(folder, spec.working_folder)));
  }
  if (flags->relative_pre_include) {
    module["working_folder"] = recorded_path(working_folder_of(spec));
  }
  for (const Source& header : spec.named_headers) {
    module["named_headers"][name_of(header)] = text_of(header).value_or("");
  }
  if (!spec.std_shims) {
    module["std_shims"] = false;
  }
  if (const LinkMode mode = spec.link != LinkMode::none ? spec.link : flags->link;
      mode != LinkMode::none) {
    module["link"] = name_of(mode);
  }
  for (const std::string& object : spec.objects) {
    module["objects"].push_back(recorded_path(object));
  }
  return module;
}

std::string manifest_line(const ModuleSpec& spec, Target target) {
  const Json module = module_json(spec, target);
  if (module.is_null()) {
    return {};
  }
  OrderedJson line{{"name", OrderedJson(module["name"])}};
  for (const Json& source : module["sources"]) {
    line["sources"].push_back(OrderedJson(source["path"]));
  }
  for (const char* field :
       {"include", "define", "flags", "names", "working_folder", "std_shims", "link", "objects"}) {
    if (module.contains(field) && !(module[field].is_structured() && module[field].empty())) {
      line[field] = OrderedJson(module[field]);
    }
  }
  line["targets"].push_back(OrderedJson(module["target"]));
  return line.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

}  // namespace cukiln
