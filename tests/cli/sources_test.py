# SPDX-License-Identifier: Apache-2.0
"""export --sources: what line tables name is there, as it was compiled."""

import hashlib
import json
import sys
import unittest
from pathlib import Path

from cli import FAILED, USAGE, CliTest

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from line_table import files_of_line_table, section  # noqa: E402

KERNEL = """#include "near.cuh"
#include <far.cuh>
#include <cstdint>
#include <cmath>
extern "C" __global__ void k(float* x) {
  x[0] = std::sqrt(x[0]);
  near(x);
  far(x);
}
"""
NEAR = "__device__ inline void near(float* x) {\n  atomicAdd(x + 1, 1.0f);\n}\n"
FAR = "__device__ inline void far(float* x) {\n  atomicAdd(x + 2, 2.0f);\n}\n"


class Sources(CliTest):
    def setUp(self):
        super().setUp()
        self.write("src/k.cu", KERNEL)
        self.write("src/near.cuh", NEAR)
        self.write("include/far.cuh", FAR)
        self.laid = self.folder / "laid"

    def compile_kernel(self, flag="-lineinfo"):
        return self.one_key("src/k.cu", "-Iinclude", "--arch", "sm_90a", "--flag", flag)

    def line_table(self, key):
        self.run_cli("show", key, "--cubin", "-o", "k.cubin")
        return files_of_line_table((self.folder / "k.cubin").read_bytes())

    def check_laid(self, key):
        """Each file of the line table, and each that was read, is there with the recorded digest."""
        shown = self.run_json("show", key)
        recorded = {one["path"]: one["digest"] for one in shown["dependencies"] if one.get("digest")}
        recorded |= {one["path"]: one["digest"] for one in shown["request"]["sources"]}
        named = self.line_table(key)
        self.assertLessEqual(named, recorded.keys())
        for path, digest in recorded.items():
            laid = (self.laid / path.lstrip("/")).read_bytes()
            self.assertEqual(hashlib.blake2b(laid, digest_size=32).hexdigest(), digest, path)
        return named

    def test_all_that_a_line_table_names_is_there(self):
        key = self.compile_kernel()
        done = self.run_json("export", "--sources", "laid", "-I", "include", "-I", "src", key)
        self.assertEqual((done["sources"], done["entries"], done["missing"]), ("laid", 1, []))
        named = self.check_laid(key)
        self.assertLessEqual({"/cukiln/src/k.cu", "/cukiln/src/near.cuh", "/cukiln/inc/0/far.cuh"}, named)
        self.assertTrue(any(path.startswith("/cukiln/toolkit/") for path in named), named)
        self.assertEqual((self.laid / "cukiln/src/k.cu").read_text(), KERNEL)
        self.assertEqual((self.laid / "cukiln/inc/0/far.cuh").read_text(), FAR)
        again = self.run_cli("export", "--sources", "laid", "-I", "include", "-I", "src", key)
        self.assertIn(f"{done['files']} files of 1 entry below laid", again.out)
        self.assertIn(f"set substitute-path /cukiln {self.laid}/cukiln", again.err)

    def test_device_debug_has_the_same_files(self):
        for flag in ("-G", "--device-debug"):
            with self.subTest(flag=flag):
                key = self.compile_kernel(flag)
                done = self.run_cli("export", "--sources", "laid", "-Iinclude", "-Isrc", key)
                self.assertNotIn("compiled without", done.err)
                named = self.check_laid(key)
                self.assertLessEqual({"/cukiln/src/k.cu", "/cukiln/src/near.cuh", "/cukiln/inc/0/far.cuh"}, named)
                cubin = (self.folder / "k.cubin").read_bytes()
                for name in (b"k.cu", b"near", b"far"):  # what -lineinfo has no section for
                    self.assertIn(name, section(cubin, ".debug_info"))

    def test_a_manifest_tells_where_headers_are(self):
        manifest = {"format": 1, "modules": [{"name": "k", "sources": ["src/k.cu"], "include": ["include"],
                    "flags": ["-lineinfo"], "targets": ["sm_90a"]}]}  # fmt: skip
        self.write("m.json", json.dumps(manifest))
        self.run_cli("preload", "m.json", "--no-load")
        self.assertEqual(self.run_json("export", "--sources", "laid", "--manifest", "m.json")["missing"], [])
        (entry,) = self.run_json("ls")["entries"]
        self.check_laid(entry["key"])

    def test_a_source_of_the_store_needs_no_file(self):
        key = self.compile_kernel()
        self.write("src/k.cu", "edited since\n")
        self.run_cli("export", "--sources", "laid", "-Iinclude", "-Isrc", key)
        self.assertEqual((self.laid / "cukiln/src/k.cu").read_text(), KERNEL)

    def test_several_sources_are_taken_apart(self):
        self.write("src/second.cu", "// begins so\n" + FAR.replace("far", "other"))
        manifest = {"format": 1, "modules": [{"name": "two", "sources": ["src/k.cu", "src/second.cu"],
                    "include": ["include"], "flags": ["-lineinfo"], "targets": ["sm_90a"]}]}  # fmt: skip
        self.write("m.json", json.dumps(manifest))
        self.run_cli("preload", "m.json", "--no-load")
        (entry,) = self.run_json("ls")["entries"]
        key = entry["key"]
        for name in ("k", "second"):
            self.write(f"src/{name}.cu", "edited since\n")
        self.run_cli("export", "--sources", "laid", "-Iinclude", "-Isrc", key)
        self.check_laid(key)

    def test_a_header_that_has_changed_is_named_and_not_laid(self):  # fault 231
        key = self.compile_kernel()
        self.write("include/far.cuh", FAR + "\n")
        (self.folder / "src/near.cuh").unlink()
        failed = self.run_json("export", "--sources", "laid", "-Iinclude", "-Isrc", key, expect=FAILED)
        reasons = {one["path"]: one["reason"] for one in failed["missing"]}
        self.assertEqual(reasons.keys(), {"/cukiln/inc/0/far.cuh", "/cukiln/src/near.cuh"})
        self.assertRegex(reasons["/cukiln/inc/0/far.cuh"],
                         r"include/far\.cuh has changed: its digest is [0-9a-f]{12}, and [0-9a-f]{12} was compiled")
        self.assertIn("not found", reasons["/cukiln/src/near.cuh"])
        self.assertFalse((self.laid / "cukiln/inc").exists())
        self.assertTrue((self.laid / "cukiln/src/k.cu").exists())
        failed = self.run_cli("export", "--sources", "laid", "-Iinclude", "-Isrc", key, expect=FAILED)
        self.assertIn("k: /cukiln/inc/0/far.cuh is not there: include/far.cuh has changed", failed.err)
        self.assertIn("2 missing", failed.out)

    def test_a_file_with_other_text_is_left_as_it_is(self):  # fault 231
        key = self.compile_kernel()
        mine = self.write("laid/cukiln/src/k.cu", "mine\n")
        failed = self.run_json("export", "--sources", "laid", "-Iinclude", "-Isrc", key, expect=FAILED)
        ((path, reason),) = [(one["path"], one["reason"]) for one in failed["missing"]]
        self.assertEqual(path, "/cukiln/src/k.cu")
        self.assertIn("is there with other text; choose another folder", reason)
        self.assertEqual(mine.read_text(), "mine\n")

    def test_of_two_texts_at_one_path_the_second_is_refused(self):
        self.compile_kernel()
        self.write("src/k.cu", KERNEL + "// edited\n")
        self.compile_kernel()
        failed = self.run_json("export", "--sources", "laid", "-Iinclude", "-Isrc", expect=FAILED)
        self.assertEqual([one["path"] for one in failed["missing"]], ["/cukiln/src/k.cu"])
        self.assertIn("another of these entries", failed["missing"][0]["reason"])

    def test_without_line_tables_a_warning_says_so(self):
        key = self.one_key("src/k.cu", "-Iinclude", "--arch", "sm_90a")
        done = self.run_cli("export", "--sources", "laid", "-Iinclude", "-Isrc", key)
        self.assertIn("compiled without -lineinfo", done.err)

    def test_what_excludes_each_other_is_an_error_of_usage(self):
        for arguments in (["-o", "b", "--sources", "laid"], ["--oci", "o", "--sources", "laid"], ["-o", "b", "-I", "src"]):
            self.run_cli("export", *arguments, expect=USAGE)


if __name__ == "__main__":
    unittest.main()
