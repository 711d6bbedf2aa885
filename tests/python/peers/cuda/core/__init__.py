# SPDX-License-Identifier: Apache-2.0
"""The part of cuda.core that cukiln.adapters.cuda_core meets, for tests without cuda.core."""


class ProgramOptions:
    """Options of a compile."""


class Program:
    """A text and its compile."""


class ObjectCode:
    """Code as bytes, or as the path of a file."""

    def __init__(self, code):
        self.code = code

    @staticmethod
    def from_cubin(code):
        return ObjectCode(code)
