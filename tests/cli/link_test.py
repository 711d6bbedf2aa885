# SPDX-License-Identifier: Apache-2.0
"""Modules whose sources are compiled by themselves and linked: options, flags, manifests, what is shown of them."""

import contextlib
import json
import sqlite3
import sys
import unittest
from pathlib import Path

from cli import BINARIES, CUKILN, ENVIRONMENT, FAILED, USAGE, CliTest

CALLER = """#include "factor.h"
__device__ int twice(int x);
extern "C" __global__ void first(int* p) { p[threadIdx.x] = twice(p[threadIdx.x]); }
"""
CALLEE = """#include "factor.h"
__device__ int twice(int x) { return FACTOR * x; }
extern "C" __global__ void second(int* p) { p[threadIdx.x] = twice(1); }
"""
PTX = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry extra() { ret; }\n"
LINE = ("a.cu", "b.cu", "--arch", "sm_90a")
WITHOUT_LINKER = (Path(__file__).resolve().parents[2]
                  / ".cukiln-cuda-tested/12.9/nvidia/cuda_nvrtc/lib/libnvrtc.so.12")  # fmt: skip


class Link(CliTest):
    def setUp(self):
        super().setUp()
        self.write("factor.h", "#define FACTOR 2\n")
        self.write("a.cu", CALLER)
        self.write("b.cu", CALLEE)

    def only(self, *arguments):
        (module,) = self.compile(*arguments)
        return module

    def kernels(self, module):
        return sorted(kernel["name"] for kernel in module["kernels"])

    def test_a_hit_needs_the_linked_entry_only(self):
        key = self.only(*LINE, "--link", "lto")["key"]
        others = [entry["key"] for entry in self.run_json("ls")["entries"] if entry["key"] != key]
        self.assertEqual(len(others), 2)
        self.run_cli("rm", *others)
        self.assertEqual(self.only(*LINE, "--link", "lto")["outcome"], "hit")
        self.run_cli("export", "-o", "b.ckb", key)
        self.run_cli("rm", "--all")
        self.run_cli("import", "b.ckb", "--insecure")
        self.assertEqual(self.only(*LINE, "--link", "lto")["outcome"], "hit")

    def test_explain_names_what_changed(self):
        self.write("x.ptx", PTX)
        link = ("--link", "rdc", "--object", "x.ptx")
        self.only(*LINE, *link)
        self.assertEqual(self.run_json("explain", *LINE, *link)["outcome"], "hit")
        self.write("x.ptx", PTX + "// edited\n")
        differences = self.run_json("explain", *LINE, *link)["differences"]
        self.assertEqual([difference["field"] for difference in differences], ["object"])
        self.assertIn("x.ptx", differences[0]["now"])
        self.write("x.ptx", PTX)
        self.write("factor.h", "#define FACTOR 3\n")
        differences = self.run_json("explain", *LINE, *link)["differences"]
        self.assertEqual([difference["field"] for difference in differences], ["header changed"])

    def test_show_has_the_link(self):
        self.write("x.ptx", PTX)
        key = self.only(*LINE, "--link", "lto", "--object", "x.ptx", "--flag", "-lineinfo")["key"]
        request = self.run_json("show", key)["request"]
        self.assertEqual([source["path"] for source in request["sources"]], ["/cukiln/src/a.cu", "/cukiln/src/b.cu"])
        self.assertEqual(request["link"]["options"], ["-arch=sm_90a", "-lto", "-lineinfo", "-verbose"])
        self.assertEqual([one["path"] for one in request["link"]["objects"]], ["/cukiln/obj/0/x.ptx"])
        page = self.run_cli("show", key).out
        self.assertIn("nvjitlink " + request["link"]["linker"]["version"], page)
        self.assertIn("/cukiln/obj/0/x.ptx", page)
        for entry in self.run_json("ls")["entries"]:
            if entry["key"] != key:  # a part
                self.assertEqual(self.run_json("show", entry["key"])["request"]["output"], "lto-ir")
                self.assertIn("for sm_90a, lto-ir of ", self.run_cli("show", entry["key"]).out)

    def test_a_name_means_what_was_linked(self):
        key = self.only(*LINE, "--link", "rdc")["key"]
        self.assertEqual(len(self.run_json("ls")["entries"]), 3)
        self.assertEqual(self.run_json("show", "a")["key"], key)
        self.assertEqual(self.run_json("show", "a", "--arch", "sm_90a")["key"], key)

    def test_ptx_of_each_source(self):
        self.write("a.cu", CALLER.replace('#include "factor.h"', ""))
        self.write("b.cu", CALLEE.replace('#include "factor.h"', "#define FACTOR 2"))
        self.write("x.ptx", PTX)
        for mode in ("rdc", "lto"):
            key = self.only(*LINE, "--link", mode, "--object", "x.ptx", "--name", "first", "--name", "extra")["key"]
            first, second = self.run_cli("show", key, "--ptx").out.split("\n// /cukiln/src/b.cu\n")
            line = "// /cukiln/src/a.cu\n"
            self.assertTrue(first.startswith(line), first[:200])
            first = first.removeprefix(line)
            self.assertRegex(first, r"(?s)\.target sm_90a.*\.extern \.func .*_Z5twicei.*\.visible \.entry first\(")
            self.assertRegex(second, r"(?s)\.target sm_90a.*\.visible \.func .*_Z5twicei")
            self.assertNotIn("extra", first + second)
            for entry in self.run_json("ls")["entries"]:
                if entry["key"] != key:  # a part
                    self.assertIn(self.run_cli("show", entry["key"], "--ptx").out, (first, second))
            self.run_cli("rm", "--all")

    def test_ptx_of_one_translation_unit(self):
        self.write("sub/c.cu", "__device__ int three() { return 3; }\n")
        self.write("d.cu", 'extern "C" __global__ void k(int* p) { *p = three(); }\n')
        sources = ["sub/c.cu", "d.cu"]
        self.write("m.json", json.dumps({"format": 1, "modules": [{"name": "m", "sources": sources, "targets": ["sm_90a"]}]}))
        self.run_json("preload", "m.json", "--no-load")
        self.assertEqual(self.run_cli("show", "m", "--ptx").out.count(".entry k("), 1)
        (database,) = self.store.rglob("store.db")
        with contextlib.closing(sqlite3.connect(database)) as connection, connection:
            connection.execute("UPDATE payload SET source_text=x''")  # as where it was damaged
        error = self.run_cli("show", "m", "--ptx", expect=ENVIRONMENT).err
        self.assertIn("without the text of /cukiln/src/c.cu", error)

    def test_manifests_and_recorded_ones(self):
        self.write("x.ptx", PTX)
        module = {"name": "m", "sources": ["a.cu", "b.cu"], "link": "rdc", "objects": ["x.ptx"], "targets": ["sm_90a"]}
        self.write("m.json", json.dumps({"format": 1, "modules": [module]}))
        report = self.run_json("preload", "m.json", "--no-load")
        self.assertEqual(report["compiled"], 1)
        self.assertEqual(self.kernels(report["modules"][0]), ["extra", "first", "second"])
        line = (*LINE, "--link", "rdc", "--object", "x.ptx")
        self.run_cli("record", "-o", "r.json", "--", CUKILN, "compile", *line)
        (recorded,) = json.loads((self.folder / "r.json").read_text())["modules"]
        self.assertEqual((recorded["link"], recorded["objects"]), ("rdc", ["x.ptx"]))
        self.assertEqual(self.run_json("preload", "r.json", "--no-load")["hits"], 1)

    def test_wrong_links(self):
        self.assertIn("expected rdc or lto", self.run_cli("compile", *LINE, "--link", "all", expect=USAGE).err)
        self.assertIn("does not link", self.run_cli("compile", "b.cu", "--object", "a.cu", expect=None).err)
        missing = self.run_cli("compile", *LINE, "--link", "rdc", "--object", "none.o", expect=None)
        self.assertNotEqual(missing.code, 0)
        self.assertIn("none.o", missing.err)
        for given in (sys.executable, self.write("host.a", "!<arch>\n")):  # fault 293
            host = self.run_cli("compile", *LINE, "--link", "rdc", "--object", given, expect=USAGE).err
            self.assertIn(f"the object {given} has no device code: expected relocatable code", host)
        undefined = self.run_cli("compile", "a.cu", "--arch", "sm_90a", "--link", "rdc", expect=FAILED)
        self.assertIn("Undefined reference to '_Z5twicei' in", undefined.err)
        self.assertIn("a.cu", undefined.err)
        self.assertNotIn("/cukiln/src", undefined.err)

    # fault 295
    @unittest.skipUnless((BINARIES / "cukilnd").exists(), "a build without cukilnd")
    def test_a_daemon_compiles_the_parts(self):
        (self.folder / "run").mkdir(mode=0o700)
        self.addCleanup(self.run_cli, "daemon", "stop", expect=None)
        self.run_json("daemon", "start")
        module = self.only(*LINE, "--link", "lto")
        self.assertEqual((module["outcome"], self.kernels(module)), ("compiled", ["first", "second"]))
        self.run_cli("daemon", "stop")
        self.assertEqual(self.only(*LINE, "--link", "lto")["outcome"], "hit")


class Doctor(CliTest):
    def check(self, **options):
        return next(c for c in self.run_json("doctor", **options)["checks"] if c["name"] == "nvjitlink")

    def test_nvjitlink_is_listed(self):
        found = self.check()
        self.assertEqual(found["status"], "ok", found)
        self.assertRegex(found["detail"], r"^\d+\.\d+ in /.*/libnvJitLink\.so\.\d+")

    @unittest.skipUnless(WITHOUT_LINKER.exists(), "an NVRTC without nvJitLink: scripts/bootstrap --tests")
    def test_the_lack_of_nvjitlink_is_no_error(self):
        check = self.check(env={"CUKILN_NVRTC_LIBRARY": str(WITHOUT_LINKER)}, expect=None)
        self.assertEqual(check["status"], "missing")
        self.assertIn("libnvJitLink.so.12", check["detail"])
        self.assertIn("only to link", check["advice"])


if __name__ == "__main__":
    unittest.main()
