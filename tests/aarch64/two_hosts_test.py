# SPDX-License-Identifier: Apache-2.0
"""A host of x86-64 and one of aarch64 beside each other: on one store, and by a bundle. Their NVRTCs are two compilers,
which may give two cubins for one text (plain char is unsigned on one of them), so neither is served the other's."""

import json
import os
import subprocess
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "cli"))
from cli import CUKILN, CliTest, FAILED  # noqa: E402

NATIVE = str(Path(os.environ["CUKILN_TEST_NATIVE_DIR"]) / "cukiln")
ADD = ("add.cu", "-DADDEND=1", "--arch", "sm_100a")


class TwoHosts(CliTest):
    def machine_of(self, program):
        header = Path(program).read_bytes()[18:20]
        return int.from_bytes(header, "little")

    def on_native(self, *arguments, expect=0, env=None):
        done = subprocess.run(
            [NATIVE, "--json", *map(str, arguments)], cwd=self.folder, env=self.environment | (env or {}),
            capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        self.assertEqual(done.returncode, expect, done.stdout + done.stderr)
        return json.loads(done.stdout)

    def setUp(self):
        super().setUp()
        self.assertNotEqual(self.machine_of(CUKILN), self.machine_of(NATIVE))

    def test_on_one_store_each_compiles_for_itself(self):  # fault 187
        (native,) = self.on_native("compile", *ADD)["modules"]
        self.assertEqual(native["outcome"], "compiled")
        explained = self.run_json("explain", *ADD)
        self.assertEqual(explained["outcome"], "miss")
        (foreign,) = self.compile(*ADD)
        self.assertEqual(foreign["outcome"], "compiled")
        self.assertNotEqual(foreign["key"], native["key"])
        for again, first in [
            (self.compile(*ADD)[0], foreign),
            (self.on_native("compile", *ADD)["modules"][0], native),
        ]:
            self.assertEqual((again["outcome"], again["key"]), ("hit", first["key"]))
        entries = {entry["key"] for entry in self.run_json("ls")["entries"]}
        self.assertEqual(entries, {native["key"], foreign["key"]})

    def test_a_bundle_of_one_is_no_hit_on_the_other(self):  # fault 188
        (native,) = self.on_native("compile", *ADD)["modules"]
        self.on_native("export", "-o", "native.ckb")
        elsewhere = {"CUKILN_STORE": str(self.folder / "elsewhere")}
        self.run_cli("import", "native.ckb", "--insecure", env=elsewhere)
        listed = self.run_json("ls", env=elsewhere)["entries"]
        self.assertEqual([entry["key"] for entry in listed], [native["key"]])
        offline = self.run_json("compile", *ADD, "--offline", env=elsewhere, expect=FAILED)
        self.assertEqual(offline["modules"][0]["outcome"], "missing")
        (again,) = self.on_native("compile", *ADD, "--offline", env=elsewhere)["modules"]
        self.assertEqual((again["outcome"], again["key"]), ("hit", native["key"]))


if __name__ == "__main__":
    unittest.main()
