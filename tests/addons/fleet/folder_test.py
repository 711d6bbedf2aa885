# SPDX-License-Identifier: Apache-2.0
"""Machines whose remote store is a folder that they share, and that fails as folders of file servers do."""

import errno
import os
import re
import shutil
import signal
import subprocess
import time
import unittest
from pathlib import Path

from fleet import BINARIES, KERNELS, STORE, DaemonFleetTest, FleetTest

DAY = 24 * 3600
AS_ROOT = os.geteuid() == 0


class FolderTest(FleetTest):
    def setUp(self):
        super().setUp()
        self.share = self.folder / "share"
        self.share.mkdir()
        self.remote = f"file://{self.share}"

    def files(self, kind="*"):
        return sorted(str(p.relative_to(self.share)) for p in self.share.glob(f"cukiln6/{kind}/**/*") if not p.is_dir())

    def preloaded(self, library, **environment):
        """The environment of a process into which the tests' library is preloaded."""
        # A library ahead of AddressSanitizer's is refused by default: it calls the sanitizer's functions in its turn.
        self.assertTrue((BINARIES / library).exists())  # what cannot be preloaded is ignored
        return {"LD_PRELOAD": str(BINARIES / library), "ASAN_OPTIONS": "verify_asan_link_order=0"} | environment

    def faults(self, **faults):
        """The environment of a process whose calls fail on files of the share: tests/support/faulty_folder.c."""
        faults = {f"FOLDER_{name}": str(value) for name, value in faults.items()}
        return self.preloaded("libfaulty_folder.so", FOLDER_MATCH=str(self.share), **faults)

    def machine(self, op, *entries, writer=True, timeout_ms=60_000, remote=None, **faults):
        """What a machine printed that puts or gets entries, as a dict; `found` is a list. None if it was killed."""
        environment = self.environment | (self.faults(**faults) if faults else {})
        done = subprocess.run(
            [BINARIES / "remote_entries", remote or self.remote, self.public, "fleet.key" if writer else "", op,
             str(timeout_ms), *map(str, entries)],
            cwd=self.folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300,
            check=False)  # fmt: skip
        self.log = done.stderr
        if faults.get("DO") == "kill" and done.returncode == -signal.SIGKILL:
            return None
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("WRONG", done.stdout)
        out = {"found": [line.split()[0] == "found" for line in done.stdout.splitlines() if " us=" in line]}
        out["lost"] = [line for line in done.stdout.splitlines() if line.startswith("lost ")]
        out |= {name: int(value) for name, value in re.findall(r"(?m)^(\w+)=(\d+)$", done.stdout)}
        out["rejected"] = sum(value for name, value in out.items() if name.startswith("rejected_"))
        return out

    def assert_found(self, *entries):
        got = self.machine("get", *entries, writer=False)
        self.assertEqual((got["found"], got["rejected"]), ([True] * len(entries), 0), self.log)


