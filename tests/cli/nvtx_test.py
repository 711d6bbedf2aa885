# SPDX-License-Identifier: Apache-2.0
"""Ranges for a profiler, by a library that NVTX_INJECTION64_PATH names."""

import json
import unittest

from cli import BINARIES, FAILED, FAKE_DRIVER, CliTest

PROFILER = str(BINARIES / "libprofiler_fake.so")


class Ranges(CliTest):
    def setUp(self):
        super().setUp()
        self.log = self.folder / "ranges"
        self.profiled = {"NVTX_INJECTION64_PATH": PROFILER, "FAKE_PROFILER_LOG": str(self.log),
                         "CUKILN_CUDA_LIBRARY": FAKE_DRIVER}

    def lines(self):
        """The calls of the profiler, and by which thread; every range is ended by its own thread, the last first."""
        calls, open_ranges = [], {}
        for line in self.log.read_text().splitlines():
            thread, what = line.split(" ", 1)
            if what.startswith("push "):
                open_ranges.setdefault(thread, []).append(what)
            elif what.startswith("pop "):
                open_ranges[thread].pop()
            calls.append((thread, what))
        self.assertEqual([ranges for ranges in open_ranges.values() if ranges], [])
        return calls

    def test_a_preload_has_ranges_of_compiles_and_loads(self):
        modules = [{"name": name, "sources": ["add.cu"], "define": {"ADDEND": i}} for i, name in enumerate(("a", "b"))]
        self.write("m.json", json.dumps({"format": 1, "modules": modules}))
        self.run_cli("preload", "m.json", env=self.profiled)
        calls = self.lines()
        main = calls[0][0]
        self.assertEqual(calls[0], (main, "domain cukiln"))
        self.assertEqual(calls[1], (main, "push cukiln preload"))
        self.assertEqual(calls[-1], (main, "pop cukiln"))
        pushes = [what for _, what in calls if what.startswith("push ")]
        self.assertEqual(sorted(pushes[1:3]), ["push cukiln compile a", "push cukiln compile b"])
        self.assertEqual(pushes[3:], ["push cukiln load a", "push cukiln load b"])

        self.log.unlink()
        self.run_cli("preload", "m.json", env=self.profiled)
        pushes = [what for _, what in self.lines() if what.startswith("push ")]
        self.assertEqual(pushes, ["push cukiln preload", "push cukiln load a", "push cukiln load b"])

    def test_the_range_of_a_failed_compile_ends(self):
        self.run_cli("compile", "broken.cu", "--arch", "sm_90a", env=self.profiled, expect=FAILED)
        self.assertIn("push cukiln compile broken", [what for _, what in self.lines()])

    def test_a_library_that_cannot_be_used_is_a_warning(self):  # fault 232
        for settings, problem in (({"NVTX_INJECTION64_PATH": "/nowhere/lib.so"}, "/nowhere/lib.so"),
                                  ({"NVTX_INJECTION64_PATH": FAKE_DRIVER}, "InitializeInjectionNvtx2"),
                                  ({"FAKE_PROFILER_FAILS": "1"}, "its InitializeInjectionNvtx2 failed")):
            done = self.run_cli("compile", "add.cu", "-DADDEND=1", "--arch", "sm_90a", env=self.profiled | settings)
            self.assertIn("there are no NVTX ranges: ", done.err)
            self.assertIn(problem, done.err)
        self.assertFalse(self.log.exists())

    def test_nothing_is_opened_unless_it_is_asked_for(self):
        self.run_cli("compile", "add.cu", "-DADDEND=1", "--arch", "sm_90a",
                     env={"FAKE_PROFILER_LOG": str(self.log)})  # fmt: skip
        self.assertFalse(self.log.exists())


if __name__ == "__main__":
    unittest.main()
