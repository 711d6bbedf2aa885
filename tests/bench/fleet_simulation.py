#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Simulates a roll-out: HOSTS machines start a new build and use one remote store.

Only this file runs: a seeded simulation of requests at a server, with measured service times. It assumes:

- Every machine starts once, within --jitter seconds (evenly), and asks for the same --modules modules,
  --parallel of them at a time. Files and compiler are the same everywhere, so each module is one entry.
- The protocol is that of src/addons/fleet: the list of sets, then the entry. Over Redis a machine that finds
  nothing asks for the lease. The one that gets it asks for the list again, compiles, uploads (entry, list read
  and written) and releases the lease; the others ask again after 10 ms, doubled up to 250 ms, each half to one
  and a half times that. Over HTTP there is no lease: a machine that finds nothing compiles and uploads.
- A request takes half a round trip, waits its turn at the server, is served, its answer goes through the
  server's network card, one after the other, and takes half a round trip back. Redis serves one request at a
  time, nginx as many as it has workers. Service times are CPU times per request, measured (--measure).
- No answer within 200 ms (an upload: 10 s) is a timeout. The machine then leaves the server alone for 30 s
  (0.8 to 1.2 times that) and compiles what it needs meanwhile. The server still does the
  work, though its answer is not awaited any more: the request is in its queue.
- A compile takes --compile seconds, 0.8 to 1.2 times that, wherever it runs; loading costs nothing. Nothing
  fails but by being late.

Left out: connections being made (one per machine and thread), packet loss, the machines' own disks, TLS.
"""

from __future__ import annotations

import argparse
import heapq
import json
import random
import sys
from collections import Counter
from pathlib import Path

# Seconds of CPU per request, as --measure printed them on a shared x86-64 machine, loopback, Redis 7.0.15,
# nginx 1.22.1; and how many requests the server works on concurrently.
MEASURED = {
    "redis": {"small": 6e-6, "get_entry": 8.5e-6, "put_entry": 9e-6, "workers": 1},
    "nginx": {"small": 11e-6, "get_entry": 17e-6, "put_entry": 190e-6, "workers": 4},
}
ROUND_TRIP = 0.0005
NETWORK_BYTES_PER_S = 10e9 / 8
LOOK_UP_TIMEOUT, UPLOAD_TIMEOUT, PAUSE = 0.2, 10.0, 30.0
FIRST_POLL, LONGEST_POLL = 0.010, 0.250
REQUEST_BYTES = 150


class Server:
    """A server that handles requests in the order of arrival, so an answer's time is known when its request arrives."""

    def __init__(self, times, entry_bytes, sets_bytes):
        self.times = times
        self.free_at = [0.0] * times["workers"]
        self.card_free_at = 0.0
        self.bytes = {"get_entry": entry_bytes, "get_sets": sets_bytes}
        self.put_bytes = {"put_entry": entry_bytes, "put_sets": sets_bytes}
        self.requests, self.received, self.sent = Counter(), 0, 0
        self.waits = []

    def serve(self, now, kind, found=True):
        """The time at which the client has the answer."""
        self.requests[kind] += 1
        self.received += REQUEST_BYTES + self.put_bytes.get(kind, 0)
        arrived = now + ROUND_TRIP / 2
        free = heapq.heappop(self.free_at)
        begun = max(arrived, free)
        done = begun + self.times.get(kind, self.times["small"])
        heapq.heappush(self.free_at, done)
        answer = 50 + (self.bytes.get(kind, 0) if found else 0)
        self.sent += answer
        self.card_free_at = max(self.card_free_at, done) + answer / NETWORK_BYTES_PER_S
        self.waits.append(self.card_free_at - arrived)
        return self.card_free_at + ROUND_TRIP / 2


