# SPDX-License-Identifier: Apache-2.0
"""Which weights a runner has, as a number for graphs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

_COLUMNS = 4096  # words that are summed up together
_SLICE = 1024  # rows of words whose products are in memory at a time
_ODD = (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)  # SplitMix64's


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


def _mix(words: Tensor) -> Tensor:
    """Every bit depends on all lower ones and many higher ones; int64 wraps around."""
    words = (words ^ (words >> 30)) * _signed(_ODD[1])
    words = (words ^ (words >> 27)) * _signed(_ODD[2])
    return words ^ (words >> 31)


def _factors(begin: int, count: int, device: torch.device) -> Tensor:
    """Odd numbers without a pattern."""
    return _mix(torch.arange(begin + 1, begin + count + 1, device=device) * _signed(_ODD[0])) | 1


def _content(tensor: Tensor) -> Tensor:
    """int64 [] of a tensor's bytes, without a copy of it."""
    data = tensor.detach().as_strided((tensor.numel(),), (1,)).view(torch.uint8)  # it is dense
    whole = data.numel() // (4 * _COLUMNS) * 4 * _COLUMNS
    if data.storage_offset() % 4:
        data = data.clone()
    rest = data[whole:]
    parts = [data[:whole].view(torch.int32).view(whole // (4 * _COLUMNS), _COLUMNS)]
    if rest.numel():
        parts.append(pad(rest, (0, 4 * _COLUMNS - rest.numel())).view(torch.int32).view(1, -1))
    columns = _factors(0, _COLUMNS, data.device)
    total, row = columns.new_zeros(()), 0
    for part in parts:
        for words in part.split(_SLICE):
            sums = _mix((words * columns).sum(1))
            total = total + (sums * _factors(row, len(words), data.device)).sum()
            row += len(words)
    return total


def fingerprint(tensors: Sequence[Tensor], settings: Iterable[Any]) -> int:
    """Of tensors, on one device, and settings: the same in every process and on every device, 2 or
    more, and of 62 bits, so that a graph may hold it as an integer. It reads all of the tensors."""
    contents = torch.stack([_content(tensor) for tensor in tensors]).tolist()
    shapes = [(tuple(tensor.shape), str(tensor.dtype)) for tensor in tensors]
    text = repr((contents, shapes, tuple(settings))).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") >> 2 | 2
