# SPDX-License-Identifier: Apache-2.0
"""examples/containers/kubernetes: the manifests are valid by the schema of the Kubernetes API, and what they say to cukiln
is what cukiln understands."""

import os
import re
import subprocess
import sys
import unittest
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
FOLDER = REPO / ".cukiln-kubernetes"  # scripts/bootstrap --all-tests makes it
BINARIES = Path(os.environ["CUKILN_TEST_BINARY_DIR"])
MANIFESTS = sorted((REPO / "examples/containers/kubernetes").glob("*.yaml"))
VERSION = "1.36"  # the first in which image volumes are stable

sys.path.insert(0, str(FOLDER))


class Manifests(unittest.TestCase):
    def documents(self):
        import yaml

        for path in MANIFESTS:
            for document in yaml.safe_load_all(path.read_text()):
                yield path.name, document

    def containers(self):
        for name, document in self.documents():
            spec = document["spec"]
            pod = spec if document["kind"] == "Pod" else spec["template"]["spec"]
            for container in pod.get("initContainers", []) + pod["containers"]:
                yield name, pod, container

    def test_the_manifests_are_valid(self):
        import kubernetes_validate

        kinds = []
        for name, document in self.documents():
            with self.subTest(name):
                kubernetes_validate.validate(document, VERSION, strict=True)
                kinds.append(document["kind"])
        self.assertEqual(sorted(kinds), ["DaemonSet", "Job", "Pod"])

    def test_nothing_runs_with_more_than_it_needs(self):
        for name, pod, container in self.containers():
            with self.subTest(name, container=container["name"]):
                own = container.get("securityContext", {})
                self.assertFalse(own["allowPrivilegeEscalation"])
                self.assertEqual(own["capabilities"]["drop"], ["ALL"])
                if container["name"] != "folders":
                    self.assertTrue(own["readOnlyRootFilesystem"])
                    self.assertTrue(pod["securityContext"]["runAsNonRoot"])

    def test_variables_are_settings(self):
        listed = subprocess.check_output([BINARIES / "cukiln", "--json", "config"], text=True)
        for name, _, container in self.containers():
            for variable in container.get("env", []):
                if "valueFrom" in variable:  # of another one's value
                    self.assertIn(f"$({variable['name']})", str(container["env"]))
                    continue
                with self.subTest(name, variable=variable["name"]):
                    setting = variable["name"].removeprefix("CUKILN_").lower()
                    self.assertIn(f'"name": "{setting}"', listed)

    def test_options_are_those_of_the_commands(self):
        commands = [c["command"] for _, _, c in self.containers() if "command" in c]
        for _, _, container in self.containers():
            for probe in ("startupProbe", "readinessProbe"):
                if probe in container:
                    commands.append(container[probe]["exec"]["command"])
        checked = 0
        for command in commands:
            if command[0] not in ("cukiln", "cukilnd"):
                continue
            verb = command[1:2] if command[0] == "cukiln" else []
            text = subprocess.check_output([BINARIES / command[0], *verb, "--help"], text=True)
            for word in command[1:]:
                if word.startswith("--"):
                    self.assertRegex(text, rf"(?m)(^|[\s,]){re.escape(word)}\b")
                    checked += 1
        self.assertGreaterEqual(checked, 4)


if __name__ == "__main__":
    unittest.main()