class Fleet:
    def __init__(self, options):
        self.options, self.random = options, random.Random(options.seed)
        self.server = Server(MEASURED[options.server], options.entry_bytes, options.sets_bytes)
        self.leases = options.server == "redis"
        self.now, self.order, self.events = 0.0, 0, []
        self.there = set(range(options.modules)) if options.baked else set()  # modules on the server
        self.lease_of = {}
        self.left_alone_until = [0.0] * options.hosts
        self.compiles, self.timeouts, self.hits = Counter(), 0, 0
        self.started, self.open, self.warm = [0.0] * options.hosts, [options.modules] * options.hosts, []

    def at(self, moment, action, *arguments):
        self.order += 1
        heapq.heappush(self.events, (moment, self.order, action, arguments))

    def run(self):
        for host in range(self.options.hosts):
            self.started[host] = self.random.uniform(0, self.options.jitter)
            modules = list(range(self.options.modules))
            queue = iter(modules)
            for _ in range(min(self.options.parallel, len(modules))):
                self.at(self.started[host], self.look_up, host, next(queue), queue)
        while self.events:
            self.now, _, action, arguments = heapq.heappop(self.events)
            action(*arguments)
        return self.result()

    def ask(self, host, kind, timeout, found, then, *arguments):
        """Calls `then(ok, …)` at the answer, or at the timeout."""
        if self.now < self.left_alone_until[host]:
            self.at(self.now, then, False, *arguments)
            return
        back = self.server.serve(self.now, kind, found)
        if back - self.now <= timeout:
            self.at(back, then, True, *arguments)
            return
        self.timeouts += 1
        self.at(self.now + timeout, self.late, host, then, arguments)

    def late(self, host, then, arguments):
        if self.now >= self.left_alone_until[host]:
            self.left_alone_until[host] = self.now + PAUSE * self.random.uniform(0.8, 1.2)
        then(False, *arguments)

    def look_up(self, host, module, queue):
        there = module in self.there
        self.ask(host, "get_sets", LOOK_UP_TIMEOUT, there, self.looked_up, host, module, queue, there)

    def looked_up(self, ok, host, module, queue, there):
        if ok and there:
            self.ask(host, "get_entry", LOOK_UP_TIMEOUT, True, self.fetched, host, module, queue)
        elif ok and self.leases:
            self.take_turn(host, module, queue, FIRST_POLL)
        else:
            self.compile(host, module, queue, False)

    def fetched(self, ok, host, module, queue):
        if ok:
            self.hits += 1
            self.done(host, queue)
        else:
            self.compile(host, module, queue, False)

    def take_turn(self, host, module, queue, pause):
        taken = module not in self.lease_of
        if taken:
            self.lease_of[module] = host
        self.ask(host, "lease", LOOK_UP_TIMEOUT, True, self.turn, host, module, queue, pause, taken)

    def turn(self, ok, host, module, queue, pause, taken):
        if taken and ok:  # another machine may have released it just before
            there = module in self.there
            self.ask(host, "get_sets", LOOK_UP_TIMEOUT, there, self.looked_again, host, module, queue, there)
        elif ok:
            wait = pause * self.random.uniform(0.5, 1.5)
            self.at(self.now + wait, self.poll, host, module, queue, min(pause * 2, LONGEST_POLL))
        else:
            if taken:
                self.lease_of.pop(module, None)  # it expires; 3 s matter little here
            self.compile(host, module, queue, False)

    def looked_again(self, ok, host, module, queue, there):
        if ok and there:
            self.lease_of.pop(module, None)
            self.ask(host, "get_entry", LOOK_UP_TIMEOUT, True, self.fetched, host, module, queue)
        else:
            self.compile(host, module, queue, True)

    def poll(self, host, module, queue, pause):
        there = module in self.there
        self.ask(host, "get_sets", LOOK_UP_TIMEOUT, there, self.polled, host, module, queue, pause, there)

    def polled(self, ok, host, module, queue, pause, there):
        if ok and there:
            self.ask(host, "get_entry", LOOK_UP_TIMEOUT, True, self.fetched, host, module, queue)
        elif ok:
            self.take_turn(host, module, queue, pause)
        else:
            self.compile(host, module, queue, False)

    def compile(self, host, module, queue, has_lease):
        self.compiles[module] += 1
        takes = self.options.compile * self.random.uniform(0.8, 1.2)
        self.at(self.now + takes, self.compiled, host, module, queue, has_lease)

    def compiled(self, host, module, queue, has_lease):
        self.done(host, queue)  # uploads go on beside it
        self.ask(host, "put_entry", UPLOAD_TIMEOUT, True, self.upload_sets, host, module, has_lease)

    def upload_sets(self, ok, host, module, has_lease):
        if not ok:
            if has_lease:
                self.lease_of.pop(module, None)
            return
        self.ask(host, "get_sets", UPLOAD_TIMEOUT, module in self.there, self.read_sets, host, module, has_lease)

    def read_sets(self, ok, host, module, has_lease):
        self.ask(host, "put_sets", UPLOAD_TIMEOUT, True, self.uploaded, host, module, has_lease)

    def uploaded(self, ok, host, module, has_lease):
        if ok:
            self.there.add(module)
        if has_lease:
            self.ask(host, "lease", LOOK_UP_TIMEOUT, True, self.ended, module)

    def ended(self, ok, module):
        self.lease_of.pop(module, None)

    def done(self, host, queue):
        self.open[host] -= 1
        if self.open[host] == 0:
            self.warm.append((self.now - self.started[host], self.now))
        following = next(queue, None)
        if following is not None:
            self.look_up(host, following, queue)

    def result(self):
        own = sorted(took for took, _ in self.warm)
        waits = sorted(self.server.waits)
        at = lambda values, share: values[min(len(values) - 1, int(share * len(values)))] if values else 0
        return {
            "server": self.options.server, "hosts": self.options.hosts, "jitter_s": self.options.jitter,
            "baked": self.options.baked, "warm_hosts": len(own), "hits": self.hits,
            "compiles": sum(self.compiles.values()), "modules_compiled": len(self.compiles),
            "requests": sum(self.server.requests.values()), "requests_by_kind": dict(self.server.requests),
            "timeouts": self.timeouts, "sent_bytes": self.server.sent, "received_bytes": self.server.received,
            "server_wait_p99_ms": at(waits, 0.99) * 1e3, "host_warm_p50_s": at(own, 0.5),
            "host_warm_p99_s": at(own, 0.99), "fleet_warm_s": max((when for _, when in self.warm), default=0),
        }  # fmt: skip


