# SPDX-License-Identifier: Apache-2.0
"""Each file of tests/gpu/results is as its README.md says, small, and of a commit that the history has."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
KEPT = sorted((REPOSITORY / "tests" / "gpu" / "results").glob("*.json"))
sys.path.insert(0, str(REPOSITORY / "tests" / "bench"))
import harness
import results


def git(*words):
    return subprocess.run(["git", *words], cwd=REPOSITORY, capture_output=True, text=True, check=False)


def has_whole_history():
    try:
        return git("rev-parse", "--is-shallow-repository").stdout.strip() == "false"
    except OSError:  # no git
        return False


class Kept(unittest.TestCase):
    def test_there_are_some(self):
        self.assertGreater(len(KEPT), 5)

    def test_fields_are_those_of_the_format(self):
        for path in KEPT:
            with self.subTest(path.name):
                self.assertEqual(results.problems(results.read(path)), [])

    def test_a_file_has_the_name_of_its_device(self):
        for path in KEPT:
            with self.subTest(path.name):
                device = results.read(path)["device"]
                subject = path.stem.rpartition("-")[2]
                self.assertEqual(path.name, results.file_name(device, subject))

    def test_a_file_is_small_and_laid_out_as_scripts_write_it(self):
        for path in KEPT:
            with self.subTest(path.name):
                self.assertLess(path.stat().st_size, results.MAX_BYTES)
                self.assertEqual(path.read_text(encoding="utf-8"), results.text_of(results.read(path)))

    @unittest.skipUnless(has_whole_history(), "no git, or not the whole history")
    def test_the_commit_is_in_the_history(self):
        for path in KEPT:
            commit = results.read(path)["commit"]
            with self.subTest(path.name, commit=commit):
                self.assertEqual(git("merge-base", "--is-ancestor", commit, "HEAD").returncode, 0)


class Format(unittest.TestCase):
    def run_of(self, *rows, **more):
        return results.record("times", device={"name": "NVIDIA H200"}, commit="0" * 40, command="scripts/bench",
                              results=list(rows), **more)  # fmt: skip

    def test_a_run_that_was_written_is_read(self):
        row = results.row("launch", "us", 3.0, [2.0, 3.0, 4.0], case="m 1", baseline="driver", baseline_value=6.0,
                          baseline_samples=[5.0, 6.0, 8.0], limit=1.5, bytes=123456789)  # fmt: skip
        self.assertEqual(row, {"what": "launch", "case": "m 1", "unit": "us", "value": 3, "min": 2, "max": 4,
                               "rounds": 3, "baseline": {"name": "driver", "value": 6, "min": 5, "max": 8},
                               "ratio": 2, "limit": 1.5, "bytes": 123456789})  # fmt: skip
        run = self.run_of(row, note="")
        self.assertEqual(results.problems(run), [])
        with tempfile.TemporaryDirectory() as folder:
            results.write(Path(folder, "run.json"), run)
            self.assertEqual(results.read(Path(folder, "run.json")), run)

    def test_the_spread_is_that_of_the_samples_behind_the_value(self):
        wall, cpu = [7.0, 9.0, 8.0], [1.0, 2.0, 4.0]
        self.assertEqual(results.spread(2.0, wall, cpu), {"min": 1, "max": 4, "rounds": 3})
        self.assertEqual(results.spread(7.0, wall, cpu), {"min": 7, "max": 9, "rounds": 3})  # the best of them
        self.assertEqual(results.spread(5.0, wall, cpu), {})

    def test_a_row_of_scripts_bench_is_a_result(self):
        row = harness.Row(1, "start", 2.0, "us", "goal: 1 us", 1.0, faster=False, note="CPU time",
                          samples={"few": [1.0, 2.0, 4.0]})  # fmt: skip
        self.assertEqual(row.to_result(), {"what": "start", "unit": "us", "value": 2, "min": 1, "max": 4, "rounds": 3,
                                           "baseline": {"name": "goal: 1 us", "value": 1}, "ratio": 0.5,
                                           "note": "CPU time"})  # fmt: skip
        alone = harness.Row(2, "system calls", 0.0, "", note="counted")
        self.assertEqual(results.problems(self.run_of(row.to_result(), alone.to_result())), [])

    def test_tests_are_counted_by_outcome_and_those_that_did_not_pass_are_kept(self):
        tests = [{"program": "a", "name": "x", "outcome": "passed", "seconds": 1.24},
                 {"program": "a", "name": "y", "outcome": "failed", "seconds": 0.5, "message": "no"},
                 {"program": "b", "name": "z", "outcome": "skipped", "seconds": 0.0, "message": "one GPU"}]  # fmt: skip
        run = results.test_results(tests)
        self.assertEqual((run["passed"], run["failed"], run["skipped"]), (1, 1, 1))
        self.assertEqual(run["programs"]["a"], {"seconds": 1.7, "passed": ["x"]})
        self.assertEqual([one["name"] for one in run["not_passed"]], ["y", "z"])

    def test_what_is_not_of_the_format_is_named(self):
        run = self.run_of({"what": "launch", "unit": "us", "valve": 3})
        run |= {"commit": "0" * 40 + "-dirty", "date": "today"}
        wrong = "\n".join(results.problems(run))
        for word in ("result 0 has no 'value'", "'valve'", "-dirty", "today"):
            self.assertIn(word, wrong)
        self.assertIn("kind 'thymes'", results.problems(run | {"kind": "thymes"})[0])

    def test_a_command_line_names_no_folder_of_builds_and_answers(self):
        given = ["--build", "b", "--only", "gemm", "-o", "x", "--output=y", "--quick", "--build=b"]
        self.assertEqual(results.command_line("scripts/bench", given), "scripts/bench --only gemm --quick")

    def test_a_carried_build_knows_its_commit_without_git(self):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, results.COMMIT_FILE).write_text("1" * 40 + "\n")
            self.assertEqual(results.commit_of(Path(folder)), "1" * 40)

    def test_a_file_is_named_by_device_and_subject(self):
        name = results.file_name
        self.assertEqual(name({"name": "NVIDIA H200", "count": 1}, "tests"), "h200-tests.json")
        self.assertEqual(name({"name": "NVIDIA H200", "count": 2}, "tests"), "h200x2-tests.json")
        self.assertEqual(name({"cpu": "AMD EPYC", "cores": 2}, "bench"), "cpu-bench.json")


class Scripts(unittest.TestCase):
    def test_help_names_the_file_that_is_written(self):
        for script, subject in (("bench", "bench"), ("bench-gpu", "kernels"), ("test-gpu", "tests")):
            done = subprocess.run([sys.executable, REPOSITORY / "scripts" / script, "--help"], capture_output=True,
                                  text=True, check=False)  # fmt: skip
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(f"DEVICE-{subject}.json", done.stdout)


if __name__ == "__main__":
    unittest.main()
