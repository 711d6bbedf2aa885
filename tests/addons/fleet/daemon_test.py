# SPDX-License-Identifier: Apache-2.0
"""Machines whose daemons know the remote store: their applications reach it without knowing of it."""

import os
import signal
import socket
import sqlite3
import subprocess
import threading
import time
import unittest
from pathlib import Path

from fleet import BINARIES, CUKILN, DaemonFleetTest
from servers import Hostile, Nginx, Redis


class Daemons(DaemonFleetTest):
    def test_what_one_machines_daemon_compiled_is_a_hit_on_another(self):
        redis = self.started(Redis())
        a = self.daemon("a", redis.url)
        self.assertEqual(self.outcome(a), "compiled")
        self.wait_until(lambda: len(redis.keys()) >= 2)  # the upload goes on beside the answer
        b = self.daemon("b", redis.url, writer=False)
        self.assertEqual(self.outcome(b), "hit")
        (entry,) = self.run_json("ls", env=b)["entries"]
        self.assertEqual((entry["origin"], entry["signer"]), ("remote", self.public))

    # fault 407
    @unittest.skipIf("CUKILN_INCLUDE_PATH" in os.environ, "a setting names CUDA's headers")
    def test_a_daemon_vouches_for_headers_of_cuda_that_it_finds_itself(self):
        redis = self.started(Redis())
        self.write("half.cu", '#include <cuda_fp16.h>\nextern "C" __global__ void half_k(__half* x) {}\n')
        client = self.daemon("a", redis.url)
        foreign = self.write("foreign/cuda_fp16.h", "struct __half {};\n").parent
        for folder, mark in ({}, "own-toolkit"), ({"CUKILN_INCLUDE_PATH": str(foreign)}, ""):
            self.assertEqual(self.outcome(client | folder, "half.cu", "--arch", "sm_90a"), "compiled")
            with sqlite3.connect(Path(client["CUKILN_STORE"]) / "v6/gen-0001/store.db") as store:
                rows = store.execute("SELECT signer FROM object WHERE kind='' ORDER BY id DESC LIMIT 1").fetchall()
            self.assertEqual(rows, [(mark,)])
        entries = self.run_json("ls", env=client)["entries"]
        self.assertEqual([(e["origin"], e["signer"], e["signers"]) for e in entries], [("compiled", "", [])] * 2)

    def test_a_dead_remote_costs_a_deadline(self):  # fault 68
        silent = Hostile(lambda connection: time.sleep(60))
        self.addCleanup(silent.stop)
        self.environment["CUKILN_REMOTE_TIMEOUT_MS"] = "200"
        host = self.daemon("a", silent.redis_url)
        start = time.monotonic()
        self.assertEqual(self.outcome(host), "compiled")
        self.assertLess(time.monotonic() - start, 30)
        self.assertLess(silent.connections, 3)


def relay_after(seconds, port):
    """A script for Hostile: a server at `port` that takes its time."""

    def copy(source, sink):
        while data := source.recv(1 << 16):
            sink.sendall(data)

    def script(connection):
        time.sleep(seconds)
        with socket.create_connection(("127.0.0.1", port)) as behind:
            threading.Thread(target=copy, args=(behind, connection), daemon=True).start()
            copy(connection, behind)

    return script


