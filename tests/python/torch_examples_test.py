# SPDX-License-Identifier: Apache-2.0
"""The examples for PyTorch run to their end without a GPU, and print what they promise."""

import re
import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.mark.parametrize("name", ["torch_linear", "torch_moe", "quantize_model"])
def test_an_example_runs(name, capsys):
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    printed = capsys.readouterr().out
    assert all(float(cosine) > 0.96 for cosine in re.findall(r"cosine (\S+)", printed))
    assert "cosine" in printed
    assert "False" not in printed
