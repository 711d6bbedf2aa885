# SPDX-License-Identifier: Apache-2.0
"""Shared by the parts of scripts/bench: running programs in scratch folders with an environment of their own, and
the rows of results."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import results

TARGET = "sm_100a"


@dataclass
class Row:
    """A comparison. `ratio` in tables: theirs / ours if `faster`, else ours / theirs, which is a floor or a goal then."""

    goal: int
    what: str
    ours: float
    unit: str
    against: str = ""
    theirs: float | None = None
    faster: bool = True
    note: str = ""
    samples: dict[str, list[float]] = field(default_factory=dict)

    @property
    def ratio(self) -> float | None:
        if self.theirs is None or not self.ours or not self.theirs:
            return None
        return self.theirs / self.ours if self.faster else self.ours / self.theirs

    def to_result(self) -> dict:
        """As tests/gpu/results keeps it."""
        lists = list(self.samples.values())
        of = {value: next((one for one in lists if results.spread(value, one)), [])
              for value in (self.ours, self.theirs) if value is not None}  # fmt: skip
        is_goal = self.against.startswith("goal")
        return results.row(self.what, self.unit, self.ours, of[self.ours], baseline=self.against,
                           baseline_value=self.theirs, note=self.note,
                           baseline_samples=[] if is_goal else of.get(self.theirs, []))  # fmt: skip


class SkippedError(Exception):
    """The reason why a part cannot be measured here."""


class Harness:
    def __init__(
        self, programs: Path, sources: Path, scratch: Path, pythons: dict[str, str], quick: bool
    ):
        self.programs, self.sources, self.scratch = programs, sources, scratch
        self.pythons, self.quick = pythons, quick
        self.cores = len(os.sched_getaffinity(0))
        kept = ("CUKILN_NVRTC_LIBRARY", "CUKILN_INCLUDE_PATH", "CUKILN_CUDA_LIBRARY")
        self.environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("CUKILN_") or name in kept
        } | {"HOME": str(scratch), "XDG_CACHE_HOME": str(scratch / "cache"), "XDG_CONFIG_HOME": str(scratch)}

    def program(self, name: str) -> str:
        path = self.programs / f"cukiln_bench_{name}"
        if not path.exists():
            raise SkippedError(f"{path.name} is not in this build")
        return str(path)

    def folder(self, name: str) -> Path:
        path = self.scratch / name
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        return path

    def manifest(self, name: str, template: str, count: int) -> str:
        folder = self.folder(name)
        (folder / "common.cuh").write_text("__device__ inline float common(float x) { return x + 1; }\n")
        modules = []
        for i in range(count):
            (folder / f"scale_{i}.cu").write_text(template.format(i=i))
            modules.append({"name": f"scale_{i}", "sources": [f"scale_{i}.cu"], "names": [f"scale_{i}"]})
        path = folder / "manifest.json"
        path.write_text(json.dumps({"format": 1, "modules": modules}))
        return str(path)

    def preload(self, store: Path, manifest: str, load: bool = False) -> dict:
        command = [self.program("start"), str(store), manifest]
        return self.run([*command, "--load"] if load else [*command, "--target", TARGET])

    def run(self, command: list[str], **environment: str) -> dict:
        done = subprocess.run(command, env=self.environment | environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            reason = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
            raise SkippedError(f"{Path(command[0]).name}: {reason[0]}" if done.returncode != 3 else reason[0])
        return json.loads(done.stdout)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
