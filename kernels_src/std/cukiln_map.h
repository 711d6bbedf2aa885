// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <initializer_list>
#include <utility>

// What the maps of a host have in common. Nothing of it is defined.
namespace std {

template <class _Key, class _Tp>
class __cukiln_map {
 public:
  using key_type = _Key;
  using mapped_type = _Tp;
  using value_type = pair<const _Key, _Tp>;
  using size_type = size_t;

  class iterator {
   public:
    CUKILN_STD_FUNCTION value_type& operator*() const;
    CUKILN_STD_FUNCTION value_type* operator->() const;
    CUKILN_STD_FUNCTION iterator& operator++();
    CUKILN_STD_FUNCTION iterator operator++(int);
    CUKILN_STD_FUNCTION bool operator==(const iterator&) const;
    CUKILN_STD_FUNCTION bool operator!=(const iterator&) const;
  };
  using const_iterator = iterator;

  CUKILN_STD_FUNCTION __cukiln_map();
  CUKILN_STD_FUNCTION __cukiln_map(initializer_list<value_type>);
  CUKILN_STD_FUNCTION __cukiln_map(const __cukiln_map&);
  CUKILN_STD_FUNCTION __cukiln_map& operator=(const __cukiln_map&);
  CUKILN_STD_FUNCTION ~__cukiln_map();
  CUKILN_STD_FUNCTION iterator begin() const;
  CUKILN_STD_FUNCTION iterator end() const;
  CUKILN_STD_FUNCTION size_type size() const;
  CUKILN_STD_FUNCTION bool empty() const;
  CUKILN_STD_FUNCTION void clear();
  CUKILN_STD_FUNCTION iterator find(const _Key&) const;
  CUKILN_STD_FUNCTION size_type count(const _Key&) const;
  CUKILN_STD_FUNCTION bool contains(const _Key&) const;
  CUKILN_STD_FUNCTION _Tp& at(const _Key&) const;
  CUKILN_STD_FUNCTION _Tp& operator[](const _Key&);
  CUKILN_STD_FUNCTION size_type erase(const _Key&);
  CUKILN_STD_FUNCTION iterator erase(iterator);
  template <class _Value>
  CUKILN_STD_FUNCTION pair<iterator, bool> insert(_Value&&);
  template <class... _Args>
  CUKILN_STD_FUNCTION pair<iterator, bool> emplace(_Args&&...);
  template <class... _Args>
  CUKILN_STD_FUNCTION pair<iterator, bool> try_emplace(const _Key&, _Args&&...);
};

}  // namespace std
