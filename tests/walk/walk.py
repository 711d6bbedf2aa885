# SPDX-License-Identifier: Apache-2.0
"""Changes header trees at random, and checks that a store returns what NVRTC compiles.

usage: walk.py [--seed N] [--steps K] [--only STEP,…] [--trust-stamps] [--no-shrink]

After each change it requests the module from a store that has the earlier states, in this process or by the
command line, and compares the result with
  - that of NVRTC over the real files: the machine code is equal. It holds a constant of each text that was read;
  - that of a compile without a store: the bytes are equal.
A walk is a function of its seed. When one fails, it removes the steps that the failure does not need, unless
--no-shrink is given, and prints the others and the command that repeats them. Covers fault 130.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import Random

BINARIES = Path(os.environ["CUKILN_TEST_BINARY_DIR"])
REPOSITORY = Path(__file__).resolve().parents[2]
TARGET = "sm_90a"
# The flags that cukiln adds, as `show` lists them; the last one requests the assembler's report.
ADDED = (f"--gpu-architecture={TARGET}", "--std=c++17", "--ptxas-options=-v")
FRESH_STORE_EVERY = 50  # steps; few, since a new store starts a new worker
SHRINK_SECONDS = 120


class Mismatch(Exception):
    """A result that differs from what NVRTC compiles."""


class Walk:
    """One tree, the stores that have its earlier states, and NVRTC to compare with."""

    def __init__(self, seed, scratch, nvrtc):
        self.seed, self.nvrtc, self.scratch = seed, nvrtc, scratch
        self.tree = Tree(scratch, Random(f"{seed} tree"))
        os.chdir(self.tree.work)
        self.stores = [scratch / "store0", scratch / "store1"]
        self.loaders = {}
        self.storeless = self.open(None)
        self.counts = {"hit": 0, "compiled": 0, "failed": 0, "command line": 0}

    def open(self, store):
        return cukiln.Loader(
            store=store, memory_only=store is None, system_store=self.scratch / "system", jobs=1)  # fmt: skip

    def close(self):
        for loader in (self.storeless, *self.loaders.values()):
            loader.close()
        os.chdir(self.scratch.parent)

    def step(self, number, history):
        """Makes one change, appends its description to `history`, and checks. Raises Mismatch."""
        random = Random(f"{self.seed} {number}")
        done = None
        while done is None:
            (change,) = random.choices([name for name, _ in CHANGES], [often for _, often in CHANGES])
            done = getattr(self.tree, change)(random)
        history.append(f"{number}: {done}")
        self.check(number, random, done)

    def check(self, number, random, done):
        store = random.choice(self.stores)
        by_command = random.random() < (0.3 if done.startswith("flags") else 0.02)
        if random.random() < 0.02 and store in self.loaders:  # opened again later, as in another process
            self.loaders.pop(store).close()
        expected, log = self.nvrtc.compile(self.tree.unit, [*ADDED, *self.tree.arguments()])
        if by_command:
            self.counts["command line"] += 1
            found, outcome = self.request_by_command(store)
        else:
            found, outcome = self.request(store)
        if (expected is None) != (found is None):
            raise Mismatch(f"NVRTC {'fails' if expected is None else 'compiles'}, cukiln: {outcome}\n{log}")
        if expected is None:
            self.counts["failed"] += 1
            return
        if code_of(found) != code_of(expected):
            raise Mismatch(f"{outcome}: the machine code is not the one that NVRTC compiles from these files")
        again, outcome_again = self.request_by_command(store) if by_command else self.request(store)
        if again != found or not outcome_again.startswith("hit"):
            raise Mismatch(f"the second request: {outcome_again}, same bytes: {again == found}")
        fresh, outcome_fresh = self.request_without_store(number)
        if fresh != found:
            raise Mismatch(f"{outcome}: other bytes than without a store ({outcome_fresh})")
        if number % FRESH_STORE_EVERY == 0:
            fresh, outcome_fresh = self.request_by_command(self.scratch / f"fresh{number}")
            if fresh != found or not outcome_fresh.startswith("compiled"):
                raise Mismatch(f"{outcome}: other bytes than with a new store ({outcome_fresh})")

    def request(self, store):
        if store not in self.loaders:
            self.loaders[store] = self.open(store)
        return self.request_from(self.loaders[store])

    def request_from(self, loader, flags=()):
        include = [flag[2:] for flag in self.tree.arguments() if flag.startswith("-I")]
        module = cukiln.ModuleSpec(
            self.tree.unit, include=include, flags=(*self.tree.flags, *flags), targets=(TARGET,))  # fmt: skip
        report = loader.preload([module], load=False, keep_going=True).modules[0]
        if report.error is not None:
            if report.error.code != "compile_failed":
                raise Mismatch(f"{report.error.code}: {report.error}")
            return None, f"failed {report.log}"
        if flags == () and report.not_stored:
            raise Mismatch(f"not stored: {report.not_stored}")
        if flags == ():
            self.counts[report.outcome] += 1
        return loader.cubin(report.key), f"{report.outcome} {report.key[:12]}"

    def request_without_store(self, number):
        """Makes a request that was never made before, so that it is compiled. No text uses the macro."""
        return self.request_from(self.storeless, (f"-DWALK_STEP={number}",))

    def request_by_command(self, store):
        output = self.scratch / "out.cubin"
        output.unlink(missing_ok=True)
        done = subprocess.run(
            [BINARIES / "cukiln", "--store", store, "compile", self.tree.unit, "--arch", TARGET,
             "-o", output, *self.tree.arguments()],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False)  # fmt: skip
        if done.returncode == 1:
            return None, f"failed\n{done.stderr}"
        if done.returncode != 0:
            raise Mismatch(f"cukiln's exit code is {done.returncode}\n{done.stdout}{done.stderr}")
        outcome = "hit" if " hit" in done.stdout else "compiled"
        return output.read_bytes(), f"{outcome} by the command line"


def walk(seed, steps, nvrtc):
    """Returns (the step that failed, why, the history, the walk); the step is None if none failed."""
    scratch = Path(tempfile.mkdtemp(prefix="cukiln-walk-")).resolve()
    os.environ.update(HOME=str(scratch), XDG_CACHE_HOME=str(scratch / "cache"),
                      XDG_CONFIG_HOME=str(scratch / "config"), XDG_RUNTIME_DIR=str(scratch / "run"))  # fmt: skip
    done, walked = [], Walk(seed, scratch, nvrtc)
    try:
        for step in steps:
            try:
                walked.step(step, done)
            except Mismatch as mismatch:
                return step, str(mismatch), done, walked
        return None, "", done, walked
    finally:
        walked.close()
        shutil.rmtree(scratch, ignore_errors=True)


def shrunk(seed, steps, nvrtc):
    """Returns fewer steps that fail too, as few as SHRINK_SECONDS allow."""
    deadline = time.monotonic() + SHRINK_SECONDS
    size = len(steps) // 2
    while size > 0:
        at = 0
        while at < len(steps) and time.monotonic() < deadline:
            fewer = steps[:at] + steps[at + size :]
            failed, *_ = walk(seed, fewer, nvrtc) if fewer else (None,)
            if failed is None:
                at += size
            else:
                steps = fewer[: fewer.index(failed) + 1]
        size //= 2
    return steps


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=250)
    parser.add_argument("--only", help="do these steps only")
    parser.add_argument("--no-shrink", action="store_true")
    parser.add_argument("--trust-stamps", action="store_true",
                        help="set the clock a minute ahead, so that new files count as old")  # fmt: skip
    given = parser.parse_args()
    if given.trust_stamps and "LD_PRELOAD" not in os.environ:
        preloaded = os.environ | {"LD_PRELOAD": str(BINARIES / "libshifted_clock.so")}
        os.execve(sys.executable, [sys.executable, *sys.argv], preloaded)
    steps = list(range(1, given.steps + 1))
    if given.only:
        steps = [int(step) for step in given.only.split(",")]
    nvrtc = Nvrtc(nvrtc_library())
    started = time.monotonic()
    failed, why, done, walked = walk(given.seed, steps, nvrtc)
    seconds = time.monotonic() - started
    if failed is None:
        counts = ", ".join(f"{count} {what}" for what, count in walked.counts.items())
        print(f"seed {given.seed}: {len(done)} steps in {seconds:.0f} s: {counts}")
        return 0
    print(f"seed {given.seed}, step {failed}: {why}")
    steps = steps[: steps.index(failed) + 1]
    if not given.no_shrink:
        steps = shrunk(given.seed, steps, nvrtc)
        failed, why, done, walked = walk(given.seed, steps, nvrtc)
    print(*done, f"then: {why}" if failed is not None else "then no failure: it did not repeat", sep="\n")
    trusted = " --trust-stamps" if given.trust_stamps else ""
    print(f"repeat: {Path(__file__).name} --seed {given.seed}{trusted} --only {','.join(map(str, steps))}")
    return 1


if __name__ == "__main__":
    for variable in [name for name in os.environ if name.startswith("CUKILN_")]:
        if variable not in ("CUKILN_TEST_BINARY_DIR", "CUKILN_NVRTC_LIBRARY", "CUKILN_INCLUDE_PATH"):
            del os.environ[variable]
    os.environ.update(CUKILN_DAEMON="off", CUKILN_LIBRARY=str(BINARIES / "libcukiln.so"),
                      CUKILN_CUDA_LIBRARY="/nonexistent/libcuda.so")  # fmt: skip
    sys.path[:0] = [str(REPOSITORY / "src/bindings/python"), str(Path(__file__).parent)]
    import cukiln
    from oracle import Nvrtc, code_of, nvrtc_library
    from tree import CHANGES, Tree

    sys.exit(main())
