// SPDX-License-Identifier: Apache-2.0
#include "core/loader/make_entry.hpp"

#include <string>
#include <vector>

#include <doctest/doctest.h>

using namespace cukiln;

TEST_CASE("the texts of several sources are found in the text that joins them") {
  const std::vector<std::string> texts = {"// a\n", "", "int c;", "\n// /cukiln/src/b.cu\n"};
  CompileRequest request;
  std::vector<RequestFields::Source> fields;
  for (const std::string& text : texts) {
    const VirtualSource& source = request.sources.emplace_back(
        "/cukiln/src/" + std::to_string(fields.size()) + ".cu", SharedBytes(std::string(text)));
    fields.push_back({source.path, source.digest, text.size()});
  }
  const std::string joined = source_text_of(request);
  const std::vector<ByteView> found = source_texts_in(joined, fields);
  CHECK(std::vector<std::string>(found.begin(), found.end()) == texts);
  for (std::size_t length = 0; length < joined.size(); ++length) {
    CHECK(source_texts_in(ByteView(joined).substr(0, length), fields).size() == texts.size());
  }
  CHECK(source_texts_in(joined, {fields.front()}).front() == texts.front());
  CHECK(source_texts_in("", fields).back().empty());
}