class Folder(FolderTest):
    def test_a_machine_that_never_compiled_hits_what_another_one_put(self):
        a, b = self.host("a", self.remote), self.host("b", self.remote, writer=False)
        self.assertEqual(self.outcome(a), "compiled")
        patterns = [r"objects/([0-9a-f]{2})/([0-9a-f]{2})/\1\2[0-9a-f]{60}$"] * 2
        patterns.append(r"sets/([0-9a-f]{2})/([0-9a-f]{2})/\1\2[0-9a-f]{60}/[0-9a-f]{64}\.[0-9a-f]{32}$")
        files = self.files()
        self.assertEqual(len(files), 3)  # the entry, its set, its module's index
        for file, pattern in zip(files, patterns):
            self.assertRegex(file, "^cukiln6/" + pattern)
        self.assertEqual(self.outcome(b), "hit")
        (entry,) = self.run_json("ls", env=b)["entries"]
        self.assertEqual((entry["origin"], entry["signer"]), ("remote", self.public))
        self.assertEqual(self.remote_stats(a)["stored"], 1)
        self.assertEqual(self.remote_stats(b)["hits"], 1)
        # Then it is b's own: the folder is not read.
        shutil.rmtree(self.share)
        self.assertEqual(self.outcome(b), "hit")

    def test_headers_that_differ_are_all_kept(self):
        scale = ("scale.cu", "--arch", "sm_90a")
        for i in range(3):
            self.write("tile.cuh", f"#define TILE {32 << i}\n")
            self.assertEqual(self.outcome(self.host(f"a{i}", self.remote), *scale), "compiled")
        self.assertEqual(len(self.files("sets")), 3)
        for i in range(3):
            self.write("tile.cuh", f"#define TILE {32 << i}\n")
            self.assertEqual(self.outcome(self.host(f"b{i}", self.remote, writer=False), *scale), "hit")
        self.write("tile.cuh", "#define TILE 7\n")
        explained = self.run_cli("explain", *scale, env=self.host("c", self.remote, writer=False), expect=None)
        self.assertIn("tile.cuh", explained.out)

    def test_folders_are_read_in_order_and_all_but_ro_are_written(self):
        base, team = self.folder / "base", self.folder / "team"
        base.mkdir()
        team.mkdir()
        self.assertEqual(self.outcome(self.host("a", f"file://{base}")), "compiled")
        before = sorted(base.rglob("*"))
        both = f"file://{base}?ro,file://{team}"
        b = self.host("b", both)
        self.assertEqual(self.outcome(b), "hit")
        self.assertEqual(self.outcome(b, "add.cu", "-DADDEND=2", "--arch", "sm_90a"), "compiled")
        self.assertEqual(sorted(base.rglob("*")), before)
        self.assertTrue(any(team.rglob("*")))
        self.assertEqual(self.outcome(self.host("c", both, writer=False), "add.cu", "-DADDEND=2", "--arch", "sm_90a"), "hit")

    def test_a_user_without_keys_shares_with_itself(self):  # fault 463
        self.share.chmod(0o755)
        keyless = {"CUKILN_REMOTE_TRUST": ""}
        a = self.host("a", f"{self.remote}?unsigned", writer=False, **keyless)
        self.assertEqual(self.outcome(a), "compiled")
        self.assertEqual(self.outcome(self.host("b", f"{self.remote}?unsigned", writer=False, **keyless)), "hit")
        self.assertIn("acknowledged before", self.run_cli("push", env=a).out)
        self.share.chmod(0o777)
        c = self.host("c", f"{self.remote}?unsigned", writer=False, **keyless)
        result = self.run_cli("compile", *KERNELS, env=c, expect=None)
        self.assertIn("may not hold unsigned objects", result.err)
        (check,) = [one for one in self.run_json("doctor", env=c, expect=None)["checks"] if one["name"] == "remote"]
        self.assertEqual(check["status"], "wrong")
        self.assertIn("everybody may write it", check["detail"])

    def test_doctor_reads_and_writes_the_folder(self):
        def check(host):
            (one,) = [c for c in self.run_json("doctor", env=host, expect=None)["checks"] if c["name"] == "remote"]
            return one["status"], one["detail"] + one.get("advice", "")

        status, detail = check(self.host("a", self.remote))
        self.assertEqual(status, "ok", detail)
        self.assertIn("this machine writes", detail)
        self.assertEqual(len(self.files()), 1)
        status, detail = check(self.host("b", f"file://{self.folder}/not-mounted"))
        self.assertEqual(status, "wrong")
        self.assertIn("No such file or directory", detail)
        self.assertIn("(unreachable)make the folder, or mount it", detail)
        result = self.run_cli("compile", *KERNELS, env=self.host("c", "file://relative/path"), expect=STORE)
        self.assertIn("expected file:///absolute/path", result.err)

    @unittest.skipIf(AS_ROOT, "root may write everywhere")
    def test_a_folder_that_may_only_be_read_is_no_place_for_uploads(self):
        self.share.chmod(0o555)
        host = self.host("a", self.remote)
        result = self.run_cli("compile", *KERNELS, env=host, expect=STORE)
        self.assertIn("(denied)", result.err)


class Daemons(DaemonFleetTest):
    def test_what_one_machines_daemon_compiled_is_a_hit_on_another(self):
        share = self.folder / "share"
        share.mkdir()
        a = self.daemon("a", f"file://{share}")
        self.assertEqual(self.outcome(a), "compiled")
        self.wait_until(lambda: len([p for p in share.rglob("*") if p.is_file()]) >= 2)
        b = self.daemon("b", f"file://{share}", writer=False)
        self.assertEqual(self.outcome(b), "hit")
        tasks = Path(f"/proc/{self.processes['b'].pid}/task")
        self.wait_until(lambda: not any("cukiln-folder" in (t / "comm").read_text() for t in tasks.iterdir()))


