# SPDX-License-Identifier: Apache-2.0
"""The results of scripts/bench-gpu as a table."""

from __future__ import annotations

from dataclasses import dataclass, field

import results


@dataclass
class Measured:
    kernel: str
    shape: str
    us: float
    rival: str
    rival_us: float
    limit_us: float
    bytes: float
    operations: float
    samples: list[float] = field(default_factory=list)
    rival_samples: list[float] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        return self.rival_us / self.us

    @property
    def fraction(self) -> float:
        return self.limit_us / self.us


def table(rows: list[Measured]) -> str:
    lines = ["| kernel | shape | us | of the limit | beside | us | ratio |", "|---|---|---|---|---|---|---|"]
    lines += [f"| {row.kernel} | {row.shape} | {row.us:.1f} | {row.fraction:.0%} | {row.rival} "
              f"| {row.rival_us:.1f} | {row.ratio:.2f}x |" for row in rows]
    return "\n".join(lines)


def to_result(measured: Measured) -> dict:
    """As tests/gpu/results keeps it."""
    return results.row(measured.kernel, "us", measured.us, measured.samples, case=measured.shape,
                       baseline=measured.rival, baseline_value=measured.rival_us,
                       baseline_samples=measured.rival_samples, limit=measured.limit_us,
                       bytes=measured.bytes, operations=measured.operations)  # fmt: skip
