# SPDX-License-Identifier: Apache-2.0
"""Each field of src/schema/schema.toml is on each surface that has its record."""

import ctypes
import dataclasses
import inspect
import json
import os
import re
import runpy
import subprocess
from pathlib import Path

import pytest

import cukiln
from cukiln import _library

ROOT = Path(__file__).resolve().parents[2]
CUKILN = Path(os.environ["CUKILN_TEST_BINARY_DIR"]) / "cukiln"
GENERATOR = runpy.run_path(str(ROOT / "src/schema/generate.py"))
SCHEMA = GENERATOR["SCHEMA"]
HEADERS = "".join(path.read_text() for path in sorted((ROOT / "include/cukiln").glob("*.h*")))
C_HEADERS = "".join((ROOT / f"include/cukiln/{name}.h").read_text() for name in ("cukiln", "nvfp4"))
ABI = (ROOT / "tests/golden/abi.txt").read_text()
OFFSETS = {member: int(at) for member, at in re.findall(r"(?m)^(\S+) at (\d+)$", ABI)}
RECORDS = SCHEMA["records"]
IN_PYTHON = {name: getattr(cukiln, at["python"]) for name, at in RECORDS.items() if "python" in at}
ROWS = [(one, name) for one in SCHEMA if one not in ("kinds", "records", "variables") for name in SCHEMA[one]]


def mirror(struct):
    words = struct.removeprefix("cukiln_").split("_")
    return getattr(_library, "".join(word.title() for word in words))


