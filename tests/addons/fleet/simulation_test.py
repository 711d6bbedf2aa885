# SPDX-License-Identifier: Apache-2.0
"""The simulation of a roll-out says what its assumptions imply."""

import json
import subprocess
import sys
import unittest
from pathlib import Path

SIMULATION = Path(__file__).resolve().parents[2] / "bench" / "fleet_simulation.py"
HOSTS, MODULES = 200, 15


def simulate(*arguments):
    out = subprocess.run([sys.executable, SIMULATION, "--json", "--hosts", str(HOSTS), *map(str, arguments)],
                         stdout=subprocess.PIPE, check=True, timeout=120).stdout  # fmt: skip
    return {(r["server"], r["baked"], r["jitter_s"]): r for r in json.loads(out)}


class Simulation(unittest.TestCase):
    def test_what_each_way_costs(self):
        results = simulate("--jitter", 0, 60)
        for (server, baked, jitter), r in results.items():
            with self.subTest(server=server, baked=baked, jitter=jitter):
                self.assertEqual(r["warm_hosts"], HOSTS)
                self.assertEqual(r["hits"] + r["compiles"], HOSTS * MODULES)
                if baked:
                    self.assertEqual(r["compiles"], 0)
                    self.assertEqual(r["requests"], 2 * HOSTS * MODULES)
                elif server == "redis":
                    self.assertEqual(r["compiles"], MODULES)  # once in the fleet
                elif jitter == 0:
                    self.assertEqual(r["compiles"], HOSTS * MODULES)
                else:
                    self.assertLess(r["compiles"], HOSTS * MODULES / 4)
        self.assertLess(results["redis", False, 60]["requests"], results["redis", False, 0]["requests"])

    def test_an_overloaded_server_delays_no_machine_beyond_its_deadlines(self):
        swamped = simulate("--jitter", 0, "--server", "redis", "--modules", 400, "--parallel", 400, "--compile", 1)
        for r in swamped.values():
            self.assertGreater(r["timeouts"], 0)
            self.assertLess(r["host_warm_p99_s"], 400 / 400 * 1.2 + 2 * 0.2 + 0.5)

    def test_the_same_seed_gives_the_same_numbers(self):
        self.assertEqual(simulate("--jitter", 5, "--seed", 7), simulate("--jitter", 5, "--seed", 7))
        self.assertNotEqual(simulate("--jitter", 5, "--seed", 7), simulate("--jitter", 5, "--seed", 8))


if __name__ == "__main__":
    unittest.main()
