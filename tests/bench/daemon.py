# SPDX-License-Identifier: Apache-2.0
"""Measures cukilnd: its start, its use of an idle machine, and a hit through it."""

from __future__ import annotations

import contextlib
import socket
import statistics
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from harness import Harness, Row, SkippedError

READY_S = 20
SIZES = {"4 KiB": 4 << 10, "64 KiB": 64 << 10, "1 MiB": 1 << 20}


class Daemon:
    def __init__(self, harness: Harness):
        self.program = harness.programs / "cukilnd"
        if not self.program.exists():
            raise SkippedError("cukilnd is not in this build")
        self.folder = harness.folder("daemon")
        self.socket = self.folder / "cukilnd.sock"
        # It says when it is ready, as to a service manager: nothing has to be polled.
        self.ready = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.ready.bind(str(self.folder / "notify"))
        self.ready.settimeout(READY_S)
        self.environment = harness.environment | {"XDG_RUNTIME_DIR": str(self.folder),
                                                  "NOTIFY_SOCKET": str(self.folder / "notify")}

    @contextlib.contextmanager
    def running(self, store: Path) -> Iterator[tuple[subprocess.Popen, float]]:
        """Starts cukilnd. Returns the process and the milliseconds until it was ready."""
        command = [str(self.program), "--socket", str(self.socket), "--store", str(store)]
        start = time.perf_counter()
        process = subprocess.Popen(command, env=self.environment)
        try:
            self.wait_for(b"READY=1")
            took_ms = (time.perf_counter() - start) * 1e3
            yield process, took_ms
        finally:
            process.terminate()
            process.wait()
        self.wait_for(b"STOPPING=1")  # not to be found before the next one's

    def wait_for(self, state: bytes) -> None:
        try:
            while state not in self.ready.recv(4096):
                pass
        except TimeoutError:
            raise SkippedError(f"cukilnd did not say {state.decode()}") from None


def resident_mib(process: int) -> float:
    return status_of(Path(f"/proc/{process}/status"), "VmRSS") / 1024


def wake_ups(process: int) -> int:
    threads = Path(f"/proc/{process}/task").iterdir()
    return sum(status_of(thread / "status", "voluntary_ctxt_switches") for thread in threads)


def status_of(path: Path, name: str) -> int:
    for line in path.read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1])
    raise SkippedError(f"{path} has no {name}")


def measure(harness: Harness) -> list[Row]:
    rounds = 5 if harness.quick else 31
    idle_s = 2 if harness.quick else 10
    program = harness.program("daemon")
    daemon = Daemon(harness)
    store = daemon.folder / "store"
    harness.run([program, "fill", str(store)])

    starts: dict[str, list[float]] = {"a new": [], "an existing": []}
    for i in range(rounds):
        for kind, folder in (("a new", daemon.folder / f"new-{i}"), ("an existing", store)):
            with daemon.running(folder) as (_, took_ms):
                starts[kind].append(took_ms)

    with daemon.running(store) as (process, _):
        time.sleep(1)  # what its start left to do is no part of idling
        before = wake_ups(process.pid)
        time.sleep(idle_s)
        woken = wake_ups(process.pid) - before
        idle_mib = resident_mib(process.pid)
        hits = harness.run([program, "ask", str(daemon.socket), str(rounds)])
        served_mib = resident_mib(process.pid)

    rows = []
    for name, size in SIZES.items():
        times = hits["hit_us"][str(size)]
        rows.append(
            Row(8, f"a hit through cukilnd, a cubin of {name}", statistics.median(times), "us", "goal: 100 us", 100.0,
                faster=False, note=f"wall, one round trip; the best of {rounds} rounds {min(times):.0f} us",
                samples={name: times})
        )
    smallest, largest = rows[0], rows[-1]
    cpu_us = statistics.median(hits["daemon_cpu_us"])
    rows += [
        Row(8, "the largest cubin's hit", largest.ours, "us", "the smallest's", smallest.ours, faster=False,
            note="goal: 1, for nothing is copied"),
        Row(8, f"a hit's CPU time in the daemon: {1e6 / cpu_us:,.0f} a second on one core", cpu_us, "us",
            "goal: 10,000 a second", 100.0, faster=False,
            note=f"{hits['clients']} concurrent clients on {harness.cores} cores got "
            f"{statistics.median(hits['hits_a_second']):,.0f} a second",
            samples={key: hits[key] for key in ("daemon_cpu_us", "hits_a_second")}),
        Row(8, "cukilnd idle, resident", idle_mib, "MiB", "goal: 20 MiB", 20.0, faster=False,
            note=f"{served_mib:.1f} MiB after these hits"),
        Row(8, f"cukilnd idle, wake-ups in {idle_s} s", woken, "", note="goal: 0"),
    ]
    rows += [
        Row(8, f"cukilnd, start to ready, {kind} store", statistics.median(times), "ms", "goal: 50 ms", 50.0,
            faster=False, note=f"the best of {rounds} {min(times):.1f} ms", samples={kind: times})
        for kind, times in starts.items()
    ]
    return rows
