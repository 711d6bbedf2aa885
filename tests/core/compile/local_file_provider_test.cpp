// SPDX-License-Identifier: Apache-2.0
#include "core/compile/local_file_provider.hpp"

#include <doctest/doctest.h>

#include <algorithm>

#include "support/scratch.hpp"

namespace cukiln::testing {
namespace {

/// Answers all paths in order, as a worker that asks for what was not sent, and counts the
/// questions.
std::size_t questions_for(LocalFileProvider& files, const std::vector<std::string>& paths) {
  std::unordered_set<std::string> sent;
  std::size_t questions = 0;
  for (const std::string& path : paths) {
    if (sent.insert(path).second) {
      ++questions;
      for (const wire::Answer& answer : files.answer(path).answers) {
        sent.insert(answer.path);
      }
    }
  }
  return questions;
}

}  // namespace

TEST_CASE("fault 429: headers of the unit are sent ahead, with the places where they are absent") {
  ScratchFolder scratch;
  std::string text;
  std::vector<std::string> paths;  // as NVRTC looks for them
  constexpr int kHeaders = 200;
  for (int i = 0; i < kHeaders; ++i) {
    const std::string name = "h" + std::to_string(i) + ".h";
    scratch.write("last/" + name, "");
    text += "#include <" + name + ">\n";
    for (const char* const folder : {"first", "second", "last"}) {
      paths.push_back(scratch / folder + "/" + name);
    }
  }
  scratch.write("first/other.h", "");
  scratch.write("second/other.h", "");
  CompileRequest request;
  request.program.emplace().working_folder = scratch / "work";
  request.options.arguments = {"-I" + scratch / "first", "-I=" + scratch / "second",
                               "--include-path=" + scratch / "last"};
  request.sources.emplace_back("unit.cu", SharedBytes(text));
  FileServer server({}, nullptr);
  LocalFileProvider files(request, request.sources.front(), server);
  CHECK(questions_for(files, paths) < 10);  // of 600
}

}  // namespace cukiln::testing
