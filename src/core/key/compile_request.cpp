// SPDX-License-Identifier: Apache-2.0
#include "core/key/compile_request.hpp"

#include <algorithm>
#include <cassert>

#include "core/base/cache_format.hpp"
#include "core/base/hasher.hpp"
#include "core/base/result.hpp"
#include "core/base/serial.hpp"
#include "core/key/name_expression.hpp"

namespace cukiln {

namespace {

constexpr std::string_view kMagic = "cukiln request";

/// What a request is, and what is behind the fields that all have.
enum class RequestKind : std::uint8_t { module, program, link };

RequestKind kind_of(const CompileRequest& request) {
  return request.program ? RequestKind::program
         : request.link  ? RequestKind::link
                         : RequestKind::module;
}

/// What a module's compile with these arguments returns.
OutputKind output_with(const std::vector<std::string>& arguments) {
  return std::find(arguments.begin(), arguments.end(), kLtoArgument) == arguments.end()
             ? OutputKind::cubin
             : OutputKind::lto_ir;
}

/// That of a request or its fields.
template <class Request>
OutputKind output_of_any(const Request& request) {
  return request.program ? request.program->output
         : request.link  ? OutputKind::cubin
                         : output_with(request.options.arguments);
}

}  // namespace

OutputKind CompileRequest::output() const { return output_of_any(*this); }
OutputKind RequestFields::output() const { return output_of_any(*this); }

std::string CompileRequest::canonical() const {
  // Structured bindings make a forgotten key input a compile error: a new member of any of these
  // structs breaks the build here until it is encoded.
  const auto& [key_sources, key_options, key_target, key_toolchain, key_program, key_headers,
               key_link] = *this;
  const auto& [arguments, name_expressions] = key_options;
  const auto& [capability, suffix] = key_target;
  const auto& [compiler_version, compiler_content] = key_toolchain;

  SerialWriter out;
  const auto put_sources = [&out](const std::vector<VirtualSource>& sources_of_key) {
    out.u32(static_cast<std::uint32_t>(sources_of_key.size()));
    for (const VirtualSource& source : sources_of_key) {
      out.bytes(source.path).u64(source.text.size()).raw(view_of(source.digest));
    }
  };
  out.bytes(kMagic).u32(kCacheFormat).u8(static_cast<std::uint8_t>(kind_of(*this)));
  put_sources(key_sources);
  out.strings(arguments).strings(name_expressions);
  out.u32(static_cast<std::uint32_t>(capability)).u8(static_cast<std::uint8_t>(suffix));
  out.bytes(compiler_version).raw(view_of(compiler_content));
  put_sources(key_headers);
  if (key_program) {
    const auto& [output_kind, working_folder] = *key_program;
    out.u8(static_cast<std::uint8_t>(output_kind)).bytes(working_folder);
  }
  if (key_link) {
    const auto& [link_options, objects, linker] = *key_link;
    const auto& [linker_version, linker_content] = linker;
    out.strings(link_options);
    put_sources(objects);
    out.bytes(linker_version).raw(view_of(linker_content));
  }
  return out.take();
}

std::string CompileRequest::failure_canonical() const {
  assert(program);
  CompileRequest failure = *this;
  failure.program->output = OutputKind::failure;
  return failure.canonical();
}

RequestDigest CompileRequest::digest_of(ByteView canonical) noexcept {
  return hash_of<RequestDigest>(canonical);
}

std::vector<std::string> CompileRequest::nvrtc_expressions() const {
  std::vector<std::string> expressions = options.name_expressions;
  if (!program) {
    std::transform(expressions.begin(), expressions.end(), expressions.begin(), address_expression);
  }
  return expressions;
}

VirtualSource CompileRequest::translation_unit() const {
  if (sources.size() == 1) {
    return sources.front();
  }
  std::string text;
  for (const VirtualSource& source : sources) {
    text += fmt::format("#include \"{}\"\n", source.path);
  }
  return {std::string(kSourceRoot) + "/cukiln_unit.cu", SharedBytes(std::move(text))};
}

Result<RequestFields> RequestFields::parse(ByteView canonical) {
  SerialReader in(canonical);
  RequestFields fields;
  const bool has_magic = in.bytes() == kMagic;
  const std::uint32_t format = in.u32();
  const std::uint8_t kind = in.u8();
  const auto read_sources = [&in](std::vector<Source>& out) {
    const std::uint32_t count = in.u32();
    for (std::uint32_t i = 0; i < count && in.ok(); ++i) {
      Source source;
      source.path = in.bytes();
      source.size = in.u64();
      source.digest = digest_from<ContentHash>(in.raw(32));
      out.push_back(std::move(source));
    }
  };
  read_sources(fields.sources);
  fields.options.arguments = in.strings();
  fields.options.name_expressions = in.strings();
  fields.target.capability = static_cast<int>(in.u32());
  fields.target.suffix = static_cast<char>(in.u8());
  fields.toolchain.version = in.bytes();
  fields.toolchain.content = digest_from<ContentHash>(in.raw(32));
  read_sources(fields.headers);
  bool is_known = kind <= static_cast<std::uint8_t>(RequestKind::link);
  if (kind == static_cast<std::uint8_t>(RequestKind::program)) {
    NvrtcProgram& program = fields.program.emplace();
    const std::uint8_t output = in.u8();
    is_known = output <= static_cast<std::uint8_t>(OutputKind::failure);
    program.output = static_cast<OutputKind>(is_known ? output : 0);
    program.working_folder = in.bytes();
  }
  if (kind == static_cast<std::uint8_t>(RequestKind::link)) {
    RequestFields::Link& link = fields.link.emplace();
    link.options = in.strings();
    read_sources(link.objects);
    link.linker.version = in.bytes();
    link.linker.content = digest_from<ContentHash>(in.raw(32));
  }
  if (!has_magic || format != kCacheFormat || !is_known || !in.at_end()) {
    return make_error(ErrorCode::corrupt,
                      "the stored request cannot be decoded: {} bytes, format {}, expected {}; the "
                      "entry is damaged or of another format",
                      canonical.size(), format, kCacheFormat);
  }
  return fields;
}

OutputKind output_of_request(ByteView canonical) {
  SerialReader in(canonical);
  in.bytes();
  in.u32();
  const auto kind = static_cast<RequestKind>(in.u8());
  const bool is_lto = kind == RequestKind::module && canonical.find(kLtoArgument) != ByteView::npos;
  if (kind != RequestKind::program && !is_lto) {
    return OutputKind::cubin;
  }
  const auto fields = RequestFields::parse(canonical);
  return fields ? fields->output() : OutputKind::cubin;
}

}  // namespace cukiln
