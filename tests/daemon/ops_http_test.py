# SPDX-License-Identifier: Apache-2.0
"""Clients that mean no good to the operations door, or cannot help it."""

from __future__ import annotations

import os
import socket
import stat
import time
import unittest

from ops_server import OpsServer, read_all

HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


class OpsHttpTest(unittest.TestCase):
    def setUp(self) -> None:
        self.server = OpsServer()
        self.addCleanup(self.server.__exit__)

    def assert_serves(self, within: float = 1.5) -> None:
        begin = time.monotonic()
        answer = self.server.ask(HEALTH)
        self.assertTrue(answer.startswith(b"HTTP/1.1 200 "), answer)
        self.assertLess(time.monotonic() - begin, within)

    def test_both_doors_answer_and_the_socket_is_its_owners(self) -> None:
        self.assert_serves()
        self.assertEqual(self.server.get("/healthz"), (200, b"ok\n"))
        mode = os.stat(self.server.unix_path).st_mode
        self.assertEqual(stat.S_IMODE(mode), 0o600)

    def test_a_head_that_trickles_in_has_two_seconds(self) -> None:  # fault 63
        with self.server.connect() as plug:
            begin = time.monotonic()
            answer = b""
            plug.settimeout(0.1)
            for byte in HEALTH:
                try:
                    plug.send(bytes([byte]))
                    answer = plug.recv(100)
                    break
                except TimeoutError:
                    pass
                except OSError:
                    break
            self.assertTrue(answer.startswith(b"HTTP/1.1 408 "), answer)
            self.assertTrue(1.9 < time.monotonic() - begin < 5)

    def test_idle_connections_do_not_stand_in_the_way(self) -> None:  # fault 63
        before = self.server.descriptors()
        idle = []
        try:
            for i in range(900):
                plug = self.server.connect()
                if i % 2:
                    plug.send(b"GET / HTTP/1.1\r\n")
                idle.append(plug)
            self.assert_serves()
            self.assertLessEqual(self.server.descriptors(), before + 64)
        finally:
            for plug in idle:
                plug.close()
        self.assert_serves()

    def test_ten_thousand_connections_leave_nothing_behind(self) -> None:  # fault 63
        before = self.server.descriptors()
        for i in range(10_000):
            with self.server.connect() as plug:
                if i % 3 == 0:
                    plug.send(b"GET /metr")
        self.assert_serves()
        deadline = time.monotonic() + 5
        while self.server.descriptors() > before and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertLessEqual(self.server.descriptors(), before)

    def test_answers_that_nobody_takes_do_not_hold_threads(self) -> None:
        takers = []
        for _ in range(30):
            plug = self.server.connect()
            plug.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
            plug.send(b"GET /page.js HTTP/1.1\r\nHost: x\r\n\r\n")
            takers.append(plug)
        self.assert_serves()
        for plug in takers:
            plug.close()

    def test_what_is_too_long_is_refused_without_being_kept(self) -> None:  # fault 65
        for head in (b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
                     b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"b" * 9000 + b"\r\n\r\n",
                     b"\n" * 9000, b"\0" * 9000, os.urandom(9000)):  # fmt: skip
            self.assertTrue(self.server.ask(head).startswith(b"HTTP/1.1 431 "), head[:20])
        with self.server.connect() as plug:  # for ever, with no end of a line
            try:
                for _ in range(2000):
                    plug.send(b"c" * 4096)
            except OSError:
                pass
            answer = read_all(plug)
            self.assertTrue(answer in (b"",) or answer.startswith(b"HTTP/1.1 431 "), answer)
        self.assert_serves()

    def test_a_body_is_not_read_and_the_refusal_arrives(self) -> None:  # fault 65
        for size in (10, 100_000, 2_000_000):
            for tcp in (False, True):
                with self.server.connect(tcp) as plug:
                    plug.sendall(b"POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % size)
                    plug.sendall(b"x" * size)  # as clients do: all of it, then they listen
                    answer = read_all(plug)
                self.assertTrue(answer.startswith(b"HTTP/1.1 405 "), answer)
                self.assertIn(b"Allow: GET, HEAD\r\n", answer)
        self.assertEqual(self.server.get("/metrics", method="HEAD"), (200, b""))

    def test_garbage_is_answered_or_closed(self) -> None:  # fault 65
        for head in (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\r\n\r\n", b"\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n",
                     b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET / HTTP/1.1\r\n: \r\n\r\n",
                     b"GET /%zz%%%2 HTTP/1.1\r\nHost: x\r\n\r\n",
                     b"GET /?" + b"a=%ff&" * 1000 + b" HTTP/1.1\r\nHost: x\r\n\r\n"):  # fmt: skip
            answer = self.server.ask(head)
            self.assertRegex(answer[:13], rb"^HTTP/1\.1 [2345]\d\d $", head)
        self.assert_serves()

    def test_a_hung_daemon_is_said_to_be_hung(self) -> None:
        self.server.tell("hang")
        self.assertEqual(self.server.get("/healthz")[0], 503)
        self.server.tell("wake")
        self.assertEqual(self.server.get("/healthz")[0], 200)

    def test_without_descriptors_clients_are_closed_and_nothing_spins(self) -> None:  # fault 66
        plugs = [self.server.connect() for _ in range(20)]
        self.assert_serves()
        self.server.tell(f"descriptors {self.server.lowest_free_descriptor()}")
        cpu = self.server.cpu_seconds()
        more = [self.server.connect() for _ in range(50)]
        time.sleep(0.5)
        self.assertLess(self.server.cpu_seconds() - cpu, 0.25)
        self.assert_serves()  # in the place of those that say nothing
        # None left at all: not even for one.
        for plug in plugs + more:
            plug.close()
        time.sleep(0.2)
        self.server.tell(f"descriptors {self.server.lowest_free_descriptor()}")
        cpu = self.server.cpu_seconds()
        for _ in range(20):
            self.assertEqual(self.server.ask(b""), b"")
        self.assertLess(self.server.cpu_seconds() - cpu, 0.25)
        self.server.tell("descriptors 256")
        self.assert_serves()

    def test_signals_do_not_disturb(self) -> None:  # fault 66
        self.server.tell("interrupt 5000")
        self.assert_serves()

    def test_nobody_there_is_no_wakeup(self) -> None:
        if self.server.has_library("libtsan"):
            self.skipTest("ThreadSanitizer has a thread of its own that wakes up")
        self.assert_serves()
        for _ in range(5):  # until the last connection is over, which a busy machine may delay
            before = self.server.wakeups()
            time.sleep(0.7)
            if self.server.wakeups() == before:
                return
        self.fail("something wakes up though nobody is there")


if __name__ == "__main__":
    unittest.main()
