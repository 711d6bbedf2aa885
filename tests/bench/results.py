# SPDX-License-Identifier: Apache-2.0
"""The file that keeps one run: tests/gpu/results/README.md describes it, and this writes and reads it."""

from __future__ import annotations

import datetime
import json
import platform
import re
import statistics
import subprocess
from pathlib import Path

FORMAT = 1
REPOSITORY = Path(__file__).resolve().parents[2]
COMMIT_FILE = "COMMIT"  # beside carried programs: where they run there may be no git


def rounded(value: float) -> float | int:
    """Four significant digits, more than any of these measurements has."""
    value = float(f"{value:.4g}")
    return int(value) if value.is_integer() else value


def spread(value: float, *candidates: list[float]) -> dict:
    """{min, max, rounds} of the samples that `value` is the median or the best of; {} if it is of none."""
    for samples in candidates:
        if len(samples) > 1 and any(abs(value - of) <= 1e-6 * abs(of) for of in (statistics.median(samples), min(samples))):
            return {"min": rounded(min(samples)), "max": rounded(max(samples)), "rounds": len(samples)}
    return {}


def row(what: str, unit: str, value: float, samples: list[float] = (), *, case: str = "", baseline: str = "",
        baseline_value: float | None = None, baseline_samples: list[float] = (), note: str = "",
        **more: float) -> dict:  # fmt: skip
    """One result. `more`: limit, bytes, operations. The ratio is the baseline's value over this one."""
    made: dict = {"what": what} | ({"case": case} if case else {}) | {"unit": unit, "value": rounded(value)}
    made |= spread(value, list(samples))
    if baseline:
        made["baseline"] = {"name": baseline}
        if baseline_value is not None:
            beside = spread(baseline_value, list(baseline_samples))
            beside.pop("rounds", None)
            made["baseline"] |= {"value": rounded(baseline_value)} | beside
            if value and baseline_value:
                made["ratio"] = rounded(baseline_value / value)
    made |= {name: rounded(number) if name == "limit" else int(number) for name, number in more.items()}
    return made | ({"note": note} if note else {})


def commit_of(programs: Path) -> str:
    """The commit that the programs of this folder were built from, `-dirty` after it where files were changed."""
    file = programs / COMMIT_FILE
    if file.exists():
        return file.read_text(encoding="utf-8").strip()
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def command_line(script: str, words: list[str]) -> str:
    """The command line without the folders that the build came from and that the answer goes to."""
    folders = ("-o", "--output", "--build")
    kept = [word for before, word in zip(["", *words], words)
            if before not in folders and word not in folders and not word.startswith(("--output=", "--build="))]  # fmt: skip
    return " ".join([script, *kept])


def devices() -> dict:
    """{name, count, driver, capability} of the GPUs here, which are of one kind; {} if there are none."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version,compute_cap", "--format=csv,noheader"]
    try:
        lines = subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        return {}
    name, driver, capability = (value.strip() for value in lines[0].split(","))
    return {"name": name, "count": len(lines), "driver": driver, "capability": capability}


def file_name(device: dict, subject: str) -> str:
    """h200-kernels.json, h200x2-tests.json; cpu-bench.json where no GPU is."""
    name = re.sub(r"[^a-z0-9]+", "-", device.get("name", "CPU").lower().removeprefix("nvidia ")).strip("-")
    count = device.get("count", 1)
    return f"{name}{f'x{count}' if count > 1 else ''}-{subject}.json"


def record(kind: str, *, device: dict, commit: str, command: str, **more: object) -> dict:
    """A run that ends now, on this machine. `more`: the fields of its kind, and optional ones."""
    return {
        "format": FORMAT,
        "kind": kind,
        "device": device,
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"),
        "commit": commit,
        "command": command,
        "system": f"{platform.system()} {platform.machine()}, glibc {platform.libc_ver()[1]}",
    } | {name: value for name, value in more.items() if value != "" and value != {}}


def text_of(run: dict) -> str:
    """JSON with a line for each field, and for each element of a long one, so that a diff shows what changed."""
    fields = []
    for name, value in run.items():
        if isinstance(value, list) and value:
            items = ",\n".join("    " + json.dumps(item, ensure_ascii=False) for item in value)
            fields.append(f'  "{name}": [\n{items}\n  ]')
        elif name == "programs":
            items = ",\n".join(f"    {json.dumps(key)}: {json.dumps(item, ensure_ascii=False)}" for key, item in value.items())
            fields.append(f'  "{name}": {{\n{items}\n  }}')
        else:
            fields.append(f'  "{name}": {json.dumps(value, ensure_ascii=False)}')
    return "{\n" + ",\n".join(fields) + "\n}\n"


def write(path: Path, run: dict) -> None:
    path.write_text(text_of(run), encoding="utf-8")


def read(path: Path) -> dict:
    return json.loads(path.read_text(encoding="utf-8"))


def test_results(rows: list[dict]) -> dict:
    """The fields of kind `tests`, of rows with program, name, outcome, seconds and, where there is one, message."""
    programs: dict[str, dict] = {}
    for test in rows:
        program = programs.setdefault(test["program"], {"seconds": 0.0, "passed": []})
        program["seconds"] = round(program["seconds"] + test["seconds"], 1)
        if test["outcome"] == "passed":
            program["passed"].append(test["name"])
    outcomes = [test["outcome"] for test in rows]
    kept = ("program", "name", "outcome", "message")
    return {name: outcomes.count(name) for name in ("passed", "failed", "skipped")} | {
        "programs": programs,
        "not_passed": [{name: test[name] for name in kept if name in test} for test in rows if test["outcome"] != "passed"],
    }
