# SPDX-License-Identifier: Apache-2.0
"""A machine whose system daemon holds no key: its signer, another user, signs and uploads what it compiled."""

import ctypes
import json
import os
import struct
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

from fleet import BINARIES, DaemonFleetTest
from servers import Redis
from service_user import SERVICE, SIGNER, as_service

STRANGER = 64_005
SCALE = ("scale.cu", "--arch", "sm_90a")  # includes a header of its user

# Prints what the signer answers to a datagram without an offer.
CONNECT = """
import socket, sys
client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
client.settimeout(20)
client.connect(sys.argv[1])
try:
    client.send(b"CKS1")
    print(client.recv(4096))
except (BrokenPipeError, ConnectionResetError):
    print(b"")
"""


CREATE_RULESET = 444  # of Landlock
LIBC = ctypes.CDLL(None)


def has_landlock():
    return LIBC.syscall(CREATE_RULESET, None, ctypes.c_size_t(0), 1) > 0


def without_landlock():
    """Runs in a child before exec: its kernel has no Landlock from here on (a seccomp filter answers ENOSYS)."""
    code = b"".join(struct.pack("HBBI", *line) for line in (
        (0x20, 0, 0, 0),  # loads the call's number
        (0x15, 0, 1, CREATE_RULESET), (0x06, 0, 0, 0x00050000 | 38), (0x06, 0, 0, 0x7FFF0000)))  # fmt: skip
    text = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("HxxxxxxP", 4, ctypes.addressof(text))
    if LIBC.prctl(38, 1, 0, 0, 0) != 0 or LIBC.prctl(22, 2, program) != 0:  # no new privileges; the filter
        os._exit(99)


