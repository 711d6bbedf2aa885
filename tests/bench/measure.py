# SPDX-License-Identifier: Apache-2.0
"""The parts of scripts/bench. Everything that is compared is measured alternately in one run, because machines are
shared and their load changes."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import daemon
import dropin
from harness import TARGET, Harness, Row, SkippedError, say

RIVALS = ("cuda_core", "cupy", "triton", "cpp_extension")

PLAIN = """extern "C" __global__ void scale_{i}(float* x, const float* y, int n) {{
  for (int k = blockIdx.x * blockDim.x + threadIdx.x; k < n; k += gridDim.x * blockDim.x) {{
    x[k] = x[k] * {i}.5f + y[k];
  }}
}}
"""
WITH_HEADERS = """#include <cuda_bf16.h>
#include <cuda_fp8.h>
#include "common.cuh"
extern "C" __global__ void scale_{i}(__nv_bfloat16* x, float y, int n) {{
  const int k = blockIdx.x * blockDim.x + threadIdx.x;
  if (k < n) x[k] = __float2bfloat16(common(__bfloat162float(x[k])) * {i}.5f + y);
}}
"""


class Bench(Harness):
    PARTS = ("start", "rivals", "look_up", "launch", "cold", "stampede", "growth", "dispatch", "modules",
             "daemon", "dropin")  # fmt: skip

    def all(self) -> dict:
        return {name: getattr(self, name) for name in self.PARTS}

    def start(self) -> list[Row]:
        """A fresh process with a warm store. Nothing is loaded, so the driver's time is not included. One
        thread that never waits: its CPU time is its wall time on an idle machine.
        """
        rounds = 7 if self.quick else 31
        few, many = 6, 56
        store = self.folder("start")
        sets = {"shipped": "shipped", "few": self.manifest("headers-few", WITH_HEADERS, few),
                "many": self.manifest("headers-many", WITH_HEADERS, many)}
        times: dict[str, list[float]] = {name: [] for name in sets}
        walls: dict[str, list[float]] = {name: [] for name in sets}
        modules = {}
        for manifest in sets.values():
            self.preload(store, manifest)  # fills the store
        for manifest in sets.values():
            self.preload(store, manifest)  # the first warm start writes what the next ones believe
        for _ in range(rounds):
            for name, manifest in sets.items():
                result = self.preload(store, manifest)
                if result["compiled"]:
                    raise SkippedError(f"the store was not warm: {result}")
                times[name].append(result["cpu_us"])
                walls[name].append(result["total_us"])
                modules[name] = result["modules"]
        median = {name: statistics.median(values) for name, values in times.items()}
        slope = (median["many"] - median["few"]) / (many - few)
        return [
            Row(1, f"warm start, the {modules['shipped']} shipped modules, all of cukiln's own work", median["shipped"],
                "us", "goal: 1 ms for six, 40 us each further", 1000.0 + 40.0 * max(0, modules["shipped"] - 6),
                faster=False, note=f"CPU time; wall {statistics.median(walls['shipped']):.0f} us",
                samples={"shipped": times["shipped"], "wall": walls["shipped"]}),
            Row(1, f"warm start, {few} modules that include toolkit headers", median["few"], "us", "goal: 1 ms", 1000.0,
                faster=False, note=f"CPU time; wall {statistics.median(walls['few']):.0f} us",
                samples={"few": times["few"], "wall": walls["few"]}),
            Row(1, "each further module, its headers verified", slope, "us", "goal: 40 us", 40.0, faster=False,
                note="CPU time", samples={"many": times["many"]}),
        ]

    def rivals(self) -> list[Row]:
        """The same kernels through other caches, each start in a fresh process."""
        rounds = 3 if self.quick else 11
        count = 6
        programs = [{"name": f"scale_{i}", "code": PLAIN.format(i=i)} for i in range(count)]
        listing = self.scratch / "programs.json"
        listing.write_text(json.dumps(programs))
        store = self.folder("rivals")
        manifest = self.manifest("plain", PLAIN, count)
        rows = []
        for rival in RIVALS:
            python = self.pythons.get(rival, sys.executable)
            script = Path(__file__).with_name("rivals.py")
            command = [python, str(script), rival, str(self.folder(f"rival-{rival}")), str(listing)]
            loads = rival != "cuda_core"
            try:
                self.run(command)
                ours, theirs, hot = [], [], []
                self.preload(store, manifest, load=loads)
                for _ in range(rounds):
                    mine = self.preload(store, manifest, load=loads)
                    result = self.run(command)
                    both_cpu = "cpu_us" in result  # fair where others have the cores too
                    ours.append(mine["cpu_us" if both_cpu else "total_us"] / count)
                    programs_us = result["programs_us"]
                    theirs.append((result["cpu_us"] if both_cpu else sum(programs_us)) / len(programs_us))
                    hot.append(result.get("hot_us", 0.0))
            except SkippedError as reason:
                say(f"  not compared: {reason}")
                continue
            name = f"{rival.replace('cuda_core', 'cuda.core')} {result['version']}"
            what = "loaded" if loads else "bytes, CPU time"
            rows.append(
                Row(1, f"warm start, per program of {count}, {what}", statistics.median(ours), "us", name,
                    statistics.median(theirs), samples={"ours": ours, "theirs": theirs})
            )
            if any(hot) and self.by_name_ns():
                rows.append(Row(2, "hot look-up by name", self.by_name_ns() / 1e3, "us", name, statistics.median(hot)))
        if not rows:
            raise SkippedError("no rival runs here")
        return rows

    def look_up(self) -> list[Row]:
        """Lookups by name and by id, beside a hash map under a mutex."""
        times = self.look_up_times()
        rows = []
        for threads in sorted({key[1] for key in times}):
            who = "one thread" if threads == 1 else f"{threads} threads, CPU time of each"
            for name, goal in (("by_handle", 0.0), ("by_id", 2.0), ("by_name", 20.0)):
                rows.append(
                    Row(2, f"look-up {name.replace('_', ' ')}, {who}", times[name, threads], "ns", "mutex and hash map",
                        times["mutex_and_map", threads], note=f"goal: {goal:g} ns" if goal else "a pointer")
                )
        return rows

    def launch(self) -> list[Row]:
        """Launches, beside cuLaunchKernel. Needs a GPU."""
        times = self.run([self.program("launch"), str(self.folder("launch"))])
        raw = times.pop("cuLaunchKernel")
        return [Row(3, name, value, "us", "cuLaunchKernel", raw, faster=False, note="goal: 1.02")
                for name, value in times.items()]

    def cold(self) -> list[Row]:
        """A cold start, in parallel, beside NVRTC alone on as many cores."""
        rounds = 2 if self.quick else 9
        ours, floors, slowest = [], [], []
        for i in range(rounds):
            raw = self.run([self.program("raw_compile"), str(self.sources / "kernels_src"), TARGET])
            result = self.preload(self.folder(f"cold-{i}"), "shipped")
            parallel = min(self.cores, result["compiled"])
            floor = max(raw["sum_us"] / parallel, max(raw["modules"].values()))
            ours.append(result["total_us"] / 1e3)
            floors.append(floor / 1e3)
            slowest.append(max(raw["modules"].values()) / 1e3)
        return [
            Row(4, f"cold start, the {result['compiled']} shipped modules on {self.cores} cores", min(ours), "ms",
                "NVRTC alone / cores, or its slowest module", min(floors), faster=False,
                note="goal: 1.1; each at its best of the rounds: others use these cores",
                samples={"ours": ours, "floor": floors, "slowest_module": slowest})
        ]

    def stampede(self) -> list[Row]:
        """Many processes start concurrently on one empty store."""
        count = 16 if self.quick else 64
        start = time.perf_counter()
        alone = self.preload(self.folder("stampede-alone"), "shipped")
        alone_s = time.perf_counter() - start
        store = self.folder("stampede")
        command = [self.program("start"), str(store), "shipped", "--target", TARGET]
        start = time.perf_counter()
        running = [subprocess.Popen(command, env=self.environment, stdout=subprocess.PIPE, text=True)
                   for _ in range(count)]
        outputs = [process.communicate()[0] for process in running]
        all_s = time.perf_counter() - start
        if any(process.returncode for process in running):
            raise SkippedError("a process of the stampede failed")
        compiled = sum(json.loads(output)["compiled"] for output in outputs)
        floor = 1.2 * alone_s + 0.020 * count / self.cores
        return [
            Row(5, f"compiles by {count} processes of {alone['compiled']} modules each", compiled, "",
                "one for each module", alone["compiled"], faster=False),
            Row(5, f"wall time of {count} processes that start together", all_s * 1e3, "ms",
                "1.2 x one process + 20 ms / cores each", floor * 1e3, faster=False, note="goal: 1"),
        ]

    def run_python(self, script: str, *arguments: str, **environment: str) -> dict:
        """Runs a script of this folder, with the package and PyTorch."""
        library = self.programs / "libcukiln.so"
        if not library.exists():
            raise SkippedError("this build has no shared library")
        path = [self.sources / "src" / "bindings" / "python", self.sources / ".cukiln-torch"]
        return self.run([sys.executable, str(Path(__file__).with_name(script)), *arguments],
                        CUKILN_LIBRARY=str(library),
                        PYTHONPATH=os.pathsep.join([*map(str, path), os.environ.get("PYTHONPATH", "")]), **environment)

    def modules(self) -> list[Row]:
        """get_cuda_module of a loaded module, and launches, from Python."""
        environment = {"CUKILN_STORE": str(self.folder("modules-store"))}
        stand_in = self.programs / "libcuda_fake.so"
        on_gpu = Path("/dev/nvidiactl").exists()
        if not on_gpu and stand_in.exists():  # it loads what it is given; nothing is launched
            environment["CUKILN_CUDA_LIBRARY"] = str(stand_in)
        rounds = "3" if self.quick else "11"
        result = self.run_python("modules.py", rounds, str(self.folder("modules")), **environment)
        rows = [
            Row(7, "get_cuda_module, nothing changed, same process", statistics.median(result["ours_us"]), "us",
                f"cpp_extension.load, PyTorch {result['version']}", statistics.median(result["cpp_extension_us"]),
                note="" if on_gpu else "without a GPU",
                samples={"ours": result["ours_us"], "theirs": result["cpp_extension_us"]})
        ]
        launches = dict(result.get("launch_us", {}))
        ours = launches.pop("cukiln", None)
        for name, theirs in launches.items():
            rows.append(
                Row(7, "a launch from Python, three arguments", statistics.median(ours), "us", name,
                    statistics.median(theirs), samples={"ours": ours, "theirs": theirs})
            )
        return rows

    def dispatch(self) -> list[Row]:
        """A call of an op that C++ registered, beside one that Python registered."""
        result = self.run_python("dispatch.py", "5" if self.quick else "21")
        return [
            Row(7, "a call of an op, besides its work", statistics.median(result["ours_us"]), "us",
                f"@torch.library.custom_op, PyTorch {result['version']}", statistics.median(result["custom_op_us"]),
                note="goal: 5x", samples={"ours": result["ours_us"], "theirs": result["custom_op_us"]})
        ]

    def growth(self) -> list[Row]:
        """The effect of the store's size on a start and on a lookup, beside SQLite alone."""
        few, many = 100, 5_000 if self.quick else 100_000
        rounds = 7 if self.quick else 31
        folder = self.folder("growth")
        result = self.run([self.program("growth"), str(folder), str(few), str(many)])
        memory = f"memory grew by {result['resident_grew_mb']:.1f} MB"
        rows = []
        for name, which, note in (("together", "of modules that were stored together", "goal: 1.2"),
                                  ("apart", "of modules from all over the store", "each on pages of its own")):
            times = result[name]
            floor = times["sqlite_many_us"] / times["sqlite_few_us"]
            rows.append(
                Row(6, f"a look-up in a store of {many:,} entries, {which}", times["many_us"], "us", f"of {few}",
                    times["few_us"], faster=False, note=f"{note}; {memory}; SQLite alone {floor:.1f}")
            )
        rows.append(
            Row(6, "the same, against the floor", result["apart"]["many_us"], "us", "SQLite alone, unchecked",
                result["apart"]["sqlite_many_us"], faster=False)
        )
        # As a host sees it: modules with headers, whose source is read and whose headers are
        # verified too, found among the entries that are there already.
        sets = {count: self.manifest(f"growth-{count}", WITH_HEADERS, count) for count in (6, 56)}
        times: dict[tuple[int, int], list[float]] = {}
        for warm in range(2 + rounds):
            for entries in (few, many):
                for count, manifest in sets.items():
                    took = self.preload(folder / str(entries), manifest)
                    if warm >= 2:
                        times.setdefault((entries, count), []).append(took["cpu_us"])
        median = {key: statistics.median(values) for key, values in times.items()}
        slope = {entries: (median[entries, 56] - median[entries, 6]) / 50 for entries in (few, many)}
        rows.insert(
            0,
            Row(6, f"a further module of a warm start among {many:,} entries", slope[many], "us", f"among {few}",
                slope[few], faster=False, note="goal: 1.2; CPU time",
                samples={f"{n} of {e}": values for (e, n), values in times.items()}),
        )
        return rows

    def daemon(self) -> list[Row]:
        """cukilnd: tests/bench/daemon.py."""
        return daemon.measure(self)

    def dropin(self) -> list[Row]:
        """libcukiln_nvrtc: tests/bench/dropin.py."""
        return dropin.measure(self)

    def look_up_times(self) -> dict[tuple[str, int], float]:
        if not hasattr(self, "_look_up_times"):
            repetitions = 3 if self.quick else 9
            document = self.run(
                [self.program("look_up"), "--benchmark_format=json", "--benchmark_min_time=0.1",
                 f"--benchmark_repetitions={repetitions}", "--benchmark_report_aggregates_only=true",
                 "--benchmark_enable_random_interleaving=true"]
            )
            self._look_up_times = {(row["run_name"].split("/")[0], row["threads"]): row["cpu_time"]
                                   for row in document["benchmarks"] if row["aggregate_name"] == "median"}
        return self._look_up_times

    def by_name_ns(self) -> float:
        try:
            return self.look_up_times()["by_name", 1]
        except SkippedError:
            return 0.0
