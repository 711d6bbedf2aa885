// SPDX-License-Identifier: Apache-2.0
#include "core/key/name_expression.hpp"

#include <algorithm>
#include <iterator>
#include <vector>

namespace cukiln {

namespace {

using std::string_view;

constexpr string_view kBlanks = " \t\r\n\v\f";

bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }

struct NameToken {
  enum class Kind { word, number, literal, punctuator } kind = Kind::punctuator;
  string_view text;
  bool after_blank = false;

  bool is(string_view wanted) const noexcept { return text == wanted; }
};

/// The end of a number as the preprocessor reads it: `1'000.5e+3f`.
std::size_t end_of_number(string_view text, std::size_t at) {
  for (++at; at < text.size(); ++at) {
    const char c = text[at];
    const char before = text[at - 1];
    const bool is_sign = (c == '+' || c == '-') &&
                         (before == 'e' || before == 'E' || before == 'p' || before == 'P');
    const bool is_separator = c == '\'' && at + 1 < text.size() && is_word_char(text[at + 1]);
    if (!is_word_char(c) && c != '.' && !is_sign && !is_separator) {
      break;
    }
  }
  return at;
}

/// The end of a text in quotes that begins at `at`; npos if it is not closed.
std::size_t end_of_quotes(string_view text, std::size_t at) {
  const char quote = text[at];
  for (++at; at < text.size() && text[at] != quote; ++at) {
    at += text[at] == '\\' ? 1 : 0;
  }
  return at < text.size() ? at + 1 : string_view::npos;
}

/// Splits an expression. False if it is not to be changed: see canonical_name.
bool split(string_view text, std::vector<NameToken>& tokens) {
  using Kind = NameToken::Kind;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = text.find_first_not_of(kBlanks, at);
    if (begin == string_view::npos) {
      break;
    }
    const char c = text[begin];
    std::size_t end = begin + 1;
    Kind kind = Kind::punctuator;
    if (is_digit(c) || (c == '.' && end < text.size() && is_digit(text[end]))) {
      kind = Kind::number;
      end = end_of_number(text, begin);
    } else if (is_word_char(c)) {
      kind = Kind::word;
      while (end < text.size() && is_word_char(text[end])) {
        ++end;
      }
    }
    const bool has_prefix = kind == Kind::word && end < text.size();
    const std::size_t quote = has_prefix ? end : begin;
    if (kind != Kind::number && (text[quote] == '"' || text[quote] == '\'')) {
      if (quote > begin && text[quote - 1] == 'R') {
        return false;
      }
      kind = Kind::literal;
      end = end_of_quotes(text, quote);
      if (end == string_view::npos) {
        return false;
      }
    }
    const string_view token = text.substr(begin, end - begin);
    const bool begins_comment =
        token == "/" && end < text.size() && (text[end] == '/' || text[end] == '*');
    if (begins_comment || token == "\\") {
      return false;
    }
    tokens.push_back({kind, token, begin > at});
    at = end;
  }
  return true;
}

/// Whether two characters that a blank separates would be read as one token without it.
bool would_join(char first, char second) noexcept {
  constexpr string_view kDoubled = ":<>=&|+-#./";
  constexpr string_view kBeforeEqual = "<>=!+-*/%^&|";
  constexpr string_view kPairs[] = {"->", "<:", "<%", "%>", ":>", "%:", ".*", "/*", ">*"};
  const char pair[] = {first, second};
  return (first == second && kDoubled.find(first) != string_view::npos) ||
         (second == '=' && kBeforeEqual.find(first) != string_view::npos) ||
         std::find(std::begin(kPairs), std::end(kPairs), string_view(pair, 2)) != std::end(kPairs);
}

/// The tokens from `at` on, with the blanks that remain.
class NameWriter {
 public:
  NameWriter(const std::vector<NameToken>& tokens, bool old_closers)
      : tokens_(tokens), old_closers_(old_closers) {}

  std::string write(std::size_t first) const {
    std::string out;
    for (std::size_t i = first; i < tokens_.size(); ++i) {
      out += i > first && needs_blank(i) ? " " : "";
      out += tokens_[i].text;
    }
    return out;
  }

 private:
  using Kind = NameToken::Kind;