@unittest.skipUnless(has_landlock(), "this kernel has no Landlock")
@unittest.skipUnless(os.geteuid() == 0, "only root can be the users of daemon and signer")
class Signers(DaemonFleetTest):
    def setUp(self):
        super().setUp()
        self.key = self.folder / "fleet.key"
        os.chown(self.key, SIGNER, SIGNER)
        self.run_folder = Path(tempfile.mkdtemp(prefix="cks-"))  # a socket's path is short
        self.addCleanup(lambda: self.run_folder.rmdir())
        self.socket = self.run_folder / "s" / "sign.sock"
        self.audit = self.folder / "audit.jsonl"

    def command(self, *arguments):
        return [BINARIES / "cukilnd", "--signer", "--signer-socket", self.socket, "--audit", self.audit, *arguments]

    def signer(self, remote, *arguments, **more):
        command = self.command("--signer-accepts", SERVICE, *arguments)
        with open(self.folder / "signer.log", "w") as log:
            process = subprocess.Popen(as_service(command, self.folder, self.run_folder, user=SIGNER),
                                       env=self.environment | self.host("signer", remote, **more), cwd=self.folder,
                                       stdin=subprocess.DEVNULL, stderr=log)  # fmt: skip
        self.addCleanup(self.stop, process, self.socket)
        self.wait_until(lambda: self.socket.exists() or process.poll() is not None)
        self.assertIsNone(process.poll(), (self.folder / "signer.log").read_text())
        return process

    def wait_until(self, is_true):
        deadline = time.monotonic() + 20
        while not is_true():
            self.assertLess(time.monotonic(), deadline, self.decisions())
            time.sleep(0.02)

    def decisions(self):
        lines = self.audit.read_text().splitlines() if self.audit.exists() else []
        return [json.loads(line) for line in lines]

    def refused(self, command, user, before=None, **more):
        done = subprocess.run(as_service(command, self.folder, self.run_folder, user=user), env=self.environment | more,
                              cwd=self.folder, capture_output=True, text=True, timeout=20, preexec_fn=before)  # fmt: skip
        self.assertNotIn(done.returncode, (0, 99))
        return done.stderr

    def test_what_a_system_daemon_compiled_is_signed_and_a_hit_on_another_machine(self):
        redis = self.started(Redis())
        self.signer(redis.url)
        a = self.daemon("a", redis.url, "--system", writer=False, CUKILN_SIGNER_SOCKET=str(self.socket))
        for kernels, keys in ((SCALE, 2), (("add.cu", "-DADDEND=1", "--arch", "sm_90a"), 4)):
            self.assertEqual(self.outcome(a | {"CUKILN_STORE": str(self.folder / "own")}, *kernels), "compiled")
            self.wait_until(lambda: len(redis.keys()) == keys)
            b = self.host(f"b{keys}", redis.url, writer=False)
            self.assertEqual(self.outcome(b, *kernels), "hit")
            (entry,) = self.run_json("ls", env=b)["entries"]
            self.assertEqual((entry["origin"], entry["signer"]), ("remote", self.public))
        self.wait_until(lambda: len(self.decisions()) == 2)
        for decision in self.decisions():
            self.assertEqual((decision["event"], decision["uid"]), ("signed", SERVICE))
            self.assertEqual(len(decision["key"]), 64)

    def test_a_module_outside_the_scope_of_the_key_stays_on_the_machine(self):
        redis = self.started(Redis())
        self.signer(redis.url, CUKILN_REMOTE_TRUST=self.public + " modules=other_")
        a = self.daemon("a", redis.url, "--system", writer=False, CUKILN_SIGNER_SOCKET=str(self.socket))
        self.assertEqual(self.outcome(a | {"CUKILN_STORE": str(self.folder / "own")}), "compiled")
        self.wait_until(self.decisions)
        self.assertEqual([(each["event"], each["reason"]) for each in self.decisions()], [("not_signed", "scope")])
        self.assertEqual(redis.keys(), [])

    def test_a_daemon_goes_on_without_its_signer_and_finds_the_next_one(self):
        redis = self.started(Redis())
        first = self.signer(redis.url)
        a = self.daemon("a", redis.url, "--system", writer=False, CUKILN_SIGNER_SOCKET=str(self.socket))
        own = a | {"CUKILN_STORE": str(self.folder / "own")}
        self.assertEqual(self.outcome(own, *SCALE), "compiled")
        self.wait_until(lambda: len(redis.keys()) == 2)
        first.terminate()
        self.assertEqual(first.wait(20), 0)
        self.signer(redis.url)
        self.assertEqual(self.outcome(own), "compiled")
        self.wait_until(lambda: len(redis.keys()) == 4)

    def test_only_the_daemons_user_is_listened_to_and_no_user_reads_the_key(self):  # fault 147
        self.signer("redis://127.0.0.1:1")
        self.key.parent.chmod(0o711)
        for user in (SERVICE, STRANGER):
            plain = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--"]
            done = subprocess.run([*plain, "cat", self.key], capture_output=True, text=True)
            self.assertIn("Permission denied", done.stderr)
        for user in (0, STRANGER, SERVICE):  # the last one for what it says
            plain = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--"]
            done = subprocess.run([*plain, "python3", "-c", CONNECT, self.socket], capture_output=True, text=True)
            self.assertEqual(done.stdout, "b''\n", done.stderr)
        self.wait_until(lambda: len(self.decisions()) == 3)
        self.assertEqual([(each["event"], each["uid"], each["reason"]) for each in self.decisions()],
                         [("rejected", 0, "user"), ("rejected", STRANGER, "user"), ("rejected", SERVICE, "protocol")])  # fmt: skip

    def test_it_does_not_start_where_it_protects_nothing(self):
        host = self.host("signer", "redis://127.0.0.1:1")
        done = subprocess.run([str(word) for word in self.command("--signer-accepts", "64003")],
                              env=self.environment | host, capture_output=True, text=True, timeout=20)  # fmt: skip
        self.assertIn("--signer as root is refused", done.stderr)
        self.assertIn("the daemon's user, which could then read the key",
                      self.refused(self.command("--signer-accepts", SIGNER), SIGNER, **host))  # fmt: skip
        self.assertIn("need each other", self.refused(self.command(), SIGNER, **host))
        self.assertIn("expected the user of the daemon",
                      self.refused(self.command("--signer-accepts", "no-such-user"), SIGNER, **host))  # fmt: skip
        no_key = self.host("signer", "redis://127.0.0.1:1", writer=False)
        self.assertIn("the signer has no key", self.refused(self.command("--signer-accepts", SERVICE), SIGNER, **no_key))
        self.key.chmod(0o640)
        self.assertIn("is not private", self.refused(self.command("--signer-accepts", SERVICE), SIGNER, **host))
        self.assertFalse(self.socket.exists())

    def test_it_does_not_start_without_landlock(self):  # fault 149
        host = self.host("signer", "redis://127.0.0.1:1")
        self.assertIn("this kernel has no Landlock",
                      self.refused(self.command("--signer-accepts", SERVICE), SIGNER, without_landlock, **host))  # fmt: skip


if __name__ == "__main__":
    unittest.main()
