// SPDX-License-Identifier: Apache-2.0
#include "addons/link/link_parts.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <numeric>
#include <optional>
#include <string_view>
#include <utility>

#include "core/base/result.hpp"
#include "core/compile/kernel_names.hpp"
#include "core/key/name_expression.hpp"
#include "core/loader/run_parallel.hpp"

namespace cukiln {

namespace {

using std::string_view;

/// Returns the identifier that a name expression names: `axpy` of `&lib::axpy<float, 4>`.
string_view last_identifier(string_view expression) {
  expression = expression.substr(0, expression.find_first_of("<("));
  while (!expression.empty() && !is_word_char(expression.back())) {
    expression.remove_suffix(1);
  }
  std::size_t begin = expression.size();
  while (begin > 0 && is_word_char(expression[begin - 1])) {
    --begin;
  }
  return expression.substr(begin);
}

bool mentions(string_view text, string_view identifier) {
  for (std::size_t at = text.find(identifier); at != string_view::npos;
       at = text.find(identifier, at + 1)) {
    const std::size_t end = at + identifier.size();
    if ((at == 0 || !is_word_char(text[at - 1])) &&
        (end == text.size() || !is_word_char(text[end]))) {
      return true;
    }
  }
  return false;
}

bool declares_kernel(ByteView text, string_view identifier) {
  const std::vector<std::string> kernels = kernels_in(text);
  return std::any_of(kernels.begin(), kernels.end(), [&](string_view kernel) {
    return kernel.substr(0, kernel.find('<')) == identifier;
  });
}

/// Which part resolves which expressions, while that is found out.
class NameAssignment {
 public:
  /// `has_objects`: what no source resolves may be a symbol of an object.
  NameAssignment(const std::vector<std::string>& expressions,
                 const std::vector<VirtualSource>& sources, bool has_objects)
      : names_(sources.size()), has_objects_(has_objects) {
    for (const std::string& expression : expressions) {
      const std::vector<std::size_t> order = candidates_of(expression, sources);
      std::deque<std::size_t>& later = later_[expression];
      later.assign(order.begin(), order.end());
      names_[later.front()].push_back(expression);
      later.pop_front();
    }
  }

  const std::vector<std::string>& of(std::size_t part) const { return names_[part]; }

  /// Moves those of a part's expressions that it could not resolve to the next candidates, or to
  /// the objects, and returns the parts whose expressions changed. Nothing if an expression has no
  /// other candidate; empty if none is the part's.
  std::optional<std::vector<std::size_t>> move_on(std::size_t part,
                                                  const std::vector<std::string>& unresolved) {
    std::vector<std::size_t> changed;
    for (const std::string& expression : unresolved) {
      const auto own = std::find(names_[part].begin(), names_[part].end(), expression);
      if (own == names_[part].end()) {
        continue;
      }
      std::deque<std::size_t>& later = later_[expression];
      const bool may_be_symbol = has_objects_ && last_identifier(expression) == expression;
      if (later.empty() && !may_be_symbol) {
        return std::nullopt;
      }
      names_[part].erase(own);
      changed.push_back(part);
      if (!later.empty()) {
        names_[later.front()].push_back(expression);
        changed.push_back(later.front());
        later.pop_front();
      }
    }
    return changed;
  }

 private:
  std::vector<std::vector<std::string>> names_;  // by part
  const bool has_objects_;
  std::map<std::string, std::deque<std::size_t>> later_;
};

std::vector<std::size_t> missing_among(const std::vector<std::optional<Result<BuiltPart>>>& built) {
  std::vector<std::size_t> missing;
  for (std::size_t i = 0; i < built.size(); ++i) {
    if (!built[i]) {
      missing.push_back(i);
    }
  }
  return missing;
}

}  // namespace

std::vector<std::size_t> candidates_of(const std::string& expression,
                                       const std::vector<VirtualSource>& sources) {
  const string_view identifier = last_identifier(expression);
  std::vector<int> ranks;
  for (const VirtualSource& source : sources) {
    const string_view text = source.text.view();
    ranks.push_back(identifier.empty() || !mentions(text, identifier) ? 2
                    : declares_kernel(text, identifier)               ? 0
                                                                      : 1);
  }
  std::vector<std::size_t> order(sources.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return ranks[a] < ranks[b]; });
  return order;
}

