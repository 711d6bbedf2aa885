# SPDX-License-Identifier: Apache-2.0
"""The admin HTTP server of a real cukilnd reports what happened."""

from __future__ import annotations

import http.client
import json
import stat
import subprocess
import unittest

from ops_daemon import BINARIES, DaemonCase
from ops_observability_test import measured_names_missing


class OpsDaemonTest(DaemonCase):
    def test_a_compile_is_shown_while_it_runs_and_counted_when_it_ends(self) -> None:
        text = "// fake: sleep 1500\nextern \"C\" __global__ void slow(int* x) {}\n"
        first = self.client("slow", text)
        self.wait_until(lambda: self.status()["compiles"])
        second = self.client("slow", text)
        self.wait_until(lambda: self.status()["compiles"] and self.status()["compiles"][0]["waiters"] == 2)
        job = self.status()["compiles"][0]
        self.assertEqual((job["name"], job["target"], job["running"]), ("slow", "sm_90a", True))
        self.assertEqual(job["owner_process"], first.pid)
        metrics = self.get("/metrics")[1]
        self.assertIn("\ncukiln_compiles_in_flight 1\n", metrics)
        self.assertIn("\ncukiln_singleflight_waiters 2\n", metrics)
        outcomes = []
        for client in (first, second):
            outcomes.append(json.loads(client.communicate(timeout=20)[0])["modules"][0]["outcome"])
            self.assertEqual(client.returncode, 0)
        self.assertEqual(outcomes, ["compiled", "hit"])
        metrics = self.get("/metrics")[1]
        for line in ('cukiln_compiles_total{result="ok"} 1', "cukiln_singleflight_coalesced_total 1",
                     "cukiln_compiles_in_flight 0", "cukiln_store_entries 1",
                     'cukiln_compile_duration_seconds_bucket{le="1"} 0',
                     'cukiln_compile_duration_seconds_bucket{le="30"} 1', "cukiln_compile_duration_seconds_count 1"):  # fmt: skip
            self.assertIn(f"\n{line}\n", metrics)
        entry = json.loads(self.get("/api/entries?q=slow")[1])["entries"][0]
        shown = json.loads(self.get(f"/api/entries/{entry['key']}")[1])
        self.assertEqual([kernel["name"] for kernel in shown["kernels"]], ["slow"])

    def test_the_misses_of_a_running_process_are_counted(self) -> None:  # fault 358
        go = self.folder / "go"
        client = self.client("slow", f'// fake: wait {go}\nextern "C" __global__ void slow(int* x) {{}}\n')
        self.wait_until(lambda: self.status()["lookups"]["misses"] == 1)
        self.wait_until(lambda: self.status()["counters"]["compiles_running"] == 1)
        status = self.status()
        self.assertEqual(status["lookups"]["misses_by_reason"]["new"], 1)
        self.assertEqual([status["counters"][name] for name in ("compile_waiters", "compile_clients")], [1, 1])
        self.assertIsNone(client.poll())
        client.kill()
        client.communicate()
        go.touch()
        self.wait_until(lambda: self.status()["counters"]["compiles_running"] == 0)
        self.assertEqual(self.status()["lookups"]["misses"], 1)

    def test_alerts_and_dashboard_use_existing_metrics_and_a_dead_remote_is_shown(self) -> None:
        made = subprocess.run([BINARIES / "cukiln", "keygen", "-o", self.folder / "key", "--json"],
                              env=self.environment, capture_output=True, check=True)  # fmt: skip
        self.environment |= {"CUKILN_REMOTE": "redis://:secret@127.0.0.1:1",  # no server listens there
                             "CUKILN_REMOTE_TRUST": json.loads(made.stdout)["public_key"]}  # fmt: skip
        self.stop()
        self.start()
        self.assertEqual(measured_names_missing(self.get("/metrics")[1]), set())
        # A client that the daemon does not greet in time compiles by itself, and asks no remote.
        for i in range(100):
            client = self.client(f"k{i}", 'extern "C" __global__ void k%d(int* x) {}\n' % i)
            client.communicate(timeout=60)
            self.assertEqual(client.returncode, 0)
            (server,) = self.status()["remotes"]["servers"]
            if server["circuit_open"]:
                break
        self.assertEqual(server, {"where": "redis://127.0.0.1:1/cukiln6", "circuit_open": True})
        metrics = self.get("/metrics")[1]
        self.assertIn('\ncukiln_remote_breaker_open{backend="redis"} 1\n', metrics)
        asked = r'\{backend="redis",op="get"'
        self.assertRegex(metrics, r"\ncukiln_remote_requests_total" + asked + r',result="unreachable"\} [1-9]')
        self.assertRegex(metrics, r"\ncukiln_remote_request_duration_seconds_count" + asked + r"\} [1-9]")
        self.assertRegex(metrics, r'\ncukiln_remote_requests_total\{backend="redis",op="lease",result="ok"\} 0\n')
        for line in ('cukiln_remote_breaker_transitions_total{to="open"} 1',
                     'cukiln_remote_breaker_transitions_total{to="closed"} 0', "cukiln_remote_upload_queue_length 0"):  # fmt: skip
            self.assertIn(f"\n{line}\n", metrics)
        self.assertNotIn("secret", self.get("/api/status")[1])

    def test_readyz_requires_a_compiler_and_a_store(self) -> None:
        code, body = self.get("/readyz")
        self.assertEqual((code, body), (200, "daemon: ok\nstore: ok, written and read\ncompiler: nvrtc 13.0.99\n"))
        self.stop()
        self.environment["CUKILN_NVRTC_LIBRARY"] = str(self.folder / "nowhere.so")
        self.start()
        self.assertEqual(self.get("/healthz"), (200, "ok\n"))
        code, body = self.get("/readyz")
        self.assertEqual(code, 503)
        self.assertIn("nowhere.so", body)

    def test_a_draining_daemon_is_healthy_and_not_ready(self) -> None:
        text = "// fake: sleep 3000\nextern \"C\" __global__ void slow(int* x) {}\n"
        client = self.client("slow", text)
        self.wait_until(lambda: self.status()["compiles"])
        self.daemon.terminate()
        self.wait_until(lambda: self.status()["draining"])
        self.assertEqual(self.get("/readyz")[0], 503)
        self.assertEqual(self.get("/healthz")[0], 200)
        client.communicate(timeout=20)
        self.assertEqual(self.daemon.wait(timeout=20), 0)
        self.assertFalse((self.folder / "run" / "ops.sock").exists())

    def test_only_the_owner_reaches_the_socket_and_tcp_is_opt_in(self) -> None:  # fault 386
        mode = (self.folder / "run" / "ops.sock").stat().st_mode
        self.assertEqual(stat.S_IMODE(mode), 0o600)
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        connection.request("GET", "/healthz")
        self.assertEqual(connection.getresponse().status, 200)
        connection.close()
        for address in ("0.0.0.0:0", "192.0.2.1:80", "example.org:80", "127.0.0.1", "127.0.0.1:65536", ":80", "[::]:1"):
            with self.subTest(address=address):
                done = subprocess.run([BINARIES / "cukilnd", "--http", address, "--socket", self.folder / "other" / "s"],
                                      env=self.environment, capture_output=True, text=True, timeout=20)  # fmt: skip
                self.assertEqual(done.returncode, 1)
                self.assertIn("127.0.0.1:PORT", done.stderr)


if __name__ == "__main__":
    unittest.main()
