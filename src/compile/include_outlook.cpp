#include "compile/include_outlook.hpp"

namespace cukiln {

namespace {

void skip_blanks(ByteView text, std::size_t& at) {
  while (at < text.size() && (text[at] == ' ' || text[at] == '\t')) {
    ++at;
  }
}

}  // namespace

std::vector<IncludeName> includes_in(ByteView text) {
  constexpr std::string_view kDirective = "include";
  std::vector<IncludeName> names;
  for (std::size_t at = text.find('#'); at != ByteView::npos; at = text.find('#', at)) {
    ++at;
    skip_blanks(text, at);
    if (text.substr(at, kDirective.size()) != kDirective) {
      continue;
    }
    at += kDirective.size();
    skip_blanks(text, at);
    if (at >= text.size() || (text[at] != '<' && text[at] != '"')) {
      continue;
    }
    const bool quoted = text[at] == '"';
    const std::size_t begin = at + 1;
    const std::size_t end = text.find_first_of(quoted ? "\"\n" : ">\n", begin);
    if (end != ByteView::npos && text[end] != '\n' && end != begin) {
      names.push_back({text.substr(begin, end - begin), quoted});
    }
  }
  return names;
}

}  // namespace cukiln
