# SPDX-License-Identifier: Apache-2.0
"""daemon start, stop and status; its line in doctor; compiles through a daemon."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import unittest
import urllib.request
from pathlib import Path

from cli import BINARIES, CUKILN, CliTest, ENVIRONMENT, USAGE


PROXY = """
import ctypes, socket, sys, threading
_, name, path, target = sys.argv
ctypes.CDLL(None).prctl(15, name.encode())  # PR_SET_NAME
def copy(source, to):
    try:
        while data := source.recv(65536):
            to.sendall(data)
        to.shutdown(socket.SHUT_WR)
    except OSError:
        pass  # one end was closed with something unread
listener = socket.socket(socket.AF_UNIX)
listener.bind(path)
listener.listen()
print("ready", flush=True)
while True:
    client = listener.accept()[0]
    daemon = socket.socket(socket.AF_UNIX)
    daemon.connect(target)
    for pair in ((client, daemon), (daemon, client)):
        threading.Thread(target=copy, args=pair, daemon=True).start()
"""


class Daemon(CliTest):
    def setUp(self):
        super().setUp()
        (self.folder / "run").mkdir(mode=0o700)
        self.addCleanup(self.run_cli, "daemon", "stop", expect=None)

    def doctor_line(self):
        checks = self.run_json("doctor", expect=None)["checks"]
        return next(check for check in checks if check["name"] == "daemon")

    def test_start_status_stop(self):
        self.assertEqual(self.run_json("daemon", "status", expect=ENVIRONMENT)["running"], False)
        self.assertEqual(self.doctor_line()["status"], "missing")

        started = self.run_json("daemon", "start")
        self.assertTrue(started["running"])
        self.assertEqual(started["store"], str(self.store / "v6"))
        again = self.run_cli("daemon", "start")
        self.assertIn(f"Already running: process {started['process']}", again.out)
        self.assertEqual(self.doctor_line()["status"], "ok")

        self.assertEqual(self.run_json("daemon", "stop")["running"], False)
        self.assertIn("Not running", self.run_cli("daemon", "stop").out)
        self.assertIn("Not running", self.run_cli("daemon", "status", expect=ENVIRONMENT).out)

    def test_a_daemon_is_found_at_each_socket_at_which_processes_find_it(self):
        started = self.run_json("daemon", "start", env={"XDG_RUNTIME_DIR": ""})  # as from cron
        self.assertNotIn(f"{self.folder}/run/", started["socket"])
        self.assertEqual(self.run_json("daemon", "status")["process"], started["process"])
        self.assertIn(f"Already running: process {started['process']}", self.run_cli("daemon", "start").out)
        self.assertIn("Stopped", self.run_cli("daemon", "stop").out)

    def test_no_advice_to_start_a_daemon_that_is_not_installed(self):
        self.assertIn("cukiln daemon start", self.doctor_line()["advice"])
        alone = shutil.copy(CUKILN, self.folder)  # as in the Python package
        done = subprocess.run([alone, "--json", "doctor"], env=self.environment, capture_output=True, text=True, timeout=120)
        (line,) = [check for check in json.loads(done.stdout)["checks"] if check["name"] == "daemon"]
        self.assertEqual((line["status"], line["advice"]), ("missing", ""))

    def test_start_prints_the_address_of_the_page(self):
        started = self.run_json("daemon", "start", "--http", "127.0.0.1:0")
        self.assertRegex(started["page"], r"^http://localhost:\d+/$")
        with urllib.request.urlopen(started["page"] + "healthz", timeout=10) as answer:
            self.assertEqual(answer.status, 200)
        self.assertIn(f"Page: {started['page']}\n", self.run_cli("daemon", "start").out)
        self.assertRegex(self.run_cli("daemon", "status").out, rf"(?m)^Page: +{started['page']}$")
        self.run_cli("daemon", "stop")
        self.assertEqual(self.run_json("daemon", "start")["page"], "")
        refused = self.run_cli("daemon", "start", "--http", "127.0.0.1:0", expect=ENVIRONMENT)
        self.assertIn("already runs without --http", refused.err)

    def test_an_address_that_cannot_be_served_is_an_error_of_the_start(self):
        self.assertIn("192.0.2.1", self.run_cli("daemon", "start", "--http", "192.0.2.1:9464", expect=ENVIRONMENT).err)
        self.assertIn("needs the action start", self.run_cli("daemon", "stop", "--http", "127.0.0.1:0", expect=USAGE).err)

    def test_the_daemons_help_explains_every_option(self):
        for flag in ("--help", "-h"):
            text = subprocess.run([BINARIES / "cukilnd", flag], capture_output=True, text=True, check=True).stdout
            usage = text.split("Compiles for")[0]
            for option in re.findall(r"--\w+", usage):
                self.assertRegex(text, rf"(?m)^  {option}\b.* \w+")
            self.assertIn("CUKILN_STORE", text)
            self.assertLessEqual(max(map(len, text.splitlines())), 100)

    def test_a_compile_goes_through_it(self):
        self.run_cli("daemon", "start")
        arguments = ("compile", "add.cu", "-DADDEND=1", "--arch", "sm_90a")
        require = {"CUKILN_DAEMON": "require"}  # it waits for the greeting of a busy daemon
        self.assertEqual(self.run_json(*arguments, env=require)["compiled"], 1)
        self.assertEqual(self.run_json(*arguments, env=require)["hits"], 1)
        status = self.run_json("daemon", "status")
        self.assertEqual(status["counters"]["compiles_ok"], 1)
        self.assertEqual(status["compiles"], [])
        self.assertIn("1 compiled", self.run_cli("daemon", "status").out)
        self.assertEqual(self.run_json("ls")["entries"][0]["name"], "add")

    def test_a_relative_include_is_relative_to_the_client(self):
        self.run_cli("daemon", "start")
        self.write("pre.h", "#define ADDEND 1\n")
        self.write("inc/far.h", "#define ADDEND 2\n")
        line = ("compile", "add.cu", "--arch", "sm_90a", "-I", "inc", "-include")
        require = {"CUKILN_DAEMON": "require"}
        for header in ("pre.h", "far.h"):
            self.assertEqual(self.run_json(*line, header, env=require)["compiled"], 1)
            self.assertEqual(self.run_json(*line, header, env=require)["hits"], 1)
        self.write("far.h", "#define ADDEND 3\n")
        again = self.run_json(*line, "far.h", env=require)["modules"][0]
        self.assertEqual((again["outcome"], again["reason"]), ("compiled", f"header appeared: {self.folder}/far.h"))

    def test_a_required_daemon_that_is_not_running_is_an_error(self):
        arguments = ("compile", "add.cu", "-DADDEND=1", "--arch", "sm_90a")
        failed = self.run_cli(*arguments, env={"CUKILN_DAEMON": "require"}, expect=ENVIRONMENT)
        self.assertIn("cukiln daemon start", failed.err)
        self.run_cli("daemon", "start")
        self.run_cli(*arguments, env={"CUKILN_DAEMON": "require"})

    def test_off_sends_nothing_to_the_daemon(self):
        self.run_cli("daemon", "start")
        self.compile("add.cu", "-DADDEND=1", "--arch", "sm_90a", env={"CUKILN_DAEMON": "off"})
        counters = self.run_json("daemon", "status")["counters"]
        self.assertEqual((counters["lookup_requests"], counters["compile_requests"]), (0, 0))

    def start_at(self, socket, expect):
        return self.run_cli("daemon", "start", env={"CUKILN_DAEMON_SOCKET": str(socket)}, expect=expect).err

    def test_a_hanging_daemon_can_be_stopped(self):
        process = self.run_json("daemon", "start")["process"]
        os.kill(process, signal.SIGSTOP)
        self.addCleanup(self.kill, process)
        self.assertIn(f"Process {process} does not answer", self.run_cli("daemon", "status", expect=ENVIRONMENT).out)
        self.assertIn("cukiln daemon stop", self.run_cli("daemon", "start", expect=ENVIRONMENT).err)
        threading.Thread(target=self.resume_once_terminated, args=(process,), daemon=True).start()
        self.assertIn(f"Stopped: process {process}", self.run_cli("daemon", "stop").out)

    @staticmethod
    def resume_once_terminated(process):
        while not int(re.search(r"ShdPnd:\s(\w+)", Path(f"/proc/{process}/status").read_text())[1], 16) >> signal.SIGTERM - 1 & 1:
            time.sleep(0.01)
        os.kill(process, signal.SIGCONT)

    def test_a_daemon_that_is_busy_is_waited_for(self):
        process = self.run_json("daemon", "start")["process"]
        os.kill(process, signal.SIGSTOP)
        threading.Timer(0.3, os.kill, (process, signal.SIGCONT)).start()
        self.assertEqual(self.run_json("daemon", "status")["process"], process)

    def start_proxy(self, name):
        """A process of this name that passes each connection on to the daemon, and reports the daemon's number."""
        (self.folder / "proxy").mkdir(mode=0o700)
        socket = self.folder / "proxy/d.sock"
        proxy = subprocess.Popen([sys.executable, "-c", PROXY, name, socket, self.folder / "run/cukiln/cukilnd.sock"],
                                 stdout=subprocess.PIPE, text=True)  # fmt: skip
        self.addCleanup(proxy.stdout.close)
        self.addCleanup(proxy.wait)
        self.addCleanup(proxy.kill)
        proxy.stdout.readline()
        return proxy, {"CUKILN_DAEMON_SOCKET": str(socket)}

    def test_stop_signals_the_process_of_the_socket_whatever_number_is_reported(self):  # fault 135
        process = self.run_json("daemon", "start")["process"]
        proxy, env = self.start_proxy("cukilnd")
        self.assertEqual(self.run_json("daemon", "status", env=env)["process"], process)
        self.assertIn(f"Stopped: process {proxy.pid}\n", self.run_cli("daemon", "stop", env=env).out)
        self.assertEqual(proxy.wait(timeout=20), -signal.SIGTERM)
        self.assertEqual(self.run_json("daemon", "status")["process"], process)

    def test_stop_does_not_signal_a_service_manager_that_made_the_socket(self):  # fault 135
        process = self.run_json("daemon", "start")["process"]
        proxy, env = self.start_proxy("systemd")
        refused = self.run_cli("daemon", "stop", env=env, expect=ENVIRONMENT).err
        self.assertIn(f"that of process {proxy.pid} (systemd)", refused)
        self.assertIn("systemctl --user stop cukilnd.service", refused)
        self.assertIsNone(proxy.poll())
        self.assertEqual(self.run_json("daemon", "status")["process"], process)

    @staticmethod
    def kill(process):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)

    def test_a_second_daemon_in_one_folder_is_refused(self):
        (self.folder / "own").mkdir(mode=0o700)
        self.start_at(self.folder / "own/one.sock", 0)
        self.assertIn("use a folder for each", self.start_at(self.folder / "own/two.sock", ENVIRONMENT))
        self.run_cli("daemon", "stop", env={"CUKILN_DAEMON_SOCKET": str(self.folder / "own/one.sock")})

    def test_a_file_that_is_not_a_socket_is_kept(self):
        (self.folder / "own").mkdir(mode=0o700)
        self.write("own/letter", "dear")
        self.assertIn("is not a socket", self.start_at(self.folder / "own/letter", ENVIRONMENT))
        self.assertEqual((self.folder / "own/letter").read_text(), "dear")
        self.write("own/ops.sock", "dear")
        self.start_at(self.folder / "own/d.sock", 0)
        self.run_cli("daemon", "stop", env={"CUKILN_DAEMON_SOCKET": str(self.folder / "own/d.sock")})
        self.assertEqual((self.folder / "own/ops.sock").read_text(), "dear")

    def test_a_failed_start_prints_the_reason(self):
        self.assertIn("absolute path", self.start_at("d.sock", USAGE))
        self.assertIn("No such file", self.start_at(self.folder / "no/such/d.sock", ENVIRONMENT))
        (self.folder / "shared").mkdir()
        (self.folder / "shared").chmod(0o1777)
        refused = self.start_at(self.folder / "shared/d.sock", ENVIRONMENT)
        self.assertIn("cannot be trusted", refused)
        self.assertNotIn("chmod", refused)  # of a folder that everybody uses

    def test_a_fifo_as_log_is_refused(self):
        os.mkfifo(self.folder / "cukilnd.log")
        self.assertIn("expected a regular file", self.start_at(self.folder / "d.sock", ENVIRONMENT))

    def test_an_unknown_action(self):
        self.assertIn("expected start, stop or status", self.run_cli("daemon", "restart", expect=USAGE).err)


if __name__ == "__main__":
    unittest.main()
