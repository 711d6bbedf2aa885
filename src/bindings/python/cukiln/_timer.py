# SPDX-License-Identifier: Apache-2.0
"""Times of launches on a GPU, for `cukiln.torch.tune` and tests/bench. Opens no library."""

from __future__ import annotations

from collections.abc import Callable

import torch

HOLD_CLOCKS = 1_000_000  # half a millisecond


def _launch_each(launch: Callable[[int], object], count: int) -> None:
    for i in range(count):
        launch(i)


class Timer:
    """Measures the GPU's time of a launch, of as many in a graph, without the host's."""

    def __init__(self, launch: Callable[[int], None]) -> None:
        self._stream = torch.cuda.Stream()
        self._stream.wait_stream(torch.cuda.current_stream())  # which fills what is read
        with torch.cuda.stream(self._stream):
            _launch_each(launch, 3)
            few_ms = self._time_ms(lambda: _launch_each(launch, 4))
            self._count = max(4, min(256, int(6 / max(few_ms, 1e-3))))
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph, stream=self._stream):
                _launch_each(launch, self._count)
            self._graph.replay()
        self._stream.synchronize()

    def sample(self) -> float:
        """Microseconds."""
        with torch.cuda.stream(self._stream):
            return self._time_ms(self._graph.replay) * 1e3 / self._count

    @staticmethod
    def _time_ms(enqueue: Callable[[], object]) -> float:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(HOLD_CLOCKS)  # until all is enqueued: the GPU's wait for the host would count
        start.record()
        enqueue()
        end.record()
        end.synchronize()
        return start.elapsed_time(end)