def run(*arguments, **environment):
    done = subprocess.run(
        [CUKILN, *arguments], env=os.environ | environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def body(struct):
    return re.search(rf"(?s)struct (?:CUKILN_API )?{struct} \{{(.*?)\n\}}", HEADERS)[1]


def settings():
    return [key for key, row in GENERATOR["settings"]() if "kind" in row]


def test_every_surface_is_as_the_schema_says():
    assert list(GENERATOR["run"](check=True)) == []


@pytest.mark.parametrize(("record", "name"), ROWS)
def test_without_a_line_of_the_schema_a_surface_differs(record, name):  # fault 451
    rows = SCHEMA[record]
    SCHEMA[record] = {other: row for other, row in rows.items() if other != name}
    try:
        try:
            failures = list(GENERATOR["run"](check=True))
        except (KeyError, ValueError) as error:  # a line that another one needs
            failures = [error]
        assert failures
    finally:
        SCHEMA[record] = rows


def test_c_has_each_field():
    for record, at in RECORDS.items():
        for name, row in SCHEMA[record].items():
            if "c" in at and "c" in row:
                assert f"{at['c']}.{row['c_name']}" in OFFSETS


def test_the_ctypes_mirror_is_every_struct_of_c():  # fault 451
    here = {
        f"{struct}.{member[0]}": getattr(mirror(struct), member[0]).offset
        for struct in {member.partition(".")[0] for member in OFFSETS}
        for member in mirror(struct)._fields_
    }
    assert here == OFFSETS
    assert set(_library._PROTOTYPES) == set(re.findall(r"CUKILN_API [^;(]*\b(cukiln_\w+)\(", C_HEADERS))


@pytest.mark.parametrize("record", IN_PYTHON)
def test_python_has_each_field(record):
    known = IN_PYTHON[record]
    fields = getattr(known, "_fields", None) or [field.name for field in dataclasses.fields(known)]
    # One exception, and the order of a list, in Python.
    not_there = {"error_code", "not_stored_code", "index"} if record == "report" else set()
    assert set(fields) == set(SCHEMA[record]) - not_there


@pytest.mark.parametrize(("record", "name"), ROWS)
def test_cpp_has_each_field(record, name):
    row = SCHEMA[record][name]
    if record == "miss":
        assert re.search(rf"\b{name},", (ROOT / "src/core/loader/miss.hpp").read_text())
        structs = []
    else:
        structs = row["in"].split(", ") if "in" in row else RECORDS[record]["cpp"]
    for struct in structs if row["cpp"] and "kind" in row else []:
        assert re.search(rf"\b{row['cpp']}(?: = .*|{{.*}})?;", body(struct)), struct


def test_a_manifest_has_each_field_of_a_module_but_headers():
    manifest = json.loads((ROOT / "cache/manifests/manifest.schema.json").read_text())
    keys = manifest["properties"]["modules"]["items"]["properties"]
    assert set(keys) == set(SCHEMA["module"]) - {"headers"}
    refusal = re.search(r"expected (name, [^;]*?)\",", (ROOT / "src/core/loader/manifest.cpp").read_text())[1]
    assert set(re.findall(r"\w+", refusal)) - {"or"} == set(keys)


def test_every_option_of_cpp_is_one_of_c_and_of_python():  # fault 451
    rows = SCHEMA["options"].items()
    options = {name for name, row in rows if "in" in row and row["kind"] != "places"}
    assert all("c" in SCHEMA["options"][name] for name in options)
    parameters = set(inspect.signature(cukiln.Loader).parameters)
    assert parameters == options - {"log"}  # Python's logging has it


@pytest.mark.parametrize("name", [n for n, row in SCHEMA["options"].items() if "count" in row])
def test_c_reads_each_list(name):
    options = _library.Options(**{SCHEMA["options"][name]["count"]: 1})
    handle = ctypes.c_void_p()
    code = _library.library().cukiln_loader_create(ctypes.byref(options), ctypes.byref(handle))
    with pytest.raises(cukiln.InvalidArgumentError, match=f"{name} is NULL, but its count is 1"):
        _library.check(code)


def test_each_setting_has_a_key_a_variable_and_its_lines_in_the_documents():
    now = json.loads(run("config", "--json"))["settings"]
    shown = {setting["name"]: setting["value"] for setting in now}
    assert list(shown) == settings()
    variables = {f"CUKILN_{name.upper()}": value or "0" for name, value in shown.items()}
    again = json.loads(run("config", "--json", **variables))["settings"]
    assert {setting["name"]: setting["origin"] for setting in again} == {
        name: f"environment CUKILN_{name.upper()}" for name in shown
    }
    for document in ("src/cli/README.md", "src/cli/man/cukiln.1.in"):
        text = (ROOT / document).read_text()
        assert [variable for variable in variables if variable not in text] == []


def test_the_command_line_prints_each_counter(home):
    document = json.loads(run("stats", "--json"))
    for name, row in SCHEMA["stats"].items():
        if "json" in row:
            assert row["json"] in document
        if "reason" in row:
            assert row["reason"] in document["misses_by_reason"], name
    reasons = {row["reason"] for row in SCHEMA["stats"].values() if "reason" in row}
    assert set(document["misses_by_reason"]) == reasons
    text = run("stats")
    labels = {row["label"] for row in SCHEMA["stats"].values() if "label" in row}
    labels |= {reason.replace("_", " ") for reason in reasons}
    assert {label for label in labels if label not in text} == set()


def test_a_key_that_python_limits_to_some_modules_signs_no_others(home, monkeypatch):  # fault 450
    monkeypatch.setenv("CUKILN_NVRTC_LIBRARY", str(CUKILN.parent / "libnvrtc_fake.so"))
    monkeypatch.chdir(home)
    Path("k.cu").write_text('extern "C" __global__ void k() {}\n')
    key = json.loads(run("keygen", "--json", "-o", "fleet.key"))["public_key"]
    other = {"CUKILN_STORE": str(home / "other")}
    run("compile", "k.cu", "--arch", "sm_90a", **other)
    run("export", "-o", "k.ckb", "--sign", "fleet.key", **other)
    run("import", "k.ckb", "--trust", "fleet.key.pub")
    spec = cukiln.ModuleSpec("k.cu", targets=["sm_90a"])
    with cukiln.Loader(offline=True, scoped_keys=[f"{key} modules=k"]) as loader:
        assert loader.compile(spec)[0].outcome == "hit"
    with (
        cukiln.Loader(offline=True, scoped_keys=[f"{key} modules=gemm_"]) as loader,
        pytest.raises(cukiln.NotFoundError, match="a key that is not trusted for this module"),
    ):
        loader.compile(spec)
