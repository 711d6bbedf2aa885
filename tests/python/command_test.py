# SPDX-License-Identifier: Apache-2.0
"""`python -m cukiln` is the command line."""

import os
import subprocess
import sys

import cukiln
from cukiln import _command


def run(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "cukiln", *arguments], capture_output=True, text=True, check=False
    )


def test_python_m_cukiln_is_the_command_line():
    assert run("--version").stdout.split()[-1] == cukiln.__version__
    assert run("no-such-verb").returncode == 2


def test_without_the_program_it_says_what_is_missing(monkeypatch, tmp_path):
    monkeypatch.setenv("CUKILN_LIBRARY", str(tmp_path / "libcukiln.so"))
    result = run("--version")
    assert result.returncode == 3
    assert f"{tmp_path}/cukiln" in result.stderr


def test_the_command_looks_for_nvidias_wheels_in_its_own_environment(monkeypatch):
    started = []
    monkeypatch.setattr("os.execv", lambda *given: started.append(given))
    monkeypatch.setenv("VIRTUAL_ENV", "/another")
    monkeypatch.setattr(sys, "base_prefix", "/usr")
    monkeypatch.setattr(sys, "prefix", "/an/environment")
    monkeypatch.setattr(sys, "argv", ["cukiln", "doctor"])
    _command.main()
    assert os.environ["VIRTUAL_ENV"] == "/an/environment"
    assert started[0][1][1:] == ["doctor"]
