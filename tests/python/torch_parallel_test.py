# SPDX-License-Identifier: Apache-2.0
"""NVFP4TrainableLinear over two ranks, tensor and sequence parallel and by FSDP2, with gloo on the
CPU."""

import pytest

import torch_parallel_ranks as parallel


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    return parallel.run_ranks(tmp_path_factory.mktemp("ranks"))


@pytest.fixture(scope="module")
def expected():
    return parallel.run_alone()


def test_tensor_parallel_ranks_compute_parts_of_the_whole(ranks, expected):
    parallel.check_tensor_parallel(ranks[False], expected)


def test_sequence_parallel_ranks_compute_parts_of_the_whole(ranks, expected):
    parallel.check_sequence_parallel(ranks[True], expected)


def test_ranks_with_parts_of_the_parameters_compute_as_one_process(tmp_path):
    parallel.run_sharded(tmp_path)
