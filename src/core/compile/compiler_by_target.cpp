// SPDX-License-Identifier: Apache-2.0
#include "core/compile/compiler_by_target.hpp"

#include <utility>

namespace cukiln {

struct CompilerByTarget::Choice {
  Target target;
  std::string library;
  std::shared_ptr<Compiler> compiler;
  Choice* next = nullptr;
};

CompilerByTarget::CompilerByTarget(NvrtcSearch search, Make make, Logger log)
    : search_(std::move(search)),
      make_(std::move(make)),
      log_(std::move(log)),
      fallback_(make_(std::nullopt)) {}

CompilerByTarget::~CompilerByTarget() {
  for (const Choice* choice = choices_.load(); choice != nullptr;) {
    delete std::exchange(choice, choice->next);
  }
}

Compiler& CompilerByTarget::for_target(Target target) {
  for (const Choice* known = choices_.load(); known != nullptr; known = known->next) {
    if (known->target == target) {
      return *known->compiler;
    }
  }
  NvrtcSearch search = search_;
  search.target = target;
  auto found = find_nvrtc(search);
  if (!found) {
    return *fallback_;
  }
  for (const std::string& why : found->passed_over) {
    log_.debug("{}: {} is used instead", why, found->library);
  }
  auto choice = std::make_unique<Choice>();
  choice->target = target;
  choice->library = found->library;
  std::shared_ptr<Compiler> made;
  choice->next = choices_.load();
  do {  // if another thread has added a choice for this target first, use that one
    choice->compiler = made;
    for (const Choice* known = choice->next; known != nullptr; known = known->next) {
      if (known->target == target) {
        return *known->compiler;
      }
      if (known->library == choice->library) {
        choice->compiler = known->compiler;
      }
    }
    if (choice->compiler == nullptr) {
      choice->compiler = made = make_(*found);
      made->hint_upcoming(upcoming_.load());
    }
  } while (!choices_.compare_exchange_weak(choice->next, choice.get()));
  return *choice.release()->compiler;
}

void CompilerByTarget::hint_upcoming(std::size_t compiles) {
  upcoming_.store(compiles);
  for (const Choice* known = choices_.load(); known != nullptr; known = known->next) {
    known->compiler->hint_upcoming(compiles);
  }
}

}  // namespace cukiln
