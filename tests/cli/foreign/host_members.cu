// SPDX-License-Identifier: Apache-2.0
// What headers for hosts and devices have in their host parts: members of a host's types, and its functions.
#include <algorithm>
#include <compare>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <random>
#include <shared_mutex>
#include <sstream>
#include <string>
#include <typeindex>
#include <unordered_map>
#include <vector>

struct Cache {
  std::mutex mutex;
  mutable std::shared_mutex shared;
  std::unordered_map<int, std::string> names;
  std::map<int, std::vector<Cache*>> children;
  std::unordered_map<std::type_index, int> types;
  std::mt19937 engine;
  std::uniform_int_distribution<int> distribution;

  int find(std::string_view name, uint fallback) {
    const std::lock_guard<std::mutex> lock(mutex);
    const std::shared_lock<std::shared_mutex> reading(shared);
    for (auto& [key, value] : names) {
      if (std::strcmp(value.c_str(), name.data()) == 0) {
        return key;
      }
    }
    const auto at = children.find(std::atoi(name.data()));
    return at != children.end() ? at->first : static_cast<int>(fallback) + distribution(engine);
  }
};

struct Failure : std::runtime_error {
  explicit Failure(const std::string& text) : std::runtime_error(text), text_(text) {}
  std::string_view cause() const {
    const std::string_view all = std::string_view{text_};
    return all.substr(all.find(": ") + 2);
  }

 private:
  std::string text_;
};

int next_number() {
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  static int number = 0;
  return ++number;
}

static_assert(std::string_view("a: b: c").find(": ") == 1 && std::string_view("a: b").find(": ", 2) == std::string_view::npos);
static_assert(std::string_view("ab").find("abc") == std::string_view::npos && std::string_view("ab").find("") == 0);

struct Version {
  int major;
  int minor;
  auto operator<=>(const Version&) const = default;
};
static_assert(Version{12, 8} < Version{13, 0} && std::is_eq(Version{1, 2} <=> Version{1, 2}));

constexpr int smallest_of(int a, int b, int c) {
  int all[] = {a, b, c};
  std::sort(all, all + 3);
  return all[0];
}
static_assert(smallest_of(3, 1, 2) == 1);

extern "C" __global__ void sorted(int* x) {
  std::sort(x, x + 8, [](int a, int b) { return a > b; });
}
