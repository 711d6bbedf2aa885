// SPDX-License-Identifier: Apache-2.0
#include "core/key/name_expression.hpp"

#include <string>
#include <utility>

#include <doctest/doctest.h>

namespace cukiln {
namespace {

TEST_CASE("name expressions: a canonical spelling stays as it is") {
  for (const char* name : {
           "scale",
           "ns::k<float, 4>",
           "k<unsigned int, 16, true>",
           "k<A<B<int>>, -1>",
           "k<const float*, float* const, A<int> const&>",
           "k<'a b', 1'000, L'c'>",
           "static_cast<void(*)(float*)>(k<float>)",
           "k<::ns::T, 0x1e +2>",
           "k<void(int, char)>",
           "&(k<int>)",
           "",
       }) {
    CAPTURE(name);
    CHECK(canonical_name(name) == name);
  }
}

TEST_CASE("name expressions: blanks and a leading & do not matter") {
  const std::pair<const char*, const char*> cases[] = {
      {"&ns::k<float, 4>", "ns::k<float, 4>"},
      {" & ns :: k\t<\nfloat,4 > ", "ns::k<float, 4>"},
      {"k<unsigned  int >", "k<unsigned int>"},
      {"k<A<int> >", "k<A<int>>"},
      {"k<A<B<int> > >", "k<A<B<int>>>"},
      {"k< ::T>", "k<::T>"},
      {"k<float *const, T &, T && >", "k<float* const, T&, T&&>"},
      {"&V", "V"},
      {"&::ns::v<int>", "::ns::v<int>"},
      {"k<(a  ==  b)>", "k<(a==b)>"},
      {"k<(1 > 2), (a >> 1), (1 + +2)>", "k<(1>2), (a>>1), (1+ +2)>"},
  };
  for (const auto& [given, expected] : cases) {
    CAPTURE(given);
    CHECK(canonical_name(given) == expected);
  }
}

TEST_CASE("name expressions: what a blank separates stays separate") {
  const std::pair<const char*, const char*> cases[] = {
      {"k<(a & &b)>", "k<(a& &b)>"},   {"k<(a - -1)>", "k<(a- -1)>"},
      {"k<(a + ++b)>", "k<(a+ ++b)>"}, {"k<(a > >= b)>", "k<(a> >=b)>"},
      {"k<(p - > 1)>", "k<(p- >1)>"},  {"k<(0x1e + 2)>", "k<(0x1e +2)>"},
      {"k<(L 'a')>", "k<(L 'a')>"},    {"k<(a < ::b)>", "k<(a<::b)>"},
      {"k<(a : : b)>", "k<(a: :b)>"},  {"k<(a / *b)>", "k<(a/ *b)>"},
      {"k<(1 . x)>", "k<(1 .x)>"},     {"k<(a . 5)>", "k<(a. 5)>"},
  };
  for (const auto& [given, expected] : cases) {
    CAPTURE(given);
    CHECK(canonical_name(given) == expected);
    CHECK(canonical_name(expected) == expected);
  }
}

TEST_CASE("name expressions: quotes, comments and other syntax are not touched") {
  for (const char* name : {"k<'  '>", "k<\" a  \\\" b\">", "k<int /* a  b */ >", "k<int  // c\n>",
                           "k<R\"( ) )\" >", "k<int \\\n >", "k<'a >", "& (x  /* c */)"}) {
    CAPTURE(name);
    CHECK(canonical_name(name) == name);
  }
  CHECK(canonical_name("&&k<int>") == "&&k<int>");
  CHECK(canonical_name("&a[1]") == "&a[1]");
  CHECK(canonical_name("&k<int") == "&k<int");
}

TEST_CASE("name expressions: C++03 has other closers and digraphs") {
  CHECK(canonical_name("q< A<int> >", true) == "q<A<int> >");
  CHECK(canonical_name("q< ::A>", true) == "q< ::A>");
}

TEST_CASE("name expressions: NVRTC gets the address of a plain name") {
  CHECK(address_expression("ns::k<float, (1>2)>") == "&ns::k<float, (1>2)>");
  CHECK(address_expression("V") == "&V");
  CHECK(address_expression("::a<b>::c") == "&::a<b>::c");
  for (const char* other : {"static_cast<void(*)(float*)>(k<float>)", "(k<int>)", "a+1", "k<int",
                            "", "&&k", "a[1]", "1", "a::", "(void*)&v"}) {
    CAPTURE(other);
    CHECK(address_expression(other) == other);
  }
}

}  // namespace
}  // namespace cukiln