class Blobs(DaemonFleetTest):
    """What other compilers keep, by clients of the machines' daemons that name no remote."""

    def ask(self, host, op, key, value=b"", *, own=False):
        """`own`: the client has the daemon's store open itself; else it has none."""
        file = self.write("value", value)
        done = subprocess.run(
            [BINARIES / "daemon_blobs", host["CUKILN_DAEMON_SOCKET"], host["CUKILN_STORE"] if own else "", op, "triton", key, file],
            cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=120, check=False)  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stderr)
        return file.read_bytes() if done.stdout == "found\n" else None

    def blobs_of(self, host):
        return {blob["key"]: blob["signer"] for blob in self.run_json("ls", "--blobs", env={"CUKILN_STORE": host["CUKILN_STORE"]})["blobs"]}

    def test_what_one_machines_client_put_is_a_hit_on_others(self):
        nginx, redis = self.started(Nginx()), self.started(Redis())
        for at, (remote, objects) in enumerate(((redis.url, redis.keys), (f"{nginx.url}/cache", nginx.files))):
            large = os.urandom(3 << 20)
            a = self.daemon(f"a{at}", remote)
            self.ask(a, "put", "own", b"of a client with the store", own=True)
            self.ask(a, "put", "none", large)
            self.wait_until(lambda objects=objects: len(objects()) == 2)
            self.processes[f"a{at}"].send_signal(signal.SIGTERM)  # then it has written its counters
            self.processes[f"a{at}"].wait(30)
            self.assertEqual(self.run_json("stats", env={"CUKILN_STORE": a["CUKILN_STORE"]})["blobs"]["stored"], 2)
            b = self.daemon(f"b{at}", remote, writer=False)
            self.assertEqual(self.ask(b, "get", "own"), b"of a client with the store")
            self.assertEqual(self.ask(b, "produce", "none", own=True), large)
            self.assertIsNone(self.ask(b, "produce", "another", own=True))
            self.assertEqual(self.blobs_of(b), {"own": self.public, "none": self.public})
            counts = self.run_json("stats", env={"CUKILN_STORE": b["CUKILN_STORE"]})["blobs"]
            self.assertEqual((counts["hits"], counts["misses"]), (1, 1))  # of the client that has the store
        redis.stop()  # then they are of this machine
        self.assertEqual(self.ask({**b, "CUKILN_DAEMON_SOCKET": "/nowhere"}, "get", "none", own=True), large)

    def test_what_a_revoked_key_signed_is_a_miss_again(self):  # fault 286
        redis = self.started(Redis())
        a = self.daemon("a", redis.url)
        self.ask(a, "put", "key", b"bytes", own=True)
        self.wait_until(lambda: len(redis.keys()) == 1)
        trusted = self.write("trusted", self.public + "\n")
        b = self.daemon("b", redis.url, writer=False, CUKILN_REMOTE_TRUST=str(trusted))
        self.assertEqual(self.ask(b, "get", "key"), b"bytes")
        self.assertEqual(self.blobs_of(b), {"key": self.public})
        self.write("trusted", f"{self.public}\nrevoked {self.public}\n")
        self.processes["b"].send_signal(signal.SIGHUP)
        self.wait_until(lambda: self.blobs_of(b) == {})
        self.assertIsNone(self.ask(b, "get", "key"))
        self.assertIsNone(self.ask(b, "get", "key", own=True))
        self.assertEqual(self.ask(a, "get", "key"), b"bytes")  # its own

    def test_a_dead_remote_costs_a_deadline_and_a_slow_one_is_awaited(self):  # fault 287
        silent = Hostile(lambda connection: time.sleep(60))
        self.addCleanup(silent.stop)
        host = self.daemon("a", silent.redis_url, CUKILN_REMOTE_TIMEOUT_MS="200")
        start = time.monotonic()
        for own in (False, True):
            self.assertIsNone(self.ask(host, "produce", "key", own=own))
        self.assertLess(time.monotonic() - start, 50)  # the server sleeps for longer
        self.assertLess(silent.connections, 4)
        self.ask(host, "put", "key", b"bytes", own=True)
        self.assertEqual(self.ask(host, "get", "key"), b"bytes")
        # Slower than a client waits for a daemon that says nothing.
        redis = self.started(Redis())
        self.ask(self.daemon("b", redis.url), "put", "key", b"bytes")
        self.wait_until(lambda: len(redis.keys()) == 1)
        slow = Hostile(relay_after(3, redis.port))
        self.addCleanup(slow.stop)
        c = self.daemon("c", slow.redis_url, writer=False, CUKILN_REMOTE_TIMEOUT_MS="20000")
        self.assertEqual(self.ask(c, "get", "key"), b"bytes")

    def test_a_daemon_that_may_not_sign_uploads_nothing(self):  # fault 288
        redis = self.started(Redis())
        reader = self.daemon("a", redis.url, writer=False)
        self.ask(reader, "put", "key", b"bytes", own=True)
        self.assertEqual(self.ask(reader, "get", "key"), b"bytes")
        self.processes["a"].send_signal(signal.SIGTERM)  # waits for its uploads
        self.processes["a"].wait(30)
        self.assertEqual(redis.keys(), [])


if __name__ == "__main__":
    unittest.main()
