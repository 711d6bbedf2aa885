// SPDX-License-Identifier: Apache-2.0
#include "core/loader/make_entry.hpp"

#include <fmt/format.h>

#include <utility>

namespace cukiln {

namespace {

std::string line_before(const std::string& path) { return fmt::format("\n// {}\n", path); }

}  // namespace

std::string source_text_of(const CompileRequest& request) {
  std::string text(request.sources.front().text.view());
  for (std::size_t i = 1; i < request.sources.size(); ++i) {
    text += line_before(request.sources[i].path);
    text += request.sources[i].text.view();
  }
  return text;
}

std::vector<ByteView> source_texts_in(ByteView joined,
                                      const std::vector<RequestFields::Source>& sources) {
  std::vector<ByteView> texts;
  std::size_t at = 0;
  for (const RequestFields::Source& source : sources) {
    at += texts.empty() ? 0 : line_before(source.path).size();
    texts.push_back(at <= joined.size() ? joined.substr(at, source.size) : ByteView());
    at += source.size;
  }
  return texts;
}

StoreEntry make_entry(const CompileRequest& request, ByteView canonical, const EntryLabels& labels,
                      const CompileResult& result) {
  StoreEntry entry;
  entry.dependencies = result.dependencies;
  entry.set_request(std::string(canonical));
  entry.cubin = result.cubin;
  entry.labels = labels;
  entry.source_text = source_text_of(request);
  entry.compile_us = result.compile_us;
  entry.peak_bytes = result.peak_bytes;
  return entry;
}

StoreEntry make_failure(const CompileRequest& request, const EntryLabels& labels, std::string log,
                        DependencySet dependencies) {
  StoreEntry entry;
  entry.dependencies = std::move(dependencies);
  entry.set_request(request.failure_canonical());
  entry.cubin.image = SharedBytes(std::move(log));
  entry.labels = labels;
  entry.is_failure = true;
  return entry;
}

}  // namespace cukiln
