# SPDX-License-Identifier: Apache-2.0
"""scripts/check-layers finds each thing that it is there to find, and nothing in clean code."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "check-layers"
LICENSE = "// SPDX-License-Identifier: Apache-2.0\n"
UNDONE = "TO" + "DO"  # spelt so that this file passes the check it tests

ARCHITECTURE = """
| folder | responsibility | may include |
|---|---|---|
| `include/cukiln` | public API | itself |
| `src/base` | bytes | – |
| `src/key` | keys | base |
| `src/wire` | frames | base, key |
| `src/store` | tiers | base, key |
| `src/compile` | NVRTC | base, key, wire |
| `src/loader` | joins | all above |
| `src/kernels/<family>` | launchers | base, key, loader |
| `src/cli` | verbs | all but bindings |
| `src/bindings/{c,torch,python}` | C ABI | public headers only |

| door | only in |
|---|---|
| `impl()` | loader |
| `store/inner.hpp` | store |
| `loader/inner.hpp` | loader, cli |

| class | longer because |
|---|---|
| `Argued` | of a reason |

| function | longer because |
|---|---|
| `Whole::argued` | of a reason |
"""


TWO_LIBRARIES = """
| folder | library | responsibility | may include |
|---|---|---|---|
| `include/cukiln` | both | public API | itself |
| `src/base` | `cukiln` | bytes | – |
| `src/bindings/c` | `cukiln` | C ABI | base |
| `src/kernels` | `cukiln_nvfp4` | launchers | base |
| `src/bindings/torch` | `cukiln_nvfp4` | ops | base, bindings/c |
| `src/cli` | programs | verbs | all but bindings |
"""


class CheckLayersTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        self.write("ARCHITECTURE.md", ARCHITECTURE)

    def write(self, path, text, license_line=LICENSE):
        file = self.root / path
        if path.startswith(("src/", "include/")):
            text = license_line + text
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    def check(self, *arguments):
        done = subprocess.run(
            [sys.executable, SCRIPT, "--root", self.root, *arguments], capture_output=True, text=True, check=False
        )
        self.assertEqual(done.returncode, 1 if done.stdout else 0, done.stderr)
        return done.stdout

    def assert_finds(self, path, text, *words):
        self.write(path, text)
        output = self.check()
        for word in (path, *words):
            self.assertIn(word, output)

    def test_clean_code_passes(self):
        self.write("include/cukiln/a.hpp", "#include <cstdint>\n#include <cukiln/b.hpp>\n")
        self.write("include/cukiln/cukiln.h", "#include <stdint.h>\n")
        self.write("src/base/a.cpp", '#include "base/a.hpp"\n#include <sys/stat.h>\n')
        self.write("src/store/a.cpp", '#include "key/a.hpp"\n#include "embedded/schema.hpp"\n')
        self.write("src/cli/a.cpp", '#include "loader/a.hpp"\n// never throw, never getenv\n')
        self.write("src/bindings/c/a.cpp", "#include <cukiln/a.hpp>\nvoid f() { throw 1; }\n")
        self.write("src/loader/settings_environment.cpp", 'auto v = getenv("X");\n')
        self.assertEqual(self.check(), "")

    def test_a_file_begins_with_its_license(self):
        self.write("src/base/a.cpp", "int a;\n", license_line="")
        self.assertIn("src/base/a.cpp:1: a file of code begins with '// SPDX", self.check())

    def test_siblings_never_include_each_other(self):
        self.assert_finds("src/compile/a.cpp", '\n#include "store/a.hpp"\n', ":3:", "base, key, wire, not store")

    def test_a_lower_layer_never_includes_a_higher_one(self):
        self.assert_finds("src/base/a.hpp", '#include "key/a.hpp"\n', "nothing of src/, not key")

    def test_bindings_see_public_headers_only(self):
        self.assert_finds("src/bindings/c/a.cpp", '#include "base/a.hpp"\n', "not base")

    def test_includes_start_at_src(self):
        self.assert_finds("src/base/a.cpp", '#include "a.hpp"\n', "write the path from src/")

    def test_a_public_header_includes_no_third_party(self):
        self.assert_finds("include/cukiln/a.hpp", "#include <sqlite3.h>\n", "<sqlite3.h>")

    def test_a_public_header_does_not_include_cuda(self):
        self.assert_finds("include/cukiln/a.hpp", "#include <cuda.h>\n", "<cuda.h>")

    def test_the_worker_links_libc_only(self):
        self.assert_finds("src/compile/worker/main.cpp", "#include <fmt/format.h>\n", "libc")

    def test_a_folder_that_the_table_lacks(self):
        self.assert_finds("src/util/a.cpp", "int i;\n", "not in the table")

    def test_throw_outside_bindings(self):
        self.assert_finds("src/base/a.cpp", "// ok\nvoid f() { throw 1; }\n", ":3:", "throw")

    def test_throw_in_text_is_text(self):
        self.write("src/base/a.cpp", 'auto s = "throw"; /* throw\n throw */ auto r = R"(throw)";\n')
        self.assertEqual(self.check(), "")

    def test_the_environment_is_read_in_one_place(self):
        self.assert_finds("src/store/a.cpp", 'auto v = std::getenv("X");\n', "getenv")

    def test_a_header_that_is_reached_through_another_counts_as_well(self):
        self.write("src/base/a.hpp", "int a;\n")
        self.write("src/wire/a.hpp", '#include "base/a.hpp"\n')
        self.write("src/key/b.hpp", '#include "base/a.hpp"\n')
        self.write("src/loader/a.hpp", '\n#include "wire/a.hpp"\n')
        self.assertEqual(self.check(), "")
        self.assert_finds(
            "src/kernels/k.cpp",
            '\n#include "loader/a.hpp"\n',
            ':3: "wire/a.hpp" is reached through loader/a.hpp: src/kernels may not include wire',
        )

    def test_a_public_header_leads_to_its_own_only(self):
        self.write("include/cukiln/a.hpp", "#include <cukiln/b.hpp>\n")
        self.write("include/cukiln/b.hpp", "#include <cstdint>\n")
        self.write("src/bindings/c/a.cpp", "#include <cukiln/a.hpp>\n")
        self.assertEqual(self.check(), "")

    def test_a_door_is_shut_outside_its_layer(self):
        self.write("src/loader/a.cpp", "void f() { loader.impl().g(); }\n")
        self.write("src/store/a.cpp", "// loader.impl()\nvoid f() { impl(); x.impl(3); }\n")
        self.assertEqual(self.check(), "")
        self.assert_finds(
            "src/cli/a.cpp", "\nvoid f() { l->impl ( ).g(); }\n", ":3: impl() is for loader only, not cli"
        )

    def test_a_header_of_one_layer_is_not_included_elsewhere(self):
        self.write("src/store/inner.hpp", "int a;\n")
        self.write("src/store/a.hpp", '#include "store/inner.hpp"\n')
        self.assertEqual(self.check(), "")
        self.assert_finds(
            "src/loader/a.cpp", '#include "store/inner.hpp"\n', '"store/inner.hpp": it is for store only, not loader'
        )
        self.assert_finds(
            "src/loader/b.cpp",
            '#include "store/a.hpp"\n',
            '"store/inner.hpp" is reached through store/a.hpp: it is for store only, not loader',
        )

    def test_behind_a_door_that_is_open_nothing_is_looked_at(self):
        self.write("src/store/inner.hpp", "int a;\n")
        self.write("src/loader/inner.hpp", '#include "store/a.hpp"\n')
        self.write("src/store/a.hpp", '#include "store/inner.hpp"\n')
        self.write("src/cli/a.cpp", '#include "loader/inner.hpp"\n')
        self.assertNotIn("src/cli", self.check())

    def test_a_door_names_layers_that_there_are(self):
        self.write("ARCHITECTURE.md", ARCHITECTURE.replace("| loader, cli |", "| loader, shop |"))
        self.assertIn("the door loader/inner.hpp is open to ['shop']", self.check())

    def test_a_class_is_limited_over_all_its_files(self):
        members = "void f();\n" * 196
        header = "namespace n {\nclass %s final : public Base {\n public:\n" + members + "};\n}\n"
        body = "namespace n {\n" + ("void %s::f() {\n" + "  g();\n" * 98 + "}\n") * 2 + "}\n"
        self.write("src/store/a.hpp", header % "Whole")
        self.write("src/store/a.cpp", body % ("Whole", "Whole"))
        self.assertEqual(self.check(), "")  # 199 and 200 lines
        self.write("src/store/b.cpp", "namespace n {\nResult<Whole::T> Whole::g() {\n}\n}\n")
        output = self.check()
        self.assertIn("src/store/a.hpp:3: the class n::Whole has 401 lines over all files, 400 at most", output)

    def test_what_counts_as_a_class(self):
        """Comments, strings, macros and other people's braces do not mislead the count."""
        self.write(
            "src/store/a.hpp",
            "class Whole {\n  struct Part {\n    void f();\n  };\n  void f();\n};\n" + "// {\n#define X {\n",
        )
        lines = '  g("}");  // }\n' * 395
        self.write("src/store/a.cpp", "Whole::Whole(int a) : a_{a}, b_{2} {\n" + lines + "}\n")
        self.write("src/store/b.cpp", "void Whole::Part::f() {\n" + lines + "}\n")
        self.write("src/store/c.cpp", "namespace {\nclass Whole {\n" + "int a;\n" * 390 + "};\n}\n")
        self.write("src/store/d.cpp", "int a;\n" * 500 + "void f() {\n" + lines + lines + "}\n")
        output = self.check()
        self.assertIn("the class Whole has 403 lines", output)
        self.assertIn("src/store/a.cpp:2: the function Whole::Whole has 397 lines", output)
        self.assertEqual(output.count("the class"), 1)

    def test_a_branch_of_the_preprocessor_counts_once(self):
        branches = "#if A\nvoid A::f() {\n#else\nvoid A::f(int) {\n#endif\n"
        self.write(
            "src/store/a.cpp",
            "class A {\n};\n" + branches + "  g();\n" * 90 + "}\nclass B {\n" + "int b;\n" * 350 + "};\n",
        )
        self.assertEqual(self.check(), "")

    def test_a_long_class_may_be_argued(self):
        self.write("src/store/a.hpp", "namespace cukiln {\nclass Argued {\n" + "int a;\n" * 400 + "};\n}\n")
        self.assertEqual(self.check(), "")

    def test_a_function_is_limited(self):
        body = "  g();\n" * 99 + "}\n"
        self.write("src/store/a.cpp", "/// Of no account.\nvoid f() {\n" + body[len("  g();\n"):])
        self.assertEqual(self.check(), "")  # 100 lines
        for head, name in (
            ("void f() {", "f"),
            ("template <class T>\nResult<T> cukiln::f(T t) noexcept {", "f"),
            ("namespace cukiln::key { namespace { auto f(int a) -> std::vector<int> {", "key::f"),
            ("std::pair<int, int> Whole<T>::f(int (*g)()) const {", "Whole::f"),
            ("Whole::Whole(int a) : Base{a}, a_{a}, b_(2) {", "Whole::Whole"),
            ("struct Whole { explicit Whole(int a) : a_{a} {", "Whole::Whole"),
            ("struct Whole { ~Whole() CUKILN_EXCLUDES(mutex_) {", "Whole::~Whole"),
            ("struct CUKILN_CAPABILITY(of(a)) Whole { bool operator()(int a) const {", "Whole::operator()"),
            ("bool operator==(const A& a, const A& b) {", "operator=="),
            ("[[nodiscard]] __attribute__((noinline)) int f() {", "f"),
            ('extern "C" {\nint f() {', "f"),
            ("CUKILN_DEFINE(int, f, (int a)) {", "CUKILN_DEFINE"),
        ):
            with self.subTest(head):
                self.write("src/store/b.cpp", f"{head}\n{body}" + "}\n" * (head.count("{\n") + head.count("{ ")))
                lines = 101 + head.count("template")
                self.assertIn(f": the function {name} has {lines} lines, 100 at most", self.check())

    def test_what_is_no_function_has_no_limit(self):
        rows = "  {f(1), 2},\n" * 150 + "};\n"
        self.write("src/store/a.cpp", "const Row kRows[] = {\n" + rows + "std::map<int, int> rows{\n" + rows)
        self.write("src/store/b.cpp", "enum class E {\n" + "  a,\n" * 150 + "};\nstruct A final : B<int> {\n" + "int a;\n" * 150 + "};\n")
        self.assertEqual(self.check(), "")

    def test_a_long_function_may_be_argued(self):
        self.write("src/store/a.cpp", "namespace cukiln {\nint Whole::argued() {\n" + "  g();\n" * 200 + "}\n}\n")
        self.assertEqual(self.check(), "")

    def test_undone_work_and_personal_paths(self):
        self.assert_finds("tests/a.py", f"# {UNDONE} later\n", UNDONE)
        self.assert_finds("cache/FORMAT.md", "see /ho" + "me/ada/notes\n", "/ada")

    def test_a_further_expression(self):
        self.write("examples/a.cpp", "// frobnicate\n")
        self.assertEqual(self.check(), "")
        self.assertIn("frobnicate", self.check("--forbid", "frob\\w+"))

    def test_the_core_knows_nothing_of_nvfp4(self):
        self.write("ARCHITECTURE.md", TWO_LIBRARIES)
        self.write("include/cukiln/nvfp4_moe.hpp", "#include <cukiln/nvfp4.hpp>\n")
        self.write("src/kernels/a.cpp", '#include "embedded/kernels_src.hpp"\n#include <cukiln/nvfp4.hpp>\n')
        self.write("src/bindings/torch/a.cpp", '#include "bindings/c/a.hpp"\n#include <cukiln/torch.h>\n')
        self.write("src/cli/a.cpp", "#include <cukiln/nvfp4.hpp>\n")
        self.assertEqual(self.check(), "")
        self.write("src/base/a.cpp", '#include "embedded/kernels_src.hpp"\n')
        self.write("src/bindings/c/a.cpp", "#include <cukiln/nvfp4.h>\n")
        self.write("include/cukiln/cukiln.hpp", "#include <cukiln/sampling.hpp>\n")
        output = self.check()
        for path in ("src/base/a.cpp:2:", "src/bindings/c/a.cpp:2:", "include/cukiln/cukiln.hpp:2:"):
            self.assertIn(path, output)
        self.assertEqual(output.count("knows nothing of libcukiln_nvfp4"), 3)

    def test_launchers_take_the_parameters_of_kernels_from_device_code(self):
        self.write("ARCHITECTURE.md", TWO_LIBRARIES)
        signatures = '#include "kernels_src/nvfp4/gemm_signatures.cuh"\n'
        self.write("src/kernels/a.cpp", signatures)
        self.assertEqual(self.check(), "")
        self.write("src/bindings/torch/a.cpp", signatures)
        self.write("src/kernels/b.cpp", '#include "kernels_src/nvfp4/amax.cuh"\n')
        output = self.check()
        for path in ("src/bindings/torch/a.cpp:2:", "src/kernels/b.cpp:2:"):
            self.assertIn(path, output)

    def test_a_folder_of_a_folder_is_a_layer(self):
        self.write("ARCHITECTURE.md", TWO_LIBRARIES)
        self.assert_finds("src/bindings/c/a.cpp", '#include "bindings/torch/a.hpp"\n', "not bindings/torch")
        self.assert_finds("src/bindings/rust/a.cpp", "int i;\n", "not in the table")
        self.assert_finds("src/cli/a.cpp", '#include "bindings/c/a.hpp"\n', "not bindings/c")

    def test_a_document_without_the_table_is_an_error(self):
        self.write("ARCHITECTURE.md", "# Architecture\n")
        self.assertIn("may include", self.check())

    def test_a_table_that_names_an_unknown_layer_is_an_error(self):
        self.write("ARCHITECTURE.md", ARCHITECTURE.replace("| base, key |", "| base, keys |", 1))
        self.assertIn("no such folder", self.check())


if __name__ == "__main__":
    unittest.main()
