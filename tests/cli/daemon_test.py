"""daemon start, stop, status; doctor's line; compile through a daemon."""

import unittest

from cli import CliTest, ENVIRONMENT, USAGE


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
        self.assertEqual(started["store"], str(self.store / "v1"))
        again = self.run_cli("daemon", "start")
        self.assertIn(f"Already running: process {started['process']}", again.out)
        self.assertEqual(self.doctor_line()["status"], "ok")

        self.assertEqual(self.run_json("daemon", "stop")["running"], False)
        self.assertIn("Not running", self.run_cli("daemon", "stop").out)
        self.assertIn("Not running", self.run_cli("daemon", "status", expect=ENVIRONMENT).out)

    def test_a_compile_goes_through_it(self):
        self.run_cli("daemon", "start")
        arguments = ("compile", "add.cu", "-DADDEND=1", "--arch", "sm_90a")
        self.assertEqual(self.run_json(*arguments)["compiled"], 1)
        self.assertEqual(self.run_json(*arguments)["hits"], 1)
        status = self.run_json("daemon", "status")
        self.assertEqual(status["counters"]["compiles_ok"], 1)
        self.assertEqual(status["jobs"], [])
        self.assertIn("1 compiled", self.run_cli("daemon", "status").out)
        self.assertEqual(self.run_json("ls")["entries"][0]["name"], "add")

    def test_an_error_names_the_users_own_file(self):
        self.run_cli("daemon", "start")
        failed = self.run_cli("compile", "broken.cu", "--arch", "sm_90a", expect=1)
        self.assertIn("nowhere", failed.err)
        self.assertIn("broken.cu(1)", failed.err)
        self.assertNotIn("/cukiln/src", failed.err)

    def test_required_and_not_there(self):
        arguments = ("compile", "add.cu", "-DADDEND=1", "--arch", "sm_90a")
        failed = self.run_cli(*arguments, env={"CUKILN_DAEMON": "require"}, expect=None)
        self.assertNotEqual(failed.code, 0)
        self.assertIn("cukiln daemon start", failed.err)
        self.run_cli("daemon", "start")
        self.run_cli(*arguments, env={"CUKILN_DAEMON": "require"})

    def test_off_is_off(self):
        self.run_cli("daemon", "start")
        self.compile("add.cu", "-DADDEND=1", "--arch", "sm_90a", env={"CUKILN_DAEMON": "off"})
        counters = self.run_json("daemon", "status")["counters"]
        self.assertEqual((counters["sets_asked"], counters["compiles_asked"]), (0, 0))

    def test_an_action_that_there_is_not(self):
        self.assertIn("expected start, stop or status", self.run_cli("daemon", "restart", expect=USAGE).err)


if __name__ == "__main__":
    unittest.main()
