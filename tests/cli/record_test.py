# SPDX-License-Identifier: Apache-2.0
"""record: what an application asked for, as a manifest that preload then finds whole."""

import json
import os
import signal
import subprocess
import sys
import unittest
from pathlib import Path

from cli import CUKILN, CliTest, FAILED, USAGE

# Tells which signals came, and ends with 7 after SIGTERM.
WAITS_FOR_SIGNALS = """
import signal, sys
signals = {signal.SIGUSR1, signal.SIGHUP, signal.SIGINT, signal.SIGTERM}
signal.pthread_sigmask(signal.SIG_BLOCK, signals)
print("ready", flush=True)
while (got := signal.sigwait(signals)) != signal.SIGTERM:
    print(signal.Signals(got).name, flush=True)
print("SIGTERM", flush=True)
sys.exit(7)
"""


class Record(CliTest):
    def manifest(self, name="m.json"):
        return json.loads((self.folder / name).read_text())

    def test_recorded_modules_are_preloaded_from_the_store(self):
        self.write("include/extra.cuh", "#define EXTRA 1\n")
        (self.folder / "made").mkdir()
        recorded = self.run_json(
            "record", "-o", "made/m.json", "--", CUKILN, "compile", "scale.cu", "add.cu", "-I", "include", "-DADDEND=3",
            "--flag=-O3", "--flag=--use_fast_math", "--arch", "sm_90a,sm_100a")  # fmt: skip
        self.assertEqual((recorded["modules"], recorded["exit_code"]), (2, 0))
        scale, add = self.manifest("made/m.json")["modules"]
        self.assertEqual(scale["sources"], ["../scale.cu"])
        self.assertEqual(scale["targets"], ["sm_90a", "sm_100a"])
        self.assertEqual(add["include"], ["../include"])
        report = self.run_json("preload", "made/m.json", "--no-load", "--offline")
        self.assertEqual([(m["name"], m["outcome"]) for m in report["modules"]],
                         [("scale", "hit"), ("scale", "hit"), ("add", "hit"), ("add", "hit")])  # fmt: skip
        # From anywhere, for it is the manifest that paths are relative to.
        self.assertEqual(sorted(p.name for p in self.folder.glob("made/*")), ["m.json"])

    # fault 344
    def test_signals_reach_the_application(self):
        wrappers = [[]]
        if subprocess.run(["unshare", "-rpf", "true"], capture_output=True).returncode == 0:
            wrappers.append(["unshare", "-rpf"])  # cukiln is process 1 of its namespace
        for wrapper in wrappers:
            with subprocess.Popen(
                [*wrapper, CUKILN, "record", "-o", "m.json", "--", sys.executable, "-c", WAITS_FOR_SIGNALS], cwd=self.folder,
                env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            ) as started:  # fmt: skip
                self.assertEqual(started.stdout.readline(), "ready\n")
                children = Path(f"/proc/{started.pid}/task/{started.pid}/children").read_text().split()
                cukiln = int(children[0]) if wrapper else started.pid
                for sent in (signal.SIGUSR1, signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
                    os.kill(cukiln, sent)
                    self.assertEqual(started.stdout.readline(), f"{sent.name}\n")
                _, err = started.communicate(timeout=60)
            self.assertEqual(started.returncode, FAILED)
            self.assertIn("the application ended with 7", err)
            self.assertEqual(self.manifest()["modules"], [])
            self.assertEqual(list(self.folder.glob("*.recording-*")), [])

    def test_the_order_of_flags_and_the_working_folder_are_kept(self):
        self.write("work/deep/pre.h", "#undef ADDEND\n#define ADDEND 3\n")
        (self.folder / "made").mkdir()
        line = f"{CUKILN} compile ../add.cu -U ADDEND -D ADDEND=1 -include deep/pre.h -I deep --arch sm_90a"
        self.run_cli("record", "-o", "made/m.json", "--", "sh", "-c", f"cd work && {line}")
        (module,) = self.manifest("made/m.json")["modules"]
        self.assertEqual(module["flags"], ["--undefine-macro=ADDEND", "--define-macro=ADDEND=1", "--pre-include=deep/pre.h"])
        self.assertEqual((module["working_folder"], module["include"]), ("../work", ["../work/deep"]))
        report = self.run_json("preload", "made/m.json", "--no-load", "--offline")
        self.assertEqual([m["outcome"] for m in report["modules"]], ["hit"])

    def test_modules_without_standard_headers_stay_without(self):
        self.run_cli("record", "-o", "m.json", "--", CUKILN, "compile", "scale.cu", "--arch", "sm_90a", "--no-std-shims")
        self.assertEqual(self.manifest()["modules"][0]["std_shims"], False)
        self.run_cli("record", "-o", "m.json", "--", CUKILN, "compile", "scale.cu", "--arch", "sm_90a")
        self.assertNotIn("std_shims", self.manifest()["modules"][0])

    def test_named_headers_stay_in_the_manifest(self):
        self.write("k.cu", '#include <jit/a.h>\nextern "C" __global__ void k(float* x) { *x = A; }\n')
        line = {"name": "k", "sources": [{"path": str(self.folder / "k.cu")}], "headers": [], "include": [], "define": {},
                "flags": [], "names": ["k"], "target": "sm_90a", "named_headers": {"jit/a.h": "#define A 1\n"}}  # fmt: skip
        self.write("lines", json.dumps(line) + "\n")
        self.run_cli("record", "-o", "m.json", "--", "sh", "-c", 'cat lines >> "$CUKILN_RECORD"')
        (module,) = self.manifest()["modules"]
        self.assertEqual(module["named_headers"], {"jit/a.h": "#define A 1\n"})
        (report,) = self.run_json("preload", "m.json", "--no-load")["modules"]
        self.assertEqual(report["outcome"], "compiled")
        shown = self.run_json("show", report["key"])
        self.assertEqual([(h["path"], h["size_bytes"]) for h in shown["request"]["headers"]], [("jit/a.h", 12)])
        self.assertRegex(self.run_cli("show", report["key"]).out, r"header +[0-9a-f]+ +jit/a.h +12 bytes")

    def test_it_prints_what_it_wrote(self):
        line = ("record", "-o", "m.json", "--", CUKILN, "--quiet", "compile", "scale.cu", "--arch", "sm_90a")
        self.assertEqual(self.run_cli(*line).err, "Wrote 1 module to m.json.\n")
        self.assertEqual(self.run_cli("--quiet", *line).err, "")

    def test_texts_in_memory_become_files_with_the_same_keys(self):
        """The lines are those of a host with texts in memory; the keys those of the same text in files."""
        lines = [{"name": "k", "sources": [{"path": "gen/k.cu", "text": '#include "../lib/a.cuh"\n#include "b.cuh"\n'
                                            'extern "C" __global__ void k(float* x) { *x = A + B; }\n'}],
                  "headers": [{"path": "../lib/a.cuh", "text": "#define A 1\n"}, {"path": "b.cuh", "text": "#define B 2\n"}],
                  "include": [], "define": {}, "flags": [], "names": ["k"], "target": target}
                 for target in ("sm_90a", "sm_100a")]  # fmt: skip
        self.write("lines", "".join(json.dumps(line) + "\n" for line in lines) + '{"cut off')
        result = self.run_cli("record", "-o", "m.json", "--", "sh", "-c", 'cat lines >> "$CUKILN_RECORD"')
        self.assertIn("1 module mixed files with texts in memory", result.err)
        (module,) = self.manifest()["modules"]
        self.assertEqual(module["targets"], ["sm_90a", "sm_100a"])
        report = self.run_json("preload", "m.json", "--no-load")
        self.assertEqual([m["outcome"] for m in report["modules"]], ["compiled", "compiled"])
        self.write("x/lib/a.cuh", "#define A 1\n")
        self.write("x/gen/b.cuh", "#define B 2\n")
        self.write("x/gen/k.cu", lines[0]["sources"][0]["text"])
        (same,) = self.compile("x/gen/k.cu", "--name", "k", "--arch", "sm_90a")
        self.assertEqual(same["outcome"], "hit")

    def test_two_spellings_of_one_source_are_one_module(self):
        (self.folder / "deep").mkdir()
        self.run_cli("record", "-o", "m.json", "--", "sh", "-c", " && ".join(
            f"{CUKILN} compile {path} -I {folder} --arch sm_90a" for path, folder in
            (("scale.cu", "deep"), ("./scale.cu", "./deep"), ("deep/../scale.cu", "deep/../deep"))))  # fmt: skip
        (module,) = self.manifest()["modules"]
        self.assertEqual((module["sources"], module["name"]), (["scale.cu"], "scale"))

    def test_two_modules_of_one_name_get_two_names(self):
        self.run_cli("record", "-o", "m.json", "--", "sh", "-c",
                     f'"{CUKILN}" compile add.cu -DADDEND=1 --arch sm_90a; "{CUKILN}" compile add.cu -DADDEND=2 --arch sm_90a')  # fmt: skip
        self.assertEqual([m["name"] for m in self.manifest()["modules"]], ["add", "add-2"])

    def test_the_applications_output_and_exit_code_are_kept(self):
        result = self.run_cli("record", "-o", "m.json", "--", "sh", "-c", "echo out; echo err >&2; exit 3", expect=FAILED)
        self.assertEqual(result.out, "out\n")
        self.assertIn("ended with 3", result.err)
        self.assertIn("no module was requested", result.err)
        self.assertEqual(self.manifest(), {"format": 1, "modules": []})
        document = self.run_json("record", "-o", "m.json", "--", "sh", "-c", "echo out; kill -9 $$", expect=FAILED)
        self.assertEqual(document["exit_code"], 128 + 9)

    def test_options_after_the_application_are_the_applications(self):
        result = self.run_cli("record", "-o", "m.json", "--", "echo", "--json", "--help", "--", "-q")
        self.assertEqual(result.out, "--json --help -- -q\n")

    def test_a_record_that_cannot_be_written_does_not_stop_the_application(self):
        (module,) = self.compile("add.cu", "-DADDEND=1", "--arch", "sm_90a", env={"CUKILN_RECORD": "/no/such/file"})
        self.assertEqual(module["outcome"], "compiled")

    def test_usage_errors(self):
        self.run_cli("record", "--", "true", expect=USAGE)
        self.run_cli("record", "-o", "m.json", expect=USAGE)
        self.run_cli("record", "-o", "m.json", "--", "no-such-program", expect=USAGE)
        self.run_cli("record", "-o", "no/such/folder/m.json", "--", "true", expect=USAGE)
        self.assertEqual(list(self.folder.glob("m.json*")), [])


if __name__ == "__main__":
    unittest.main()
