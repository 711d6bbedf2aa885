#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a callback of events costs: one module, by loaders with and without `events`.

usage: CUKILN_LIBRARY=… PYTHONPATH=src/bindings/python tests/bench/events.py

Needs NVRTC, and a GPU or CUKILN_CUDA_LIBRARY=…/libcuda_fake.so. A lookup is `Loader.compile` of a module
that is in the store. It has one event, and so has `Loader.get` of a module that is loaded.
"""

import os
import statistics
import tempfile
import time
from collections.abc import Callable

ROUNDS = 1000

os.environ |= {"CUKILN_DAEMON": "off", "CUKILN_STORE": tempfile.mkdtemp() + "/store"}

import cukiln  # noqa: E402: reads the environment

MODULE = cukiln.ModuleSpec(
    cukiln.Source("scale.cu", 'extern "C" __global__ void scale(float* x) { x[threadIdx.x] *= 2; }'),
    targets=["sm_90"],
)


def measure(calls: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Medians. The calls take turns, since a machine's speed changes in the course of a run."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            begin = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - begin)
    return {name: statistics.median(taken) for name, taken in times.items()}


def main() -> None:
    seen: list[cukiln.Event] = []
    without, with_events = cukiln.Loader(), cukiln.Loader(events=seen.append)
    for loader in (without, with_events):
        loader.get(MODULE)
    before = len(seen)
    print("| measured | with events | without | difference |\n|---|---|---|---|")
    for what, of in (("a lookup that hits", cukiln.Loader.compile), ("`get` of a loaded module", cukiln.Loader.get)):
        took = measure({"with": lambda of=of: of(with_events, MODULE), "without": lambda of=of: of(without, MODULE)})
        difference = took["with"] - took["without"]
        print(f"| {what} | {took['with'] * 1e6:.1f} µs | {took['without'] * 1e6:.1f} µs | {difference * 1e6:.1f} µs |")
    assert [event.kind for event in seen[before:]] == ["hit"] * (2 * ROUNDS)


if __name__ == "__main__":
    main()
