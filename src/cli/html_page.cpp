// SPDX-License-Identifier: Apache-2.0
#include "cli/html_page.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include "core/base/elf_image.hpp"
#include "core/base/hasher.hpp"
#include "core/base/result.hpp"
#include "embedded/entry_html.hpp"

#include <cukiln/version.hpp>

namespace cukiln::cli {

namespace {

/// What an SM of a compute capability has, beside 65,536 registers. Sources: NVIDIA's
/// cuda_occupancy.h and, for shared memory and threads, cuda/__device/arch_traits.h of CCCL.
struct SmLimits {
  int capability;
  int warps, blocks;
  int shared_kib;          ///< for all blocks
  int reserved_bytes;      ///< of shared memory, for each block
  int shared_granularity;  ///< in bytes
};

constexpr SmLimits kSmLimits[] = {
    {75, 32, 16, 64, 0, 256},      {80, 64, 32, 164, 1024, 128},  {86, 48, 16, 100, 1024, 128},
    {87, 48, 16, 164, 1024, 128},  {89, 48, 24, 100, 1024, 128},  {90, 64, 32, 228, 1024, 128},
    {100, 64, 32, 228, 1024, 128}, {103, 64, 32, 228, 1024, 128}, {110, 48, 24, 228, 1024, 128},
    {120, 48, 24, 100, 1024, 128}, {121, 48, 24, 100, 1024, 128}};

Json limits_json(Target target) {
  Json list = Json::array();
  for (const SmLimits& limits : kSmLimits) {
    if (target.runs_on(limits.capability)) {
      list.push_back(
          Json{{"capability", fmt::format("{}.{}", limits.capability / 10, limits.capability % 10)},
               {"warps", limits.warps},
               {"blocks", limits.blocks},
               {"shared_bytes", limits.shared_kib << 10},
               {"reserved_bytes", limits.reserved_bytes},
               {"shared_granularity", limits.shared_granularity}});
    }
  }
  return list;
}

/// Returns the most threads of a block in a kernel's section of attributes: those of
/// __launch_bounds__ or __block_size__. Source: cubins of NVRTC 12.9 to 13.5, which nvdisasm's
/// names of the attributes explain.
std::optional<std::uint64_t> max_threads_in(const ElfImage& image, const Elf64_Shdr& section) {
  struct Attribute {
    std::uint8_t format, id;
    std::uint16_t size;
  };
  constexpr std::uint8_t kHasBytes = 4, kMaxThreads = 0x05, kRequiredThreads = 0x10;
  for (std::uint64_t at = 0; at + sizeof(Attribute) <= section.sh_size;) {
    const auto attribute = image.at<Attribute>(section.sh_offset + at);
    at += sizeof(Attribute);
    if (!attribute) {
      break;
    }
    if (attribute->format != kHasBytes) {
      continue;
    }
    const auto block = image.at<std::array<std::uint32_t, 3>>(section.sh_offset + at);
    if (block && (attribute->id == kMaxThreads || attribute->id == kRequiredThreads)) {
      return std::uint64_t{(*block)[0]} * (*block)[1] * (*block)[2];
    }
    at += attribute->size;
  }
  return std::nullopt;
}

/// Returns the most threads of a block by the kernel's symbol, where the kernel limits them.
Json max_threads_json(ByteView cubin) {
  constexpr std::string_view kPrefix = ".nv.info.";
  const ElfImage image(cubin);
  Json all = Json::object();
  for (std::size_t i = 0; i < image.sections().size(); ++i) {
    const std::string_view name = image.section_name(i);
    if (name.starts_with(kPrefix)) {
      if (const auto threads = max_threads_in(image, image.sections()[i])) {
        all[std::string(name.substr(kPrefix.size()))] = *threads;
      }
    }
  }
  return all;
}

Json code_json(const Result<std::string>& text) {
  return text ? Json{{"text", *text}}
              : Json{{"problem", text.error().message()}, {"log", text.error().log()}};
}

/// Returns JSON that may stand in a script element: no `<` ends it or begins another one.
std::string script_data(const Json& data) {
  std::string text = data.dump(-1, ' ', false, Json::error_handler_t::replace);
  for (std::size_t at = 0; (at = text.find('<', at)) != std::string::npos;) {
    text.replace(at, 1, "\\u003c");
  }
  return text;
}

std::string_view asset(std::string_view name) {
  const auto files = embedded::entry_html();
  const auto at = std::find_if(files.begin(), files.end(),
                               [&](const embedded::File& file) { return file.name == name; });
  return at == files.end() ? std::string_view() : at->bytes;
}

}  // namespace

std::string html_page(const Json& entry, Target target, ByteView cubin, const EntryCode& code) {
  Json sources = Json::array();
  for (const EntryCode::Text& source : code.sources) {
    sources.push_back(code_json(source.text));
    sources.back()["path"] = source.path;
  }
  const std::string data = script_data(Json{{"version", version()},
                                            {"entry", entry},
                                            {"max_threads", max_threads_json(cubin)},
                                            {"limits", limits_json(target)},
                                            {"sources", std::move(sources)},
                                            {"ptx", code_json(code.ptx)},
                                            {"sass", code_json(code.sass)}});
  // What is in the page cannot name its own hash, so that no other script runs.
  const std::string nonce = hash_of(data).hex();
  return fmt::format(
      R"(<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'nonce-{0}'; script-src 'nonce-{0}'; base-uri 'none'; form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>cukiln</title>
<style nonce="{0}">
{1}</style>
<body>
<noscript>This page needs JavaScript; it has all that it shows, and loads nothing.</noscript>
<script type="application/json" id="data">{2}</script>
<script nonce="{0}">
{3}</script>
</html>
)",
      nonce, asset("entry.css"), data, asset("entry.js"));
}

}  // namespace cukiln::cli
