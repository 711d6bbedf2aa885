# SPDX-License-Identifier: Apache-2.0
"""Each metric of a real cukilnd changes with what it counts, and promtool accepts them all."""

from __future__ import annotations

import fcntl
import json
import re
import signal
import socket
import sqlite3
import struct
import subprocess
import time
import unittest
from pathlib import Path

from ops_daemon import BINARIES, DaemonCase
from ops_observability_test import promtool

HELLO, PING, REPORT = 1, 9, 11


def frame(op: int, body: bytes = b"", number: int = 1, length: int | None = None) -> bytes:
    return struct.pack("<IHHQ", len(body) if length is None else length, op, 0, number) + body


def counted(text: bytes) -> bytes:
    return struct.pack("<I", len(text)) + text


def report_of(numbers: dict[str, int]) -> bytes:
    body = struct.pack("<I", len(numbers))
    return body + b"".join(counted(name.encode()) + struct.pack("<Q", n) for name, n in numbers.items())


GREET = frame(HELLO, struct.pack("<II", 4, 1) + counted(b"test"), number=0)


class MetricsTest(DaemonCase):
    kernels = 0

    def metrics(self) -> dict[str, float]:
        samples = {}
        for line in self.get("/metrics")[1].splitlines():
            if not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                samples[name.removeprefix("cukiln_")] = float(value)
        return samples

    def metric(self, name: str) -> float:
        return self.metrics()[name]

    def comes_to(self, name: str, least: float = 1) -> None:
        self.wait_until(lambda: self.metric(name) >= least)

    def moves(self, name: str, action) -> None:
        """Repeats `action`, because a client on a busy machine may fall back to a local compile."""
        before = self.metric(name)
        for _ in range(8):
            action()
            if self.metric(name) > before:
                return
        self.fail(f"{name} stays at {before}")

    def run_client(self, text: str = "", fails: bool = False, name: str = "", **environment: str) -> str:
        if not name:
            MetricsTest.kernels += 1
            name = f"k{MetricsTest.kernels}"
        client = self.client(name, f'{text}\nextern "C" __global__ void {name}(int* x) {{}}\n', **environment)
        client.communicate(timeout=60)
        self.assertEqual(client.returncode != 0, fails)
        return name

    def connect(self) -> socket.socket:
        plug = socket.socket(socket.AF_UNIX)
        self.addCleanup(plug.close)
        plug.settimeout(20)
        plug.connect(str(self.folder / "run" / "cukilnd.sock"))
        return plug

    def say(self, *frames: bytes) -> bytes:
        """What the daemon sends until it closes the connection."""
        plug = self.connect()
        answer = b""
        try:
            plug.sendall(b"".join(frames))
            while part := plug.recv(4096):
                answer += part
        except (ConnectionResetError, BrokenPipeError):
            pass
        return answer

    def database(self) -> Path:
        return max((self.folder / "store").rglob("store.db"))

    def test_promtool_accepts_the_metrics_and_build_info_has_the_versions(self) -> None:
        self.run_client()
        text = self.get("/metrics")[1]
        promtool("check", "metrics", text=text)
        info = re.search(r"\ncukiln_build_info\{(.*)\} 1\n", text)[1]
        self.assertIn('nvrtc="13.0.99"', info)
        self.assertIn('protocol="4"', info)
        self.assertRegex(info, r'sqlite="3\.')

    def test_requests_are_counted_by_result_and_timed(self) -> None:
        self.moves('ipc_requests_total{op="obtain",result="ok"}', self.run_client)
        self.moves('ipc_requests_total{op="obtain",result="error"}',
                   lambda: self.run_client("// fake: error no", fails=True))  # fmt: skip
        elsewhere = {"CUKILN_STORE": str(self.folder / "other")}
        # A client of another store hits the daemon's entry, and reports the time.
        self.moves("ipc_entries_sent_total",
                   lambda: (name := self.run_client(), self.run_client(name=name, **elsewhere)))  # fmt: skip
        self.comes_to('lookup_duration_seconds_count{tier="daemon"}')
        now = self.metrics()
        all_results = sum(n for name, n in now.items() if name.startswith('ipc_requests_total{op="obtain",'))
        self.assertEqual(now['ipc_request_duration_seconds_count{op="obtain"}'], all_results)
        self.assertGreater(now['ipc_request_duration_seconds_sum{op="obtain"}'], 0)
        with self.connect() as plug:
            plug.recv(64)
            self.comes_to("ipc_connections", 1)
        self.wait_until(lambda: self.metric("ipc_connections") == 0)

    def test_protocol_errors_are_counted_by_reason(self) -> None:
        for reason, frames in {"length": [GREET, frame(PING, length=1 << 30)], "no_hello": [frame(PING)],
                               "hello": [GREET, GREET], "report": [GREET, frame(REPORT, b"nonsense")],
                               "flags": [GREET, struct.pack("<IHHQ", 0, PING, 8, 1)]}.items():  # fmt: skip
            with self.subTest(reason=reason):
                self.say(*frames)
                self.assertEqual(self.metric(f'ipc_protocol_errors_total{{reason="{reason}"}}'), 1)
        self.say(frame(HELLO, struct.pack("<II", 99, 1) + counted(b"new"), number=0))
        self.assertEqual(self.metric('ipc_connections_rejected_total{reason="version"}'), 1)

    def test_a_client_can_report_known_counters_and_no_others(self) -> None:
        plug = self.connect()
        self.assertEqual(plug.recv(64)[8] & 36, 36)  # "takes reports", "takes totals"
        reported = {"fallbacks_timeout": 3, "preload_us_to_25000": 2, "preload_us_sum": 30_000, "entries": 7, "hits": 7}
        plug.sendall(GREET + frame(REPORT, report_of(reported)) + frame(PING, b"!", number=2))
        self.assertEqual(plug.recv(64)[4], 74)  # a report has no reply, a ping has
        now = self.metrics()
        self.assertEqual(now['client_fallbacks_total{reason="timeout"}'], 3)
        self.assertEqual(now['client_preload_duration_seconds_bucket{le="0.025"}'], 2)
        self.assertEqual(now['client_preload_duration_seconds_bucket{le="0.01"}'], 0)
        self.assertEqual(now["client_preload_duration_seconds_sum"], 0.03)
        self.assertEqual(now['lookups_total{tier="all",result="hit"}'], 7)
        self.assertEqual(now["store_entries"], 0)

    def test_counters_of_clients_without_a_daemon_are_shown_by_the_next_daemon(self) -> None:
        self.stop()
        name = self.run_client(CUKILN_DAEMON="auto")
        self.run_client(name=name, CUKILN_DAEMON="auto")
        (self.folder / "m.json").write_text(json.dumps(
            {"format": 1, "modules": [{"name": "m", "sources": [f"{name}.cu"], "names": [name]}]}))  # fmt: skip
        subprocess.run([BINARIES / "cukiln", "preload", self.folder / "m.json", "--no-load", "--arch", "sm_90a"],
                       env=self.environment, check=True, stdout=subprocess.DEVNULL)  # fmt: skip
        self.start()
        now = self.metrics()
        self.assertGreaterEqual(now['client_fallbacks_total{reason="absent"}'], 1)
        self.assertGreaterEqual(now['lookup_duration_seconds_count{tier="disk"}'], 1)
        self.assertEqual(now["client_preload_duration_seconds_count"], 3)  # a compile is one of one module

    def test_compiles_are_counted_by_result(self) -> None:
        plain = BINARIES / "cukiln-plain-compile-worker"  # preset asan: a sanitised worker has no memory limit
        if plain.exists():
            self.stop()
            self.environment["CUKILN_WORKER"] = str(plain)
            self.start()
        for result, order in {"garbage": "garbage", "oom": "oom", "error": "error no"}.items():
            self.moves(f'compiles_total{{result="{result}"}}',
                       lambda order=order: self.run_client(f"// fake: {order}", fails=True))  # fmt: skip
        self.moves('uncacheable_total{reason="time"}', lambda: self.run_client("const char* when = __TIME__;"))

    def test_a_request_that_crashed_is_refused_for_a_while(self) -> None:
        seen = False
        for _ in range(6):  # the pause doubles
            crash = self.client("crash", '// fake: segv\nextern "C" __global__ void crash(int* x) {}\n')
            while crash.poll() is None:
                seen = seen or self.metric("quarantined_requests") == 1
            seen = seen or self.metric("quarantined_requests") == 1
            crash.stdout.close()
            if seen:
                break
        self.assertTrue(seen)
        self.assertGreaterEqual(self.metric('compiles_total{result="crash"}'), 1)
        self.wait_until(lambda: self.metric("quarantined_requests") == 0, 70)

    def test_waits_for_other_writers_are_timed_and_a_put_that_timed_out_is_an_error(self) -> None:
        self.comes_to("store_lock_wait_seconds_count", 0)
        self.moves("store_lock_wait_seconds_count", self.run_client)
        with open(next((self.folder / "store").rglob("writer.lock")), "r+b") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.moves('store_errors_total{op="put",code="timeout"}',
                       lambda: self.run_client(fails=True))  # fmt: skip
        now = self.metrics()
        self.assertGreaterEqual(now["store_lock_timeouts_total"], 1)
        self.assertGreater(now["store_lock_wait_seconds_sum"], 1)
        self.assertGreater(now['store_lock_wait_seconds_bucket{le="+Inf"}'],
                           now['store_lock_wait_seconds_bucket{le="0.5"}'])  # fmt: skip

    def test_damage_is_counted_by_kind(self) -> None:
        changes = {"entry": "UPDATE object SET details=x'00' WHERE instr(summary, ?)",
                   "set": "UPDATE request SET tree=x'00' WHERE digest IN (SELECT request FROM object WHERE instr(summary, ?))"}  # fmt: skip
        for kind, change in changes.items():
            def damage(change: str = change) -> None:
                name = self.run_client()
                self.stop()
                with sqlite3.connect(self.database()) as database:
                    database.execute(change, (name.encode(),))
                database.close()
                self.start()
                self.run_client(name=name, CUKILN_STORE=str(self.folder / "other"))

            self.moves(f'store_corrupt_entries_total{{kind="{kind}"}}', damage)

    def test_a_rebuild_of_the_store_is_counted_by_reason(self) -> None:
        self.run_client()
        self.stop()
        database = sqlite3.connect(self.database())
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # else pages would be read from the log
        database.close()
        self.database().write_bytes(b"no database" * 1000)
        self.start()
        self.assertEqual(self.metric('store_rebuilds_total{reason="damaged"}'), 1)
        for file in self.database().parent.glob("store.db*"):
            file.unlink()
        elsewhere = {"CUKILN_STORE": str(self.folder / "other")}  # a client of this store would rebuild it first
        self.moves('store_rebuilds_total{reason="replaced"}', lambda: self.run_client(**elsewhere))

    def test_a_connection_to_a_draining_daemon_is_closed_and_counted(self) -> None:
        text = '// fake: sleep 4000\nextern "C" __global__ void slow(int* x) {}\n'
        client = self.client("slow", text)
        self.wait_until(lambda: self.status()["compiles"])
        self.daemon.send_signal(signal.SIGTERM)
        self.wait_until(lambda: self.status()["draining"])
        rejected = 'ipc_connections_rejected_total{reason="draining"}'
        before = self.metric(rejected)  # the client may connect once more too
        self.assertEqual(self.say(), b"")
        self.assertGreater(self.metric(rejected), before)
        client.communicate(timeout=30)


if __name__ == "__main__":
    unittest.main()
