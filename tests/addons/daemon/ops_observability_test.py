# SPDX-License-Identifier: Apache-2.0
"""The shipped alerts and dashboard: promtool accepts them, and a daemon has the metrics that they use."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from ops_server import OpsServer

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "fleet"))
from servers import find

SHIPPED = HERE.parents[2] / "scripts" / "observability"
ALERTS = SHIPPED / "alerts.yml"
NAME = re.compile(r"\b(?:cukiln|process)_[a-z_]+\b")


def promtool(*arguments: str | Path, text: str | None = None, folder: Path | None = None) -> str:
    done = subprocess.run([find("promtool"), *arguments], input=text, cwd=folder, capture_output=True, text=True)
    if done.returncode != 0:
        raise AssertionError(f"promtool {arguments}: {done.stdout}{done.stderr}")
    return done.stdout


def dashboard_expressions() -> list[str]:
    dashboard = json.loads((SHIPPED / "dashboard.json").read_text(encoding="utf-8"))
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    return [e.replace("$__rate_interval", "5m").replace("$instance", ".*") for e in expressions]


def measured_names_missing(metrics: str) -> set[str]:
    used = set(NAME.findall(ALERTS.read_text(encoding="utf-8") + " ".join(dashboard_expressions())))
    assert len(used) > 25, used
    used = {re.sub(r"(?<=_seconds)_(bucket|sum|count)$", "", name) for name in used}
    return used - {line.split()[2] for line in metrics.splitlines() if line.startswith("# TYPE ")}


class ObservabilityTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        with OpsServer() as server:
            cls.metrics = server.get("/metrics")[1].decode()

    def test_promtool_accepts_the_metrics(self) -> None:
        promtool("check", "metrics", text=self.metrics)

    def test_the_alerts_are_valid(self) -> None:
        promtool("check", "rules", ALERTS)

    def test_the_alerts_fire_when_they_should_and_only_then(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            shutil.copy(ALERTS, folder)
            shutil.copy(HERE / "alerts_test.yml", folder)
            promtool("test", "rules", "alerts_test.yml", folder=Path(folder))

    def test_no_two_panels_of_the_dashboard_have_one_id_or_overlap(self) -> None:
        panels = json.loads((SHIPPED / "dashboard.json").read_text(encoding="utf-8"))["panels"]
        self.assertEqual(len({panel["id"] for panel in panels}), len(panels))
        taken: dict[tuple[int, int], str] = {}
        for panel in panels:
            at = panel["gridPos"]
            for place in ((x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])):
                self.assertNotIn(place, taken, panel["title"])
                taken[place] = panel["title"]

    def test_the_dashboards_expressions_are_valid(self) -> None:
        expressions = dashboard_expressions()
        self.assertGreater(len(expressions), 20)
        rules = [{"record": f"panel:{i}", "expr": e} for i, e in enumerate(expressions)]
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "rules.yml")  # JSON is YAML
            file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
            promtool("check", "rules", file)

    def test_a_daemon_has_the_metrics_that_they_use(self) -> None:
        self.assertEqual(measured_names_missing(self.metrics), set())

    def test_a_daemon_has_the_labels_that_they_select(self) -> None:
        texts = dashboard_expressions() + re.findall(r"expr: (.*)", ALERTS.read_text(encoding="utf-8"))
        for metric, selector in re.findall(r"(cukiln_[a-z_]+)\{([^}]*)\}", " ".join(texts)):
            for label, value in re.findall(r'(\w+)=~?"([^"]*)"', selector):
                if label in ("instance", "job"):  # Prometheus adds them
                    continue
                for choice in value.split("|"):
                    with self.subTest(metric=metric, label=label, value=choice):
                        self.assertRegex(self.metrics, rf'(?m)^{metric}\{{[^}}]*{label}="{choice}"')


if __name__ == "__main__":
    unittest.main()
