// SPDX-License-Identifier: Apache-2.0
#include "core/base/target_families.hpp"

#include <doctest/doctest.h>

#include <string>

using namespace cukiln;

TEST_CASE("a target is followed by its families, the nearest first") {
  const auto names = [](Target wanted) {
    std::string text;
    for (const Target target : target_and_families(wanted)) {
      text += target.name() + " ";
    }
    return text;
  };
  CHECK(names({100, 'a'}) == "sm_100a sm_100f ");
  CHECK(names({103, 'a'}) == "sm_103a sm_103f sm_100f ");
  CHECK(names({107, 'f'}) == "sm_107f sm_100f ");
  CHECK(names({107, 0}) == "sm_107 sm_107f sm_100f ");
  CHECK(names({121, 'a'}) == "sm_121a sm_121f sm_120f ");
  CHECK(names({101, 'a'}) == "sm_101a sm_101f ");
  CHECK(names({110, 'a'}) == "sm_110a sm_110f ");
  CHECK(names({90, 'a'}) == "sm_90a ");
  CHECK(names({86, 0}) == "sm_86 ");
}

TEST_CASE("what stands in for the target of a device runs on it") {
  for (const int capability : {75, 80, 89, 90, 100, 101, 103, 107, 110, 120, 121, 130}) {
    for (const char suffix : {'\0', 'a', 'f'}) {
      for (const Target target : target_and_families({capability, suffix})) {
        CAPTURE(target.name());
        CHECK(target.runs_on(capability));
      }
    }
  }
}