class Collected(FolderTest):
    def age(self, file, seconds):
        then = time.time() - seconds
        os.utime(self.share / file, (then, then), follow_symlinks=False)

    def test_gc_removes_what_no_machine_used(self):  # fault 467
        self.assertEqual(self.outcome(self.host("a", self.remote)), "compiled")
        for file in self.files():
            self.age(file, 40 * DAY)
        host = self.host("b", self.remote)
        would = self.run_cli("gc", "--remote", "--dry-run", env=host).out
        self.assertIn("Would remove 3 files", would)
        self.assertIn("Removed 0 files", self.run_cli("gc", "--remote", "--max-age", "60d", env=host).out)
        (report,) = self.run_json("gc", "--remote", env=host)["folders"]
        self.assertEqual((report["where"], report["removed_files"]), (self.remote, 3))
        self.assertEqual(self.files(), [])
        result = self.run_cli("gc", "--remote", env=self.host("c", "redis://127.0.0.1:1"), expect=None)
        self.assertIn("names no folder that this machine writes", result.err)

    def test_the_clock_of_the_file_server_counts(self):  # fault 467
        self.machine("put", 1)
        for file in self.files():
            self.age(file, 2 * 3600)
        # By this machine's clock they are 90 days old.
        host = self.host("b", self.remote, **self.preloaded("libshifted_clock.so", CLOCK_AHEAD_S=str(90 * DAY)))
        (report,) = self.run_json("gc", "--remote", env=host)["folders"]
        self.assertEqual((report["removed_files"], len(self.files())), (0, 3))


