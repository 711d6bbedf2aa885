// SPDX-License-Identifier: Apache-2.0
#include "core/compile/kernel_names.hpp"

#include <doctest/doctest.h>

using namespace cukiln;

using Names = std::vector<std::string>;

TEST_CASE("kernels are found by name, and templates are marked") {
  CHECK(kernels_in("extern \"C\" __global__ void f(int* p) {}\n"
                   "template <class T, int n>\n__global__ void fill(T* x) { x[0] = n; }\n"
                   "__device__ void helper() {}\nnamespace a { __global__ void g (int); }\n") ==
        Names{"f", "fill<...>", "g"});
}

TEST_CASE("attributes with parentheses are not taken for names") {
  CHECK(kernels_in(
            "__global__ void __launch_bounds__(128, 2) __cluster_dims__(2, 1, 1)\n"
            "bounded(int* p);\n__attribute__((unused)) __global__ void\nother(float (&x)[2]);") ==
        Names{"bounded", "other"});
}

TEST_CASE("a declaration and its definition count once, comments not at all") {
  CHECK(kernels_in("// __global__ void a(int);\n/* __global__ void b(int); */ int c = 4 / 2;\n"

                   "__global__ void d(int); __global__ void d(int) {}\n"
                   "// the last line: __global__ void z(int)") == Names{"d"});
}

TEST_CASE("text without a complete kernel gives no name") {
  CHECK(kernels_in("").empty());
  CHECK(kernels_in("__global__").empty());
  CHECK(kernels_in("__global__ void f").empty());
  CHECK(kernels_in("__global__ void f(").size() == 1);
  CHECK(kernels_in("#define KERNEL __global__ void\n/* open").empty());
  CHECK(kernels_in("/").empty());
}

TEST_CASE("unresolved name expressions are found in the log") {
  CHECK(unresolved_names(
            "__nv_name_map(3): error: cannot determine which instance of function template \"g\" "
            "is intended\n  #pragma nv_mangled_name g\n                          ^\n\n"
            "__nv_name_map(3): error: Error in parsing name expression\n"
            "  #pragma nv_mangled_name g\n                          ^\n\n"
            "__nv_name_map(4): error: identifier \"Q\" is undefined\n"
            "  #pragma nv_mangled_name h<Q>\n                            ^\n") ==
        Names{"g", "h<Q>"});
  CHECK(unresolved_names("k.cu(1): error: identifier \"x\" is undefined\n").empty());
  CHECK(unresolved_names("__nv_name_map(4): error: cut off").empty());
}