def measure():
    """Measures the CPU time per request of real servers on this machine, with one connection."""
    import http.client
    import os
    import socket

    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "fleet"))
    from servers import Nginx, Redis

    def cpu_of(pids):
        ticks = 0
        for pid in pids:
            fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def each(pids, count, action):
        before = cpu_of(pids)
        for _ in range(count):
            action()
        return (cpu_of(pids) - before) / count

    entry, sets = b"x" * 40_000, b"x" * 1_200
    redis = Redis()
    line = socket.create_connection(("127.0.0.1", redis.port))

    def ask(*words):
        line.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words))
        want = len(entry) if words == (b"GET", b"e") else 3
        got = 0
        while got < want:
            got += len(line.recv(1 << 20))

    ask(b"SET", b"e", entry)
    found = {"redis": {"small": each([redis.process.pid], 20000, lambda: ask(b"SET", b"s", sets)),
                       "get_entry": each([redis.process.pid], 20000, lambda: ask(b"GET", b"e")),
                       "put_entry": each([redis.process.pid], 20000, lambda: ask(b"SET", b"e", entry))}}  # fmt: skip
    redis.stop()
    nginx = Nginx()
    children = Path(f"/proc/{nginx.process.pid}/task/{nginx.process.pid}/children").read_text().split()
    connection = http.client.HTTPConnection("127.0.0.1", nginx.port)

    def request(method, path, body=None):
        connection.request(method, path, body)
        connection.getresponse().read()

    request("PUT", "/cache/e", entry)
    request("PUT", "/cache/s", sets)
    found["nginx"] = {"small": each(children, 10000, lambda: request("GET", "/cache/s")),
                      "get_entry": each(children, 10000, lambda: request("GET", "/cache/e")),
                      "put_entry": each(children, 5000, lambda: request("PUT", "/cache/e", entry))}  # fmt: skip
    nginx.stop()
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=10_000)
    parser.add_argument("--modules", type=int, default=15)
    parser.add_argument("--parallel", type=int, default=8)
    parser.add_argument("--compile", type=float, default=1.5, metavar="SECONDS")
    parser.add_argument("--entry-bytes", type=int, default=40_000)
    parser.add_argument("--sets-bytes", type=int, default=1_200)
    parser.add_argument("--jitter", type=float, nargs="*", default=[0, 60, 600], metavar="SECONDS")
    parser.add_argument("--server", choices=list(MEASURED), nargs="*", default=list(MEASURED))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--measure", action="store_true", help="the service times of this machine, instead")
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(), indent=2))
        return
    results = []
    for server in options.server:
        for baked in (True, False):
            for jitter in options.jitter:
                run = argparse.Namespace(**{**vars(options), "server": server, "baked": baked, "jitter": jitter})
                results.append(Fleet(run).run())
    if options.json:
        print(json.dumps(results, indent=2))
        return
    print("| server | store | jitter | requests | sent | compiles | timeouts | wait p99 | host warm p50 | p99 | fleet warm |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for r in results:
        print(f"| {r['server']} | {'filled' if r['baked'] else 'empty'} | {r['jitter_s']:g} s | {r['requests']:,} "
              f"| {r['sent_bytes'] / 1e9:.2f} GB | {r['compiles']:,} | {r['timeouts']:,} "
              f"| {r['server_wait_p99_ms']:.0f} ms | {r['host_warm_p50_s']:.2f} s | {r['host_warm_p99_s']:.2f} s "
              f"| {r['fleet_warm_s']:.1f} s |")  # fmt: skip


if __name__ == "__main__":
    main()