  bool needs_blank(std::size_t i) const {
    const NameToken& before = tokens_[i - 1];
    const NameToken& now = tokens_[i];
    if (before.is(",")) {
      return true;
    }
    const bool is_qualifier = now.is("const") || now.is("volatile");
    if (is_qualifier && before.kind == Kind::punctuator &&
        string_view("*&>)]").find(before.text.front()) != string_view::npos) {
      return true;
    }
    if (!now.after_blank) {
      return false;
    }
    if (before.kind != Kind::punctuator) {
      return now.kind != Kind::punctuator || goes_on_with(before, now);
    }
    if (now.kind == Kind::number) {
      return before.is(".");
    }
    return now.kind == Kind::punctuator && !closes_lists(i) && !begins_global_name(i) &&
           would_join(before.text.front(), now.text.front());
  }

  /// Whether a punctuator would become a part of the number before it: `0x1e +2`, `1 .x`.
  static bool goes_on_with(const NameToken& number, const NameToken& now) {
    const bool may_have_sign = string_view("eEpP").find(number.text.back()) != string_view::npos;
    return number.kind == Kind::number &&
           (now.is(".") || (may_have_sign && (now.is("+") || now.is("-"))));
  }

  /// `> >`, but not `> >=`.
  bool closes_lists(std::size_t i) const {
    const bool is_equal = i + 1 < tokens_.size() && tokens_[i + 1].is("=");
    return !old_closers_ && tokens_[i - 1].is(">") && tokens_[i].is(">") && !is_equal;
  }

  /// `< ::name`, which C++11 reads like `<::name`.
  bool begins_global_name(std::size_t i) const {
    return !old_closers_ && tokens_[i - 1].is("<") && tokens_[i].is(":") &&
           i + 2 < tokens_.size() && tokens_[i + 1].is(":") && tokens_[i + 2].kind == Kind::word;
  }

  const std::vector<NameToken>& tokens_;
  bool old_closers_;
};

/// The index behind a template argument list that begins at `at`; 0 if it has no end.
std::size_t end_of_list(const std::vector<NameToken>& tokens, std::size_t at) {
  int angles = 0;
  int brackets = 0;
  for (; at < tokens.size(); ++at) {
    const string_view text = tokens[at].text;
    const char c = tokens[at].kind == NameToken::Kind::punctuator ? text.front() : ' ';
    brackets += c == '(' || c == '[' || c == '{' ? 1 : 0;
    brackets -= c == ')' || c == ']' || c == '}' ? 1 : 0;
    angles += brackets == 0 && c == '<' ? 1 : 0;
    angles -= brackets == 0 && c == '>' ? 1 : 0;
    if (angles == 0) {
      return at + 1;
    }
  }
  return 0;
}

/// Whether the tokens from `at` on are a plain name: `::a::k<float, (1 > 2)>`.
bool is_plain_name(const std::vector<NameToken>& tokens, std::size_t at) {
  const auto skip_colons = [&] {
    const bool found = at + 1 < tokens.size() && tokens[at].is(":") && tokens[at + 1].is(":") &&
                       !tokens[at + 1].after_blank;
    at += found ? 2 : 0;
    return found;
  };
  skip_colons();
  do {
    if (at == tokens.size() || tokens[at].kind != NameToken::Kind::word) {
      return false;
    }
    ++at;
    if (at < tokens.size() && tokens[at].is("<") && (at = end_of_list(tokens, at)) == 0) {
      return false;
    }
  } while (skip_colons());
  return at == tokens.size();
}

}  // namespace

inline namespace v0 {

std::string canonical_name(string_view expression, bool old_closers) {
  std::vector<NameToken> tokens;
  if (!split(expression, tokens)) {
    return std::string(expression);
  }
  const bool is_address = tokens.size() > 1 && tokens[0].is("&") && is_plain_name(tokens, 1);
  return NameWriter(tokens, old_closers).write(is_address ? 1 : 0);
}

}  // namespace v0

bool is_word_char(char c) noexcept {
  const auto byte = static_cast<unsigned char>(c);
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '$' ||
         byte >= 0x80;
}

std::string address_expression(const std::string& canonical) {
  std::vector<NameToken> tokens;
  return split(canonical, tokens) && is_plain_name(tokens, 0) ? "&" + canonical : canonical;
}

}  // namespace cukiln
