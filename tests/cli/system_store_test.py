# SPDX-License-Identifier: Apache-2.0
"""Stores for images: written by preload and import, read by every user, the same bytes each time."""

import hashlib
import json
import os
import shutil
import subprocess
import unittest

from cli import CUKILN, CliTest, FAILED, STORE, USAGE

ANOTHER_USER = 64_003
MANIFEST = {
    "format": 1,
    "modules": [{"name": "scale", "sources": ["scale.cu"], "targets": ["sm_90a"]},
                {"name": "add", "sources": ["add.cu"], "define": {"ADDEND": 1}, "targets": ["sm_90a", "sm_100a"]}],
}


class SystemStores(CliTest):
    def setUp(self):
        super().setUp()
        self.system = self.folder / "system"
        self.write("m.json", json.dumps(MANIFEST))

    def files(self, folder):
        return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest()
                for p in sorted(folder.rglob("*")) if p.is_file()}  # fmt: skip

    def preload(self, store, system, **options):
        env = {"CUKILN_STORE": str(self.folder / store), "CUKILN_SYSTEM_STORE": ""}
        return self.run_cli("preload", "m.json", "--system-store", system, env=env | options.pop("env", {}), **options)

    def test_a_preload_writes_what_every_user_reads(self):
        written = self.preload("one", "system")
        self.assertRegex(written.out, r"(?m)^System store .*/system: 3 entries, [\d.]+ KiB$")
        self.assertEqual(sorted(self.files(self.system)), ["v6/CURRENT", "v6/gen-0001/store.db"])
        for path in [self.system, *self.system.rglob("*")]:
            self.assertEqual(path.stat().st_mode & 0o777, 0o755 if path.is_dir() else 0o644, path)
        env = {"CUKILN_STORE": str(self.folder / "empty"), "CUKILN_NVRTC_LIBRARY": "/nowhere"}
        report = self.run_json("preload", "m.json", "--offline", "--no-load", env=env)
        self.assertEqual(report["hits"], 3)
        self.assertEqual({m["reason"] for m in report["modules"]}, {"in the store"})
        doctor = {c["name"]: c for c in self.run_json("doctor", env=env)["checks"]}  # exit 0: nothing is to be compiled
        self.assertIn("read-only, 3 entries", doctor["system store"]["detail"])

    def test_two_builds_give_the_same_bytes(self):
        self.preload("one", "first")
        self.preload("two", "second")  # compiled again
        self.assertEqual(self.files(self.folder / "first"), self.files(self.folder / "second"))
        self.write("m2.json", json.dumps(MANIFEST | {"modules": MANIFEST["modules"][1:]}))
        self.run_cli("preload", "m2.json", "--system-store", "third")
        self.run_cli("preload", "m.json", "--system-store", "third")  # added to
        self.assertEqual(self.files(self.folder / "first")["v6/gen-0001/store.db"],
                         self.files(self.folder / "third")["v6/gen-0002/store.db"])  # fmt: skip

    @unittest.skipUnless(os.geteuid() == 0, "runs a command as another user")
    def test_another_user_without_any_writable_folder_hits(self):
        self.preload("one", "system")
        self.folder.chmod(0o755)
        for path in self.folder.iterdir():
            if path.suffix in (".cu", ".cuh", ".json"):
                path.chmod(0o644)
        env = self.environment | {"CUKILN_STORE": "/nowhere/store", "CUKILN_NVRTC_LIBRARY": "/nowhere"}
        command = ["setpriv", f"--reuid={ANOTHER_USER}", f"--regid={ANOTHER_USER}", "--clear-groups", "--",
                   CUKILN, "--json", "preload", "m.json", "--offline", "--no-load"]  # fmt: skip
        run = lambda: subprocess.run(command, cwd=self.folder, env=env, capture_output=True, text=True)  # noqa: E731
        done = run()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(done.stdout)["hits"], 3)
        # fault 180
        (self.system / "v6").chmod(0o700)
        self.assertNotEqual(run().returncode, 0)
        doctor = subprocess.run([*command[:6], "--json", "doctor"], cwd=self.folder, env=env, capture_output=True, text=True)
        (check,) = [c for c in json.loads(doctor.stdout)["checks"] if c["name"] == "system store"]
        self.assertEqual(check["status"], "wrong")
        self.assertRegex(check["detail"], "^unreadable: .*Permission denied")
        self.assertIn("chmod -R a+rX", check["detail"])

    def test_a_module_that_fails_leaves_the_store_as_it_was(self):
        self.preload("one", "system")
        before = self.files(self.system)
        broken = {"name": "broken", "sources": ["broken.cu"], "targets": ["sm_90a"]}
        self.write("m.json", json.dumps(MANIFEST | {"modules": [*MANIFEST["modules"], broken]}))
        failed = self.preload("one", "system", expect=FAILED)
        self.assertNotIn("System store", failed.out)
        self.assertEqual(self.files(self.system), before)

    def test_a_users_store_is_no_system_store(self):
        self.compile("scale.cu", "--arch", "sm_90a")
        refused = self.preload("one", self.store, expect=STORE)
        self.assertIn("is a store that processes write", refused.err)
        self.assertEqual(len(self.run_json("ls")["entries"]), 1)

    def test_a_bundle_is_imported_to_a_system_store(self):
        self.run_cli("preload", "m.json", "--no-load")
        self.run_cli("keygen", "-o", "k.key")
        self.run_cli("export", "-o", "b.ckb", "--sign", "k.key")
        take = ("import", "b.ckb", "--system-store", "system")
        self.run_cli(*take, expect=FAILED)  # by no trusted key
        self.assertFalse(self.system.exists())
        env = {"CUKILN_STORE": str(self.folder / "empty"), "CUKILN_SYSTEM_STORE": ""}
        done = self.run_json(*take, "--trust", "k.key.pub", env=env)
        self.assertEqual((done["imported"], done["not_stored"]), (3, []))
        self.assertFalse((self.folder / "empty").exists())  # the user's store is not touched
        entries = self.run_json("ls", env={"CUKILN_STORE": str(self.folder / "empty")})["entries"]
        self.assertEqual({e["signer"].split(":")[0] for e in entries}, {"k"})
        first = self.files(self.system)
        shutil.rmtree(self.system)
        self.run_cli(*take, "--trust", "k.key.pub", env=env)
        self.assertEqual(self.files(self.system), first)
        self.write("file", "")
        refused = self.run_json("import", "b.ckb", "--insecure", "--system-store", "file/below", expect=STORE)
        self.assertEqual((refused["imported"], refused["not_stored"][0]["entries"]), (0, 3))

    def test_what_is_never_stored_is_named(self):
        self.write("dated.cu", 'extern "C" __global__ void dated(char* x) { *x = __TIME__[0]; }\n')
        dated = {"name": "dated", "sources": ["dated.cu"], "targets": ["sm_90a"]}
        self.write("m.json", json.dumps(MANIFEST | {"modules": [*MANIFEST["modules"], dated]}))
        done = self.preload("one", "system")
        self.assertIn("dated for sm_90a is not in the system store", done.err)
        self.assertIn(": 3 entries", done.out)

    def test_mistakes(self):
        self.run_cli("preload", "m.json", "--system-store", expect=USAGE)


if __name__ == "__main__":
    unittest.main()
