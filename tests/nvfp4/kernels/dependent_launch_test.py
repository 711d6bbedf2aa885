#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The rule of kernels_src/nvfp4/dependent_launch.cuh, over the text of all device code: a kernel launches its dependents
behind its own wait, unless it writes scales alone. Only then have all kernels before a kernel's predecessor completed
when it starts, and a GEMM with constant_b may load B. And it has its tensor memory by then."""

from __future__ import annotations

import re
import sys
import unittest
from pathlib import Path

KERNELS = Path(__file__).resolve().parents[3] / "kernels_src"
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
STATEMENT = re.compile(r"[^;{}]*[;{}]")
AMAX_KERNELS = {"amax_gsa.cu", "swiglu_amax_gsa.cu"}
WAIT, TRIGGER = "griddepcontrol_wait();", "griddepcontrol_launch_dependents();"
ALLOCATION = re.compile(r"tmem_alloc<(?:kCtas|1)>\(shared_address")


def early_triggers(text: str) -> list[str]:
    """Triggers that no wait precedes as a statement of its own, in the same block or in one around it."""
    waited, early = [False], []
    text = COMMENT.sub("", text)
    for match in STATEMENT.finditer(re.sub(r"^\s*#.*$", "", text, flags=re.MULTILINE)):
        statement = match.group().strip()
        if statement.endswith("{"):
            waited.append(waited[-1])
        elif statement.endswith("}"):
            waited.pop()
        elif statement == WAIT:
            waited[-1] = True
        elif statement.endswith(TRIGGER) and not waited[-1]:
            early.append(statement)
    if len(waited) != 1:
        raise ValueError(f"{len(waited) - 1} blocks are not closed")
    return early


class DependentLaunch(unittest.TestCase):
    def test_every_kernel_waits_before_it_launches_its_dependents(self):
        triggers = 0
        for path in sorted(KERNELS.rglob("*.cu*")):
            text = path.read_text(encoding="utf-8")
            if path.name not in AMAX_KERNELS:
                triggers += text.count(TRIGGER)
                self.assertEqual(early_triggers(text), [], f"{path}: put {WAIT} before it")
        self.assertGreater(triggers, 5)

    def test_tensor_memory_is_allocated_before_dependents_are_launched(self):
        texts = {path.name: COMMENT.sub("", path.read_text(encoding="utf-8")) for path in KERNELS.rglob("*.cu*")}
        users = {name: text for name, text in texts.items() if ALLOCATION.search(text)}
        self.assertEqual(sorted(users), ["gemm_sm100_roles.cuh", "gemm_sm100_swapped.cuh"])
        for name, text in users.items():
            self.assertLess(ALLOCATION.search(text).start(), text.index(TRIGGER), name)

    def test_a_trigger_without_a_wait_before_it_is_found(self):
        for early in (
            f"void k() {{ {TRIGGER} {WAIT} }}",
            f"void k() {{ if (x) {WAIT} {TRIGGER} }}",
            f"void k() {{ if (x) {{ {WAIT} }} {TRIGGER} }}",
            f"void k() {{ {WAIT} }} void l() {{ {TRIGGER} }}",
            f"void k() {{ // {WAIT}\n if (x) {TRIGGER} }}",
        ):
            self.assertEqual(len(early_triggers(early)), 1, early)
        for late in (f"void k() {{ {WAIT} {TRIGGER} }}", f"void k() {{ {WAIT} if (x) {{ {TRIGGER} }} }}"):
            self.assertEqual(early_triggers(late), [], late)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
