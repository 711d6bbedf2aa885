# SPDX-License-Identifier: Apache-2.0
"""Whom a host believes: the program that compiles for it, its settings, and who signed what it has.

usage: trust_test.py LIBCUKILN
"""

import os
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "cli"))

from cli import BINARIES, CliTest, FAILED  # noqa: E402

LIBRARY = Path(sys.argv.pop(1)).resolve()
HOST = BINARIES / "bindings_trust_host"
WORKER = "cukiln-compile-worker"
ADD = ("-DADDEND=1",)
ABI = ".".join(LIBRARY.name.split(".")[2:4])  # of libcukiln.so.0.1.2


class TrustTest(CliTest):
    def host(self, library, *flags, program=HOST, cwd=None, data=None, expect=0, env=None):
        """What a host reports, or what it says on stderr where that is expected to fail."""
        done = subprocess.run(
            [program, library, data or self.folder, self.folder / "add.cu", *(flags or ADD)],
            cwd=cwd or self.folder, env=self.environment | (env or {}), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120,
        )  # fmt: skip
        self.assertEqual(done.returncode, expect, done.stderr)
        self.said = done.stderr
        return {name: int(value) for name, value in (line.split() for line in done.stdout.splitlines())}

    def evil(self, path):
        """A program that leaves a mark where it is run."""
        self.mark = self.folder / "hijacked"
        self.write(path, f"#!/bin/sh\n: > {self.mark}\n").chmod(0o755)

    def install(self, folder, *, worker=True):
        lib = self.folder / folder
        lib.mkdir(parents=True)
        shutil.copy(LIBRARY, lib / "libcukiln.so")
        if worker:
            shutil.copy(BINARIES / WORKER, lib / WORKER)
        return lib


class Worker(TrustTest):
    """The fake NVRTC stands for the compiler: what is asked here is who opens it."""

    def setUp(self):
        super().setUp()
        self.environment["CUKILN_NVRTC_LIBRARY"] = str(BINARIES / "libnvrtc_fake.so")

    def test_a_library_found_by_a_relative_path_finds_its_worker_after_a_chdir(self):  # fault 111
        self.install("app/lib")
        self.evil(f"data/lib/{WORKER}")
        report = self.host("libcukiln.so", cwd=self.folder / "app", data=self.folder / "data",
                           env={"LD_LIBRARY_PATH": "lib"})  # fmt: skip
        self.assertEqual(report["compiles"], 1)
        self.assertFalse(self.mark.exists(), "the program beside the host's data was run")

    def test_the_folder_of_a_hosts_program_is_no_place_for_the_worker(self):  # fault 111
        lib = self.install("app/lib", worker=False)
        self.evil(f"shared/{WORKER}")
        program = shutil.copy(HOST, self.folder / "shared/host")
        self.host(lib / "libcukiln.so", program=program, expect=1)
        self.assertFalse(self.mark.exists(), "the program beside the host's was run")
        self.assertIn("the compile worker was not found", self.said)
        self.assertIn(str(lib), self.said)
        self.assertNotIn("shared", self.said)

    def test_a_library_finds_the_worker_installed_with_it_beside_those_of_other_versions(self):  # fault 427
        lib = self.install("app/lib", worker=False)
        self.evil(f"app/libexec/cukiln/{WORKER}")
        self.evil(f"app/libexec/cukiln/0.1/{WORKER}")
        installed = self.folder / "app/libexec/cukiln" / ABI
        installed.mkdir()
        shutil.copy(BINARIES / WORKER, installed / WORKER)
        self.assertEqual(self.host(lib / "libcukiln.so")["compiles"], 1)
        self.assertFalse(self.mark.exists(), "the worker of another version was run")

    def test_a_worker_that_others_may_write_is_refused(self):  # fault 112
        lib = self.install("app/lib")
        self.host(lib / "libcukiln.so")
        self.evil("app/lib/x")
        for path, mode in ((lib / WORKER, 0o777), (lib, 0o777)):
            before = path.stat().st_mode
            path.chmod(mode)
            self.host(lib / "libcukiln.so", "-DADDEND=2", expect=1)
            self.assertIn("everybody may write it (mode 0777)", self.said)
            self.assertIn(f"chmod go-w {path}", self.said)
            path.chmod(before)
        self.host(lib / "libcukiln.so", "-DADDEND=2")

    def test_a_worker_by_a_relative_path_is_refused(self):  # fault 111
        lib = self.install("lib")
        self.host(lib / "libcukiln.so", expect=1, env={"CUKILN_WORKER": f"lib/{WORKER}"})
        self.assertIn("expected an absolute path", self.said)

    @unittest.skipUnless(os.geteuid() == 0, "a file of another user can be made by root alone")
    def test_what_belongs_to_another_user_is_believed_only_with_the_library(self):  # fault 112
        lib = self.install("app/lib")
        os.chown(lib / WORKER, 12345, 12345)
        self.host(lib / "libcukiln.so", expect=1)
        self.assertIn("it belongs to user 12345", self.said)
        os.chown(lib / "libcukiln.so", 12345, 12345)
        self.assertEqual(self.host(lib / "libcukiln.so")["compiles"], 1)


