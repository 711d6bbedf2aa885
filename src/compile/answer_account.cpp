#include "compile/answer_account.hpp"

#include "base/hasher.hpp"

namespace cukiln {

AnswerAccount::AnswerAccount(const CompileRequest& request)
    : looked_at_(request, request.translation_unit()) {}

std::string AnswerAccount::learn(const std::string& path, const wire::Answers& answers) {
  if (answers.answers.empty() || answers.answers.front().path != path) {
    return "the answer is not about " + path;
  }
  for (const wire::Answer& answer : answers.answers) {
    if (source(answer.path) != nullptr) {
      return "the answer is about a source, " + answer.path;
    }
    // As the worker: what was said first is what was compiled.
    const auto [at, is_new] = told_.try_emplace(answer.path);
    if (is_new) {
      const bool is_file = answer.kind == wire::FileKind::file;
      at->second = {answer.kind, is_file ? digest_of(answer.bytes) : Digest128{},
                    is_file && has_time_macro(answer.bytes)};
    }
  }
  note(path);
  return {};
}

void AnswerAccount::note(const std::string& path) {
  const auto at = told_.find(path);
  if (at == told_.end()) {
    return;
  }
  const Told& told = at->second;
  switch (told.kind) {
    case wire::FileKind::file: looked_at_.add_file(path, told.digest, told.has_time); break;
    case wire::FileKind::folder: looked_at_.add_folder(path); break;
    case wire::FileKind::absent: looked_at_.add_absent(path); break;
    case wire::FileKind::error: looked_at_.add_unreadable(path + " cannot be read"); break;
  }
}

DependencySet AnswerAccount::take_dependencies(const wire::Compiled& compiled) {
  for (const std::string& path : compiled.used) {
    note(path);
  }
  return looked_at_.take(compiled.inferred_absent);
}

}  // namespace cukiln
