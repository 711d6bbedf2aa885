# SPDX-License-Identifier: Apache-2.0
"""preload, with the shipped manifest and others, over the stand-in for the driver."""

import json
import re
import signal
import subprocess
import time
import unittest
from pathlib import Path

from cli import CUKILN, CliTest, DONE, ENVIRONMENT, FAILED, FAKE_DRIVER, USAGE


CORE_CUKILN = str(Path(CUKILN).parent / "without_nvfp4" / "cukiln")


def driver(**settings):
    return {"CUKILN_CUDA_LIBRARY": FAKE_DRIVER} | {f"FAKE_CUDA_{k}": v for k, v in settings.items()}


class Preload(CliTest):
    def manifest(self, *modules):
        self.write("m.json", json.dumps({"format": 1, "modules": modules}))
        return "m.json"

    def two(self):
        return self.manifest({"name": "scaling", "sources": ["scale.cu"], "names": ["scale", "shift"]},
                             {"name": "adding", "sources": ["add.cu"], "define": {"ADDEND": 5}, "names": ["add"]})

    def test_shipped_kernels_twice(self):
        arguments = ("preload", "--no-load", "--arch", "sm_100a")
        first = self.run_json(*arguments)
        self.assertEqual((first["hits"], first["failed"]), (0, 0))
        self.assertGreater(first["compiled"], 3)
        self.assertIn("sampler", [m["name"] for m in first["modules"]])
        second = self.run_json(*arguments, "--offline")
        self.assertEqual((second["hits"], second["compiled"]), (first["compiled"], 0))
        for report, slow in ((first, "compile_ms"), (second, "look_up_ms")):
            phases = report["phases"]
            self.assertEqual(list(phases), ["find_ms", "hash_ms", "look_up_ms", "fetch_ms", "compile_ms", "load_ms"])
            self.assertLessEqual(sum(phases.values()), report["milliseconds"])
            self.assertGreater(phases[slow], 0)
            self.assertEqual((phases["fetch_ms"], phases["load_ms"]), (0, 0))
        self.assertGreater(first["phases"]["compile_ms"], first["milliseconds"] / 2)
        self.assertEqual(second["phases"]["compile_ms"], 0)
        peaks = {m["name"]: m["peak_bytes"] for m in first["modules"]}
        self.assertTrue(all(20 << 20 < peak < 4 << 30 for peak in peaks.values()), peaks)
        self.assertEqual({m["peak_bytes"] for m in second["modules"]}, {0})
        listed = {e["name"]: e["peak_bytes"] for e in self.run_json("ls")["entries"]}
        self.assertEqual(listed, peaks)
        key = first["modules"][0]["key"]
        self.assertRegex(self.run_cli("show", key).out, r"(?m)^ +memory +\d+\.\d MiB at most$")
        text = self.run_cli(*arguments).out
        self.assertRegex(text, r"(?m)^amax_gsa +sm_100a +hit +")
        self.assertRegex(text, r"(?m)^find .*, look up [^,]+$")
        _, shown = self.run_on_terminal(*arguments, "--color", "never")
        lines = shown.split("\r\x1b[K")[-1].splitlines()
        self.assertGreater(len(lines), 20)
        self.assertLessEqual(max(map(len, lines)), 80)

    def test_the_times_fit_the_terminal(self):
        _, shown = self.run_on_terminal("preload", self.two(), "--color", "never", columns=40, env=driver())
        lines = shown.split("\r\x1b[K")[-1].splitlines()
        (first,) = (n for n, line in enumerate(lines) if line.startswith("find "))
        self.assertRegex(lines[first + 1], "^  .*load [^,]+$")
        self.assertLessEqual(max(map(len, lines[first : first + 2])), 40)

    def test_a_build_without_nvfp4_asks_for_a_manifest(self):
        def run(*arguments):
            worker = str(Path(CUKILN).parent / "cukiln-compile-worker")  # it is beside the other program
            return subprocess.run([CORE_CUKILN, "preload", "--no-load", *arguments], cwd=self.folder,
                                  env=self.environment | {"CUKILN_WORKER": worker}, capture_output=True, text=True,
                                  timeout=120)  # fmt: skip

        done = run()
        self.assertEqual((done.returncode, done.stdout), (USAGE, ""))
        self.assertIn("built without kernels of its own", done.stderr)
        self.assertIn("cukiln preload kernels.json", done.stderr)  # what to do
        self.assertEqual(run(self.two()).returncode, DONE)

    def test_an_own_manifest(self):
        report = self.run_json("preload", self.two(), "--no-load", "--jobs", "2")
        self.assertEqual([(m["name"], m["target"]) for m in report["modules"]],
                         [("scaling", "sm_100a"), ("adding", "sm_100a")])  # fmt: skip
        report = self.run_json("preload", self.two(), "--no-load", "--arch", "sm_90a", "--arch", "sm_100a")
        self.assertEqual((report["hits"], report["compiled"]), (2, 2))

    def test_an_architecture_among_the_flags_that_loses_is_said(self):
        for flag, said in (("-arch=sm_80", True), ("-arch=sm_90", False)):
            manifest = self.manifest({"name": "scaling", "sources": ["scale.cu"], "targets": ["sm_90"], "flags": [flag]})
            shown = self.run_cli("preload", manifest, "--no-load").err
            self.assertEqual("scaling: the architecture sm_80 among the flags is not compiled for" in shown, said, shown)

    def test_loads_on_every_device_for_its_own_target(self):
        report = self.run_json("preload", self.two(), env=driver(DEVICES="2", CAPABILITY="90,100"))
        self.assertEqual([(m["name"], m["target"]) for m in report["modules"]],
                         [("scaling", "sm_90a"), ("scaling", "sm_100a"),
                          ("adding", "sm_90a"), ("adding", "sm_100a")])  # fmt: skip
        self.assertTrue(all(m["load_milliseconds"] > 0 for m in report["modules"]))
        self.assertEqual(report["failed"], 0)

    def test_devices_can_be_chosen(self):
        env = driver(DEVICES="2", CAPABILITY="90,100")
        report = self.run_json("preload", self.two(), "--devices", "1", env=env)
        self.assertEqual({m["target"] for m in report["modules"]}, {"sm_100a"})
        self.run_cli("preload", self.two(), "--devices", "all", env=env)
        result = self.run_cli("preload", self.two(), "--devices", "7", env=env, expect=USAGE)
        self.assertIn("no device 7", result.err)

    def test_what_the_machine_lacks_is_said_once(self):
        result = self.run_cli("preload", self.two(), "--no-load", env={"CUKILN_NVRTC_LIBRARY": "/nowhere"}, expect=ENVIRONMENT)
        self.assertEqual(result.err.count("/nowhere"), 1, result.err)
        self.assertIn("scaling for sm_100a and 1 other: ", result.err)

    def test_a_manifest_without_modules_is_said(self):
        self.assertIn("the manifest has no module", self.run_cli("preload", self.manifest(), "--no-load").err)

    def test_a_missing_driver_is_reported_with_what_to_do(self):
        result = self.run_cli("preload", self.two(), expect=ENVIRONMENT)
        self.assertIn("--no-load", result.err)

    def test_a_failing_driver_is_reported(self):
        result = self.run_cli("preload", self.two(), env=driver(FAIL="cuInit=100"), expect=ENVIRONMENT)
        self.assertIn("100", result.err)
        self.run_cli("preload", self.two(), env=driver(FAIL="cuLibraryLoadData=2"), expect=ENVIRONMENT)

    def test_a_target_of_no_device_is_refused(self):
        result = self.run_cli("preload", self.two(), "--arch", "sm_120", env=driver(), expect=FAILED)
        self.assertIn("sm_120", result.err)

    def test_a_device_of_a_family_loads_the_familys_cubin(self):
        env = driver(CAPABILITY="122")
        report = self.run_json("preload", self.two(), env=env)
        self.assertEqual({m["target"] for m in report["modules"]}, {"sm_120f"})
        self.assertEqual(report["failed"], 0)
        result = self.run_cli("preload", self.two(), "--arch", "sm_121a", env=env, expect=FAILED)
        self.assertIn("was compiled for sm_121a, which runs on none of the 1 chosen devices", result.err)

    def test_offline_names_each_missing_module(self):
        self.run_cli("preload", self.two(), "--no-load", "--arch", "sm_90a")
        result = self.run_cli("preload", self.two(), "--no-load", "--offline", "--arch", "sm_90a,sm_100a",
                              expect=FAILED)  # fmt: skip
        self.assertIn("scaling for sm_100a is not in the store", result.err)
        self.assertIn("adding for sm_100a is not in the store", result.err)
        self.assertNotIn("sm_90a is not in the store", result.err)
        self.assertIn("2 hits, 2 missing", result.out)

    def test_one_failure_does_not_stop_the_others(self):
        manifest = self.manifest({"name": "broken", "sources": ["broken.cu"]},
                                 {"name": "adding", "sources": ["add.cu"], "define": {"ADDEND": 5}})
        report = self.run_json("preload", manifest, "--no-load", expect=FAILED)
        self.assertEqual([m["outcome"] for m in report["modules"]], ["failed", "compiled"])
        self.assertIn("nowhere", report["modules"][0]["error"])

    def test_a_missing_source(self):
        manifest = self.manifest({"name": "lost", "sources": ["lost.cu"]})
        result = self.run_cli("preload", manifest, "--no-load", expect=USAGE)
        self.assertIn("lost.cu", result.err)

    def test_the_manifest_may_be_an_option(self):
        report = self.run_json("preload", "--manifest", self.two(), "--no-load")
        self.assertEqual(report["compiled"], 2)

    def test_an_interrupt_prints_how_many_modules_are_stored(self):
        count = 80
        many = self.manifest(*({"name": f"m{i}", "sources": ["add.cu"], "define": {"ADDEND": i}} for i in range(count)))
        process = subprocess.Popen(
            [CUKILN, "preload", many, "--no-load", "--jobs", "1", "--arch", "sm_90a"], cwd=self.folder, env=self.environment,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)  # fmt: skip
        deadline = time.monotonic() + 60
        while not self.run_json("ls")["entries"] and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=60)[1]
        self.assertEqual(process.returncode, -signal.SIGINT, said)
        found = re.fullmatch(rf"(\d+) of {count} modules are in the store; run the same command again to continue\n", said)
        self.assertIsNotNone(found, said)
        stored = len(self.run_json("ls")["entries"])
        self.assertIn(stored - int(found[1]), (0, 1), "one may have been written a moment before")

    def test_a_progress_bar_only_on_a_terminal(self):
        several = self.manifest(*({"name": f"m{i}", "sources": ["add.cu"], "define": {"ADDEND": i}} for i in range(5)))
        arguments = ("preload", several, "--no-load", "--arch", "sm_100a")
        code, shown = self.run_on_terminal(*arguments, "--color", "never")
        self.assertEqual(code, DONE)
        self.assertRegex(shown, r"\[[#-]{20}\] \d/\d")
        self.assertEqual(self.run_cli(*arguments, "--arch", "sm_90a").err, "")
        code, shown = self.run_on_terminal(*arguments, "--quiet", "--arch", "sm_90a")
        self.assertNotRegex(shown, r"\[[#-]{20}\]")


if __name__ == "__main__":
    unittest.main()