class Configuration(TrustTest):
    def test_a_configuration_that_others_may_write_is_ignored_with_the_reason(self):  # fault 112
        self.evil("evil/worker")
        config = self.write("config/cukiln/config.toml", f'worker = "{self.folder}/evil/worker"\n')
        config.chmod(0o666)
        for addend, path in enumerate((config, config.parent)):
            path.chmod(0o777)
            self.assertEqual(self.host(LIBRARY, f"-DADDEND={addend}")["compiles"], 1)
            self.assertFalse(self.mark.exists())
            self.assertIn(f"{config} is ignored", self.said)
            self.assertIn("everybody may write it", self.said)
            self.assertIn(f"chmod go-w {path}", self.said)
            path.chmod(0o755)

    def test_a_list_of_trusted_keys_that_others_may_write_is_refused_with_the_reason(self):  # fault 405
        key = self.run_json("keygen", "-o", "fleet.key")["public_key"]
        trust = self.write("trust", f"{key}\n")
        trust.chmod(0o666)
        self.host(LIBRARY, env={"CUKILN_REMOTE_TRUST": str(trust)})
        self.assertIn("the keys that remote_trust revokes cannot be read", self.said)
        self.assertIn(f"chmod go-w {trust}", self.said)


class Signers(TrustTest):
    def setUp(self):
        super().setUp()
        self.keys = {name: self.run_json("keygen", "-o", f"{name}.key")["public_key"] for name in ("fleet", "other")}

    def import_signed_by_both(self):
        """Compiled on a, signed by fleet; taken by b, signed by other; taken by this host."""
        a = {"CUKILN_STORE": str(self.folder / "a")}
        b = {"CUKILN_STORE": str(self.folder / "b")}
        self.compile("add.cu", *ADD, "--arch", "sm_90a", env=a)
        self.run_cli("export", "-o", "a.ckb", "--sign", "fleet.key", env=a)
        self.run_cli("import", "a.ckb", "--trust", "fleet.key.pub", env=b)
        self.run_cli("export", "-o", "b.ckb", "--sign", "other.key", env=b)
        self.run_cli("import", "b.ckb", "--trust", "other.key.pub")

    def test_a_host_compiles_anew_what_a_revoked_key_signed_however_it_came(self):  # fault 116
        self.import_signed_by_both()
        self.assertEqual(self.host(LIBRARY)["hits"], 1)
        for_fleet = self.write("trust", f"{self.keys['other']}\nrevoked {self.keys['fleet']}\n")
        trust = {"CUKILN_REMOTE_TRUST": str(for_fleet)}
        report = self.host(LIBRARY, env=trust)
        self.assertEqual((report["hits"], report["compiles"], report["misses_revoked"]), (0, 1, 1))
        # It was removed, and what takes its place is nobody's but ours.
        self.assertEqual(self.host(LIBRARY, env=trust)["hits"], 1)
        (entry,) = self.run_json("ls")["entries"]
        self.assertEqual((entry["origin"], entry["signers"]), ("compiled", []))
        self.assertEqual(self.run_json("stats")["misses_by_reason"]["revoked"], 1)

    def test_in_a_store_that_cannot_be_written_it_is_a_miss_each_time(self):  # fault 116
        self.import_signed_by_both()
        (self.folder / "system").mkdir(mode=0o755)
        shutil.copytree(self.store, self.folder / "system", dirs_exist_ok=True)
        trust = self.write("trust", f"revoked {self.keys['fleet']}\n")
        env = {"CUKILN_REMOTE_TRUST": str(trust), "CUKILN_STORE": str(self.folder / "own")}
        report = self.host(LIBRARY, env=env | {"CUKILN_OFFLINE": "1"}, expect=1)
        self.assertIn("signed by a key that was revoked", self.said)
        report = self.host(LIBRARY, env=env)
        self.assertEqual((report["compiles"], report["misses_revoked"]), (1, 1))
        self.assertEqual(self.host(LIBRARY, env=env)["hits"], 1)  # its own store comes first


if __name__ == "__main__":
    unittest.main()
