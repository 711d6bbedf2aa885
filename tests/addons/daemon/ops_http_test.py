# SPDX-License-Identifier: Apache-2.0
"""The admin HTTP server with hostile and broken clients."""

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

    def test_both_sockets_serve_and_only_the_owner_reaches_the_unix_socket(self) -> None:
        self.assert_serves()
        self.assertEqual(self.server.get("/healthz"), (200, b"ok\n"))
        mode = os.stat(self.server.unix_path).st_mode
        self.assertEqual(stat.S_IMODE(mode), 0o600)

    def test_a_head_that_arrives_byte_by_byte_times_out_after_two_seconds(self) -> None:  # fault 63
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
            self.assertGreater(time.monotonic() - begin, 1.9)

    def test_idle_connections_do_not_block_others(self) -> None:  # fault 63
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

    def test_ten_thousand_connections_leak_no_descriptor(self) -> None:  # fault 63
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

    def test_clients_that_do_not_read_hold_no_thread(self) -> None:
        deaf = []
        for _ in range(30):
            plug = self.server.connect()
            plug.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
            plug.send(b"GET /page.js HTTP/1.1\r\nHost: x\r\n\r\n")
            deaf.append(plug)
        self.assert_serves()
        for plug in deaf:
            plug.close()

    def test_a_head_that_is_too_long_is_refused_and_not_buffered(self) -> None:  # fault 65
        for head in (b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
                     b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"b" * 9000 + b"\r\n\r\n",
                     b"\n" * 9000, b"\0" * 9000, os.urandom(9000)):  # fmt: skip
            self.assertTrue(self.server.ask(head).startswith(b"HTTP/1.1 431 "), head[:20])
        with self.server.connect() as plug:  # endless, without a line end
            try:
                for _ in range(2000):
                    plug.send(b"c" * 4096)
            except OSError:
                pass
            answer = read_all(plug)
            self.assertTrue(answer in (b"",) or answer.startswith(b"HTTP/1.1 431 "), answer)
        self.assert_serves()

    def test_a_request_with_a_body_gets_its_error_response(self) -> None:  # fault 65
        for size in (10, 100_000, 2_000_000):
            for tcp in (False, True):
                with self.server.connect(tcp) as plug:
                    plug.sendall(b"POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % size)
                    plug.sendall(b"x" * size)  # clients send the whole body before they read
                    answer = read_all(plug)
                self.assertTrue(answer.startswith(b"HTTP/1.1 405 "), answer)
                self.assertIn(b"Allow: GET, HEAD\r\n", answer)
        self.assertEqual(self.server.get("/metrics", method="HEAD"), (200, b""))

    def test_garbage_gets_an_error_response(self) -> None:  # fault 65
        for head in (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\r\n\r\n", b"\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n",
                     b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET / HTTP/1.1\r\n: \r\n\r\n",
                     b"GET /%zz%%%2 HTTP/1.1\r\nHost: x\r\n\r\n",
                     b"GET /?" + b"a=%ff&" * 1000 + b" HTTP/1.1\r\nHost: x\r\n\r\n"):  # fmt: skip
            answer = self.server.ask(head)
            self.assertRegex(answer[:13], rb"^HTTP/1\.1 [2345]\d\d $", head)
        self.assert_serves()

    def test_a_hung_daemon_is_unhealthy(self) -> None:
        self.server.command("hang")
        self.assertEqual(self.server.get("/healthz")[0], 503)
        self.server.command("wake")
        self.assertEqual(self.server.get("/healthz")[0], 200)

    def test_without_descriptors_connections_are_closed_and_no_thread_spins(self) -> None:  # fault 66
        before = self.server.descriptors()
        plugs = [self.server.connect() for _ in range(20)]
        self.assert_serves()
        self.server.command(f"descriptors {self.server.lowest_free_descriptor()}")
        cpu = self.server.cpu_seconds()
        more = [self.server.connect() for _ in range(50)]
        time.sleep(0.5)
        self.assertLess(self.server.cpu_seconds() - cpu, 0.25)
        self.assert_serves()  # an idle connection is dropped for it
        # No descriptor is left, and no connection to drop.
        for plug in plugs + more:
            plug.close()
        deadline = time.monotonic() + 5
        while self.server.descriptors() > before and time.monotonic() < deadline:
            time.sleep(0.02)
        self.server.command(f"descriptors {self.server.lowest_free_descriptor()}")
        cpu = self.server.cpu_seconds()
        for _ in range(20):
            self.assertEqual(self.server.ask(b""), b"")
        self.assertLess(self.server.cpu_seconds() - cpu, 0.25)
        self.server.command("descriptors 256")
        self.assert_serves()

    def test_signals_interrupt_no_request(self) -> None:  # fault 66
        self.server.command("interrupt 5000")
        self.assert_serves()

    def test_without_connections_no_thread_wakes_up(self) -> None:
        if self.server.has_library("libtsan"):
            self.skipTest("ThreadSanitizer has a thread of its own that wakes up")
        self.assert_serves()
        for _ in range(5):  # until the last connection is closed, which a busy machine may delay
            before = self.server.wakeups()
            time.sleep(0.7)
            if self.server.wakeups() == before:
                return
        self.fail("a thread wakes up without connections")


if __name__ == "__main__":
    unittest.main()