class Faults(FolderTest):
    def test_a_writer_that_is_killed_at_any_step_leaves_nothing_that_is_used(self):  # fault 461
        self.machine("put", 1)
        steps = 0
        for step in range(1, 1000):
            shutil.rmtree(self.share)
            self.share.mkdir()
            done = self.machine("put", 2, CALLS="any", FROM=step, TIMES=1, DO="kill")
            if done is not None:
                self.assertEqual(done["stored"], 1)
                break
            steps += 1
            got = self.machine("get", 2, writer=False)
            self.assertEqual(got["rejected"], 0, (step, self.files()))
            if step % 8 == 0:  # what it left hinders no other
                self.assertEqual(self.machine("put", 2)["stored"], 1)
                self.assert_found(2)
        self.assertGreater(steps, 30)

    def test_calls_that_fail_cost_an_upload_and_no_object(self):  # fault 464
        self.machine("put", 1)
        for calls, error in (("write", errno.ENOSPC), ("write", errno.EDQUOT), ("fsync", errno.EIO), ("close", errno.EDQUOT),
                             ("create", errno.EROFS), ("create", errno.EACCES), ("mkdir", errno.ENOSPC),
                             ("rename,link", errno.EIO), ("open", errno.ENOTCONN)):  # fmt: skip
            shutil.rmtree(self.share)
            self.share.mkdir()
            done = self.machine("put", 2, timeout_ms=2000, CALLS=calls, DO=error)
            self.assertEqual((done["stored"], done["dropped"]), (0, 1), (calls, error))
            self.assertIn(os.strerror(error), done["lost"][0])
            self.assertEqual(self.files("sets"), [])
            self.assertFalse([file for file in self.files() if ".tmp-" in file], (calls, self.files()))
            self.assertEqual(self.machine("get", 2, writer=False)["rejected"], 0)

    def test_reads_that_fail_are_misses(self):  # fault 464
        self.machine("put", 1)
        for calls, error in (("read", errno.EIO), ("open", errno.EIO), ("open", errno.ENOTCONN), ("open", errno.EACCES),
                             ("read", errno.ESTALE)):  # fmt: skip
            got = self.machine("get", 1, writer=False, CALLS=calls, DO=error)
            self.assertEqual((got["found"], got["rejected"], got["absent"]), ([False], 0, 0), (calls, error))
        self.assert_found(1)

    def test_a_call_that_fails_once_as_a_file_is_replaced_is_made_again(self):  # fault 464
        self.machine("put", 1)
        for calls in ("read", "open"):
            got = self.machine("get", 1, writer=False, CALLS=calls, FROM=2, TIMES=1, DO=errno.ESTALE)
            self.assertEqual((got["found"], got["busy"]), ([True], 0), calls)
        done = self.machine("put", 2, CALLS="create", TIMES=1, DO=errno.ESTALE)
        self.assertEqual((done["stored"], done["busy"]), (1, 0))

    def test_short_reads_and_writes_are_whole_in_the_end(self):  # fault 464
        done = self.machine("put", 1, CALLS="write,read", DO="short")
        self.assertEqual(done["stored"], 1)
        self.assert_found(1)
        got = self.machine("get", 1, writer=False, CALLS="read", DO="short")
        self.assertEqual((got["found"], got["rejected"]), ([True], 0))

    def test_a_file_system_without_links_or_modes_or_times(self):  # fault 466
        for error in (errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK):
            shutil.rmtree(self.share)
            self.share.mkdir()
            self.assertEqual(self.machine("put", 1, CALLS="link,chmod,utimens", DO=error)["stored"], 1)
            self.assertFalse([file for file in self.files() if ".tmp-" in file])
            got = self.machine("get", 1, CALLS="link,chmod,utimens", DO=error)
            self.assertEqual(got["found"], [True])
        self.assertEqual(self.machine("put", 1, CALLS="link", DO=errno.EEXIST)["stored"], 1)
        self.assert_found(1)

    def test_a_mount_that_hangs_costs_one_deadline_and_delays_no_exit(self):  # fault 465
        self.machine("put", 1, 2, 3)
        for calls in ("open", "read"):
            start = time.monotonic()
            got = self.machine("get", 1, 2, 3, writer=False, timeout_ms=300, CALLS=calls, DO="hang")
            self.assertLess(time.monotonic() - start, 60)
            # The first costs the deadline; the circuit breaker sends no other.
            self.assertEqual((got["found"], got["hung"], got["timeout"]), ([False] * 3, 1, 0), self.log)
            self.assertIn("has not returned", self.log)

    def test_uploads_to_a_mount_that_hangs_are_refused_and_not_tried_again(self):  # fault 465
        start = time.monotonic()
        done = self.machine("put", 1, timeout_ms=2000, CALLS="fsync", DO="hang")
        self.assertLess(time.monotonic() - start, 60)
        self.assertEqual((done["stored"], done["dropped"], done["hung"]), (0, 1, 1))
        self.assertIn("lost hung: ", done["lost"][0])
        host = self.host("a", self.remote, **self.faults(CALLS="open", DO="hang"))
        (check,) = [c for c in self.run_json("doctor", env=host, expect=None)["checks"] if c["name"] == "remote"]
        self.assertEqual(check["status"], "wrong")
        self.assertIn("(hung)", check["detail"])
        self.assertIn("file server", check["advice"])

    def test_machines_whose_clocks_are_hours_apart_share(self):  # fault 468
        for ahead in (-5 * 3600, 5 * 3600):
            shutil.rmtree(self.share)
            self.share.mkdir()
            usual = self.environment
            self.environment = usual | self.preloaded("libshifted_clock.so", CLOCK_AHEAD_S=str(ahead))
            self.assertEqual(self.machine("put", 1)["stored"], 1)
            self.environment = usual
            self.assert_found(1)

    def test_two_processes_put_and_get_together(self):  # fault 461
        command = [BINARIES / "remote_entries", self.remote, self.public, "fleet.key"]
        writers = [
            subprocess.Popen([*command, "put", "60000", *(f"1.{v}" for v in range(6)), "2", "3"], cwd=self.folder,
                             env=self.environment, stdout=subprocess.PIPE, text=True)
            for _ in range(2)
        ]  # fmt: skip
        while any(writer.poll() is None for writer in writers):
            got = self.machine("get", "1.0", "1.5", "2", writer=False)
            self.assertEqual(got["rejected"], 0, self.log)
        for writer in writers:
            out, _ = writer.communicate(timeout=60)
            self.assertIn("stored=8\ndropped=0\n", out)
        self.assert_found(*(f"1.{v}" for v in range(6)), "2", "3")


if __name__ == "__main__":
    unittest.main()
