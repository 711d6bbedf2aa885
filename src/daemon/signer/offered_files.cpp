// SPDX-License-Identifier: Apache-2.0
#include "daemon/signer/offered_files.hpp"

#include <utility>

#include "base/result.hpp"

namespace cukiln::daemon {

OfferedFiles::OfferedFiles(const CompileRequest& request, const DependencySet& set,
                           const std::vector<SharedBytes>& texts)
    : set_(set), recorder_(request) {
  for (const SharedBytes& text : texts) {
    texts_.emplace(hash_of(text), text);
  }
}

Result<std::string> OfferedFiles::reply(const std::string& path) {
  if (auto own = recorder_.answer_of_source(path)) {
    return *std::move(own);
  }
  const Observation* const seen = set_.find(path);
  if (seen == nullptr) {
    return make_error(ErrorCode::invalid_argument,
                      "the compile looks at {}, which the offered dependency set does not name",
                      path);
  }
  wire::Answer answer;
  answer.path = path;
  switch (seen->kind) {
    case Observation::Kind::absent: break;
    case Observation::Kind::folder:
      answer.kind = wire::FileKind::folder;
      answer.file = seen->identity + 1;
      break;
    case Observation::Kind::file: {
      const auto text = texts_.find(seen->hash);
      if (text == texts_.end()) {
        return make_error(ErrorCode::invalid_argument, "the offer has no text of {}", path);
      }
      answer.kind = wire::FileKind::file;
      answer.file = seen->identity + 1;
      answer.bytes = text->second;
      break;
    }
  }
  const wire::Answers answers{{std::move(answer)}};
  if (std::string fault = recorder_.record(path, answers); !fault.empty()) {
    return Error(ErrorCode::invalid_argument, std::move(fault));
  }
  return answers.encode();
}

}  // namespace cukiln::daemon
