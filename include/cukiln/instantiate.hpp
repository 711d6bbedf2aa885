// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <initializer_list>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>

#include <cukiln/name_expression.hpp>

namespace cukiln {
inline namespace v0 {

/// The name that device code has for a type, if it is not the one of this program: specialise it
/// with a `static constexpr std::string_view value`.
///
///     template <> struct cukiln::DeviceName<Half> {
///       static constexpr std::string_view value = "__half";
///     };
template <class T>
struct DeviceName {};

/// A value among types, for `instantiate`: `instantiate<Value<4>, float>("k")` is `k<4, float>`.
template <auto V>
struct Value {};

namespace detail {

template <class T>
constexpr std::string_view spelling_of_compiler() noexcept {
  std::string_view text = __PRETTY_FUNCTION__;
  const std::string_view mark = "T = ";
  text.remove_prefix(text.find(mark) + mark.size());
#if defined(__clang__)
  return text.substr(0, text.rfind(']'));  // … [T = ns::A<int>]
#else
  return text.substr(0, text.find(';'));  // … [with T = ns::A<int>; std::string_view = …]
#endif
}

template <class T, class = void>
inline constexpr bool kHasDeviceName = false;
template <class T>
inline constexpr bool kHasDeviceName<T, std::void_t<decltype(DeviceName<T>::value)>> = true;

/// Whether other code can name a class or an enumeration. Clang does not tell of a type within a
/// function.
template <class T>
constexpr bool can_be_named() noexcept {
  const std::string_view text = spelling_of_compiler<T>();
  for (const std::string_view mark : {"{anonymous}", "(anonymous", "<unnamed", "(unnamed",
                                      "<lambda", "(lambda", "()::", ")::<"}) {
    if (text.find(mark) != std::string_view::npos) {
      return false;
    }
  }
  return true;
}

template <class T>
std::string spell_type(const std::string& declarator = {});

/// Empty if device code has no such type.
template <class T>
constexpr std::string_view name_of_arithmetic() noexcept {
  if constexpr (std::is_same_v<T, void>) return "void";
  if constexpr (std::is_same_v<T, bool>) return "bool";
  if constexpr (std::is_same_v<T, char>) return "char";
  if constexpr (std::is_same_v<T, signed char>) return "signed char";
  if constexpr (std::is_same_v<T, unsigned char>) return "unsigned char";
  if constexpr (std::is_same_v<T, wchar_t>) return "wchar_t";
  if constexpr (std::is_same_v<T, char16_t>) return "char16_t";
  if constexpr (std::is_same_v<T, char32_t>) return "char32_t";
  if constexpr (std::is_same_v<T, short>) return "short";
  if constexpr (std::is_same_v<T, unsigned short>) return "unsigned short";
  if constexpr (std::is_same_v<T, int>) return "int";
  if constexpr (std::is_same_v<T, unsigned>) return "unsigned int";
  if constexpr (std::is_same_v<T, long>) return "long";
  if constexpr (std::is_same_v<T, unsigned long>) return "unsigned long";
  if constexpr (std::is_same_v<T, long long>) return "long long";
  if constexpr (std::is_same_v<T, unsigned long long>) return "unsigned long long";
  if constexpr (std::is_same_v<T, float>) return "float";
  if constexpr (std::is_same_v<T, double>) return "double";
  if constexpr (std::is_same_v<T, std::nullptr_t>) return "decltype(nullptr)";
  return {};
}

template <class T>
std::string spell_integer(T value) {
  if constexpr (std::is_same_v<T, bool>) {
    return value ? "true" : "false";
  } else if constexpr (std::is_signed_v<T>) {
    if (value == std::numeric_limits<T>::min()) {  // it has no literal of its type
      return "(-" + spell_integer<T>(std::numeric_limits<T>::max()) + "-1)";
    }
    const char* suffix = sizeof(T) <= sizeof(int) ? "" : std::is_same_v<T, long> ? "l" : "ll";
    return std::to_string(value) + suffix;
  } else {
    const char* suffix = sizeof(T) < sizeof(unsigned)            ? ""
                         : std::is_same_v<T, unsigned>           ? "u"
                         : std::is_same_v<T, unsigned long>      ? "ul"
                         : std::is_same_v<T, unsigned long long> ? "ull"
                                                                 : "";
    return std::to_string(value) + suffix;
  }
}

/// A value as template argument, of exactly its type.
template <auto V>
std::string spell_value() {
  using T = std::remove_cv_t<decltype(V)>;
  if constexpr (std::is_enum_v<T>) {
    using Integer = std::underlying_type_t<T>;
    return "(" + spell_type<T>() + ")" + spell_integer<Integer>(static_cast<Integer>(V));
  } else if constexpr (std::is_same_v<T, std::nullptr_t>) {
    return "nullptr";
  } else {
    static_assert(std::is_integral_v<T>,
                  "a value for instantiate() must be an integer, an enumerator or nullptr: what "
                  "another value is called in device code is not known");
    constexpr bool kHasLiteral = std::is_same_v<T, bool> || std::is_same_v<T, int> ||
                                 std::is_same_v<T, unsigned> || sizeof(T) > sizeof(int);
    const std::string text = spell_integer<T>(V);
    return kHasLiteral ? text : "(" + spell_type<T>() + ")" + text;
  }
}

template <class T>
struct SpelledArgument {
  static std::string spell() { return spell_type<T>(); }
};
template <auto V>
struct SpelledArgument<Value<V>> {
  static std::string spell() { return spell_value<V>(); }
};

inline std::string joined(std::initializer_list<std::string> arguments) {
  std::string text;
  for (const std::string& argument : arguments) {
    text += (text.empty() ? "" : ", ") + argument;
  }
  return text;
}

/// What precedes the argument list at the end of a type's spelling: `ns::A` of `ns::A<B<int>>`.
inline std::string template_of(std::string_view type) {
  std::size_t at = type.size();
  int depth = 0;
  do {
    --at;
    depth += type[at] == '>' ? 1 : type[at] == '<' ? -1 : 0;
  } while (depth > 0 && at > 0);
  return std::string(type.substr(0, at));
}

/// A class or an enumeration. The arguments of a template are spelt one by one, so that device
/// names are found among them, where it has types only, values only, or one or two types before
/// values.
template <class T>
struct NamedType {
  static std::string spell() { return std::string(spelling_of_compiler<T>()); }
};
template <template <class...> class C, class... Types>
struct NamedType<C<Types...>> {
  static std::string spell() {
    return template_of(spelling_of_compiler<C<Types...>>()) + "<" +
           joined({spell_type<Types>()...}) + ">";
  }
};
template <template <auto...> class C, auto V, auto... Values>
struct NamedType<C<V, Values...>> {
  static std::string spell() {
    return template_of(spelling_of_compiler<C<V, Values...>>()) + "<" +
           joined({spell_value<V>(), spell_value<Values>()...}) + ">";
  }
};
template <template <class, auto...> class C, class T, auto V, auto... Values>
struct NamedType<C<T, V, Values...>> {
  static std::string spell() {
    return template_of(spelling_of_compiler<C<T, V, Values...>>()) + "<" +
           joined({spell_type<T>(), spell_value<V>(), spell_value<Values>()...}) + ">";
  }
};
template <template <class, class, auto...> class C, class T, class U, auto V, auto... Values>
struct NamedType<C<T, U, V, Values...>> {
  static std::string spell() {
    return template_of(spelling_of_compiler<C<T, U, V, Values...>>()) + "<" +
           joined({spell_type<T>(), spell_type<U>(), spell_value<V>(), spell_value<Values>()...}) +
           ">";
  }
};

/// In parentheses if it is that of a pointer or a reference, behind which an array or a function
/// has its own.
inline std::string enclosed(const std::string& declarator) {
  const bool binds = !declarator.empty() && (declarator[0] == '*' || declarator[0] == '&');
  return binds ? "(" + declarator + ")" : declarator;
}

/// Types that are made of others; without `spell` for the rest.
template <class T>
struct CompoundType {
  static constexpr bool kIsCompound = false;
};
template <class T, class... Parameters>
struct CompoundType<T(Parameters...)> {
  static constexpr bool kIsCompound = true;
  static std::string spell(const std::string& declarator) {
    return spell_type<T>(enclosed(declarator) + "(" + joined({spell_type<Parameters>()...}) + ")");
  }
};
template <class T>
struct CompoundType<T[]> {
  static constexpr bool kIsCompound = true;
  static std::string spell(const std::string& declarator) {
    return spell_type<T>(enclosed(declarator) + "[]");
  }
};
template <class T, std::size_t N>
struct CompoundType<T[N]> {
  static constexpr bool kIsCompound = true;
  static std::string spell(const std::string& declarator) {
    return spell_type<T>(enclosed(declarator) + "[" + std::to_string(N) + "]");
  }
};
template <class T>
struct CompoundType<T&> {
  static constexpr bool kIsCompound = true;
  static std::string spell(const std::string& declarator) {
    return spell_type<T>("&" + declarator);
  }
};
template <class T>
struct CompoundType<T&&> {
  static constexpr bool kIsCompound = true;
  static std::string spell(const std::string& declarator) {
    return spell_type<T>("&&" + declarator);
  }
};

template <class T>
std::string spell_type(const std::string& declarator) {
  using Plain = std::remove_cv_t<T>;
  const std::string qualifiers =
      std::string(std::is_const_v<T> ? "const " : "") + (std::is_volatile_v<T> ? "volatile " : "");
  if constexpr (std::is_pointer_v<T>) {
    const std::string behind = qualifiers.empty() ? "" : " " + qualifiers;
    return spell_type<std::remove_pointer_t<T>>("*" + behind + declarator);
  } else if constexpr (CompoundType<T>::kIsCompound) {
    return CompoundType<T>::spell(declarator);
  } else if constexpr (kHasDeviceName<Plain>) {
    return qualifiers + std::string(DeviceName<Plain>::value) + declarator;
  } else if constexpr (std::is_class_v<T> || std::is_union_v<T> || std::is_enum_v<T>) {
    static_assert(can_be_named<Plain>(),
                  "this type is in a function, a lambda or an unnamed namespace, or has no name: "
                  "device code cannot name it");
    return qualifiers + NamedType<Plain>::spell() + declarator;
  } else {
    static_assert(!name_of_arithmetic<Plain>().empty(),
                  "device code has no such type, or none whose name is known here; specialise "
                  "cukiln::DeviceName for it");
    return qualifiers + std::string(name_of_arithmetic<Plain>()) + declarator;
  }
}

template <class... Types>
std::string instance(std::string_view name, std::initializer_list<std::string> values = {}) {
  std::string types = joined({SpelledArgument<Types>::spell()...});
  const std::string rest = joined(values);
  types += (types.empty() || rest.empty() ? "" : ", ") + rest;
  return canonical_name(std::string(name) + "<" + types + ">");
}

}  // namespace detail

/// Returns the name expression of a template's instance, in the canonical spelling, for
/// `ModuleSpec::names` and lookups. Arguments are types, values, or types before values; a `Value`
/// is a value among types.
///
///     instantiate<float, 4>("ns::kernel")              // ns::kernel<float, 4>
///     instantiate<ns::Policy<int, 2>, const float*>("k")  // k<ns::Policy<int, 2>, const float*>
///     instantiate<Value<true>, float>("k")             // k<true, float>
///
/// A class or enumeration is called as the compiler calls it, or as `DeviceName` says, and must
/// exist under that name in device code. Device names are found among the arguments of templates
/// with types only, values only, or one or two types before values. Integers have exactly their
/// type: `4u`, `(char)97`. Arguments that cannot be named do not compile: types within functions,
/// lambdas and unnamed namespaces, pointers to members, `long double`, pointers as values.
template <auto... Values>
std::string instantiate(std::string_view name) {
  return detail::instance<>(name, {detail::spell_value<Values>()...});
}
template <class T, class... Types>
std::string instantiate(std::string_view name) {
  return detail::instance<T, Types...>(name);
}
template <class A, auto V, auto... Values>
std::string instantiate(std::string_view name) {
  return detail::instance<A>(name, {detail::spell_value<V>(), detail::spell_value<Values>()...});
}
template <class A, class B, auto V, auto... Values>
std::string instantiate(std::string_view name) {
  return detail::instance<A, B>(name, {detail::spell_value<V>(), detail::spell_value<Values>()...});
}
template <class A, class B, class C, auto V, auto... Values>
std::string instantiate(std::string_view name) {
  return detail::instance<A, B, C>(name,
                                   {detail::spell_value<V>(), detail::spell_value<Values>()...});
}
template <class A, class B, class C, class D, auto V, auto... Values>
std::string instantiate(std::string_view name) {
  return detail::instance<A, B, C, D>(name,
                                      {detail::spell_value<V>(), detail::spell_value<Values>()...});
}

}  // namespace v0
}  // namespace cukiln
