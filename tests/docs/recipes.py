#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The names that the recipes share, each given once, and the places that have them.

    tests/docs/recipes.py           prints the places with another name; exit code 1 if there is one
    tests/docs/recipes.py --write   writes the names into each place
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FLEET = "examples/operations/fleet.md"
KUBERNETES = "examples/containers/kubernetes"
JOB, DAEMONS, VOLUME = (f"{KUBERNETES}/{name}.yaml" for name in ("job", "daemonset", "image-volume"))
FORMAT = re.search(r'CUKILN_CACHE_FORMAT "(\w+)"', (ROOT / "src/core/base/cache_format.hpp").read_text())[1]

NAMES = {
    "prefix": f"cukiln{FORMAT}",  # of Redis' keys, without one in the address
    "reader": "reader",
    "writer": "writer",
    "redis": "kernels.default.svc:6379",
    "writer secret": "kernels-fleet-key",
    "reader secret": "kernels-fleet-reader",
    "user": "65532",
    "socket": "/run/cukiln/cukilnd.sock",
    "system store": "/var/cache/cukiln",
}
# File, name, and a pattern whose group has it, wherever it occurs.
PLACES = (
    (FLEET, "reader", r"(?m)^user (\w+) on >\S+ \S+ \+get$"),
    (FLEET, "writer", r"(?m)^user (\w+) on >\S+ \S+ \+get \+set \+del$"),
    (FLEET, "prefix", r"(?m)^user \w+ on >\S+ ~(\w+):\* \+get"),
    (FLEET, "reader", r"redis://(\w+):…@"),
    (FLEET, "writer", r"printf '(\w+):%s"),
    (FLEET, "writer", r"https://(\w+):password@"),
    (FLEET, "writer", r"auth_basic (\w+)s;"),
    ("src/addons/fleet/endpoint.hpp", "prefix", r"is\n/// `(\w+)` by default"),
    ("cache/FORMAT.md", "prefix", r"prefix `(\w+)` by default"),
    (JOB, "writer", r"Redis' user `(\w+)`"),
    (JOB, "writer", r"redis://(\w+):"),
    (JOB, "redis", r"redis://\w+:\S+@(\S+)$"),
    (JOB, "writer secret", r"(?:secretName|secretKeyRef:\s+name): (\S+)"),
    (JOB, "user", r"(?:runAsUser|runAsGroup|fsGroup): (\d+)"),
    (DAEMONS, "reader", r"Redis' user `(\w+)`"),
    (DAEMONS, "reader", r"redis://(\w+):"),
    (DAEMONS, "redis", r"redis://\w+:\S+@(\S+)$"),
    (DAEMONS, "reader secret", r"secretKeyRef:\s+name: (\S+)"),
    (DAEMONS, "user", r"(?:runAsUser|runAsGroup): ([1-9]\d*)|\"-[og]\", \"(\d+)\""),
    (DAEMONS, "socket", r"(?:CUKILN_DAEMON_SOCKET=|--socket, |value: )(/run/[\w./]*\w)"),
    (VOLUME, "user", r"(?:runAsUser|runAsGroup): (\d+)"),
    (VOLUME, "system store", r"mountPath: (/var/\S+)"),
    ("examples/containers/Containerfile", "user", r"(?m)^USER (\d+):"),
    ("examples/containers/Containerfile", "system store", r"(/var/cache/\w+)"),
)


def occurrences(file, pattern):
    """Each place of a file: where the name is, and what it is there."""
    text = (ROOT / file).read_text()
    for match in re.finditer(pattern, text, re.MULTILINE):
        group = next(i for i, value in enumerate(match.groups(), 1) if value is not None)
        yield match.start(group), match.end(group), match[group]


def mistakes():
    for file, name, pattern in PLACES:
        found = [value for _, _, value in occurrences(file, pattern)]
        if not found:
            yield f"{file}: no place of the name '{name}': {pattern}"
        for value in sorted({value for value in found if value != NAMES[name]}):
            yield f"{file}: '{value}' instead of '{NAMES[name]}' ({name}); tests/docs/recipes.py --write"


def write():
    for file, name, pattern in PLACES:
        for start, end, _ in reversed(list(occurrences(file, pattern))):
            text = (ROOT / file).read_text()
            (ROOT / file).write_text(text[:start] + NAMES[name] + text[end:])


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        write()
    found = list(mistakes())
    print("\n".join(found), end="\n" if found else "")
    sys.exit(1 if found else 0)