bool merge_dependencies(const DependencySet& part, FileServer& files, DependencySet& merged) {
  std::vector<FileIdentity> classes;  // by number
  std::map<string_view, const Observation*> known;
  const auto note_class = [&](const Observation& seen) {
    if (seen.kind != Observation::Kind::absent && seen.identity == classes.size()) {
      classes.push_back(files.identity(seen.path));
    }
  };
  for (const Observation& seen : merged.observations) {
    known[seen.path] = &seen;
    note_class(seen);
  }
  DependencySet added;  // `merged` must not move its observations while `known` points to them
  bool is_consistent = true;
  for (const Observation& seen : part.observations) {
    if (const auto before = known.find(seen.path); before != known.end()) {
      is_consistent =
          is_consistent && before->second->kind == seen.kind && before->second->hash == seen.hash;
      continue;
    }
    Observation appended = seen;
    if (seen.kind != Observation::Kind::absent) {
      const FileIdentity identity = files.identity(seen.path);
      const auto at = std::find(classes.begin(), classes.end(), identity);
      appended.identity = static_cast<std::uint32_t>(at - classes.begin());
      if (at == classes.end()) {
        classes.push_back(identity);
      }
    }
    added.observations.push_back(std::move(appended));
  }
  merged.observations.insert(merged.observations.end(),
                             std::make_move_iterator(added.observations.begin()),
                             std::make_move_iterator(added.observations.end()));
  return is_consistent;
}

Result<LinkParts> build_parts(const ModuleRequest& whole, FileServer& files, const BuildPart& build,
                              std::size_t threads) {
  const std::vector<VirtualSource>& sources = whole.request.sources;
  NameAssignment names(whole.request.options.name_expressions, sources,
                       whole.request.link && !whole.request.link->objects.empty());
  std::vector<std::optional<Result<BuiltPart>>> built(sources.size());
  std::map<std::string, Error> first_errors;  // by expression: of the likeliest source
  for (std::vector<std::size_t> wanted = missing_among(built); !wanted.empty();
       wanted = missing_among(built)) {
    run_parallel(wanted.size(), threads, [&](std::size_t i) {
      const std::size_t index = wanted[i];
      built[index] = guarded([&] { return build(part_of(whole, index, names.of(index))); });
    });
    std::vector<std::size_t> again;
    for (const std::size_t index : wanted) {
      if (*built[index]) {
        continue;
      }
      const Error error = built[index]->error();
      const std::vector<std::string> unresolved = error.code() == ErrorCode::compile_failed
                                                      ? unresolved_names(error.log())
                                                      : std::vector<std::string>();
      for (const std::string& expression : unresolved) {
        first_errors.try_emplace(expression, error);
      }
      const auto changed = names.move_on(index, unresolved);
      if (!changed) {
        return first_errors.at(unresolved.front());
      }
      if (changed->empty()) {
        return error;
      }
      again.insert(again.end(), changed->begin(), changed->end());
    }
    for (const std::size_t index : again) {  // with other expressions
      built[index].reset();
    }
  }
  LinkParts out;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    BuiltPart& part = **built[i];
    out.parts.push_back({sources[i].path, std::move(part.cubin.image)});
    out.symbols.insert(out.symbols.end(), part.cubin.kernels.begin(), part.cubin.kernels.end());
    out.uses_time = out.uses_time || part.uses_time;
    // A file that changed between two parts: the result is of no state that all files ever had.
    const bool is_consistent = merge_dependencies(part.dependencies, files, out.dependencies);
    out.observed = out.observed && part.observed && is_consistent;
  }
  return out;
}

}  // namespace cukiln
