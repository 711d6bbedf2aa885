# SPDX-License-Identifier: Apache-2.0
"""The standard headers for device code, kernels_src/std: code in the manner of other projects compiles with them as it is."""

import hashlib
import unittest
from pathlib import Path

from cli import FAILED, CliTest

REPOSITORY = Path(__file__).resolve().parents[2]
FOREIGN = Path(__file__).resolve().parent / "foreign"
STD = ("-I", REPOSITORY / "kernels_src/std")
CUTLASS = REPOSITORY / ".cukiln-cutlass/cutlass_library/source/include"

# Excerpts in the manner of libraries: flags, and the names of their instances.
EXCERPTS = {
    "deepgemm_like.cu": ["-default-device", "--device-int128"],
    "flashinfer_like.cu": ["-default-device", "--name", "normalize::rms_norm<8, half>"],
    "cudf_like.cu": ["--name", "transform<int64_t, int32_t>"],
    "openmm_like.cu": [],
    "standard.cu": ["-default-device", "--std", "c++20"],
    "freestanding.cu": [],
}
# These include no standard header, or those of cuda::std.
UNTOUCHED = {
    "transformer_engine_like.cu": [],
    "cub_block.cu": [],
    "cutlass_copy.cu": ["-default-device", "-I", CUTLASS],
}


class StdHeaders(CliTest):
    def cubin(self, source, *flags):
        out = self.folder / "out.cubin"
        self.run_cli("compile", FOREIGN / source, "--arch", "sm_90a", "-o", out, *flags)
        return hashlib.sha256(out.read_bytes()).hexdigest()

    def test_excerpts_of_libraries_compile(self):
        for source, flags in EXCERPTS.items():
            with self.subTest(source):
                (module,) = self.compile(FOREIGN / source, "--arch", "sm_90a", *STD, *flags)
                self.assertEqual(module["outcome"], "compiled")
                self.run_cli("compile", FOREIGN / source, "--arch", "sm_90a", *flags, expect=FAILED)

    def test_cubins_of_cccl_and_cutlass_are_the_same_without(self):
        for source, flags in UNTOUCHED.items():
            with self.subTest(source):
                self.assertEqual(self.cubin(source, *flags), self.cubin(source, *STD, *flags))

    def test_a_header_of_the_users_own_comes_first_and_is_part_of_the_key(self):
        line = ("own.cu", "--arch", "sm_90a", "-I", "include", *STD)
        self.write("own.cu", '#include <cstdint>\nextern "C" __global__ void own(int* x) { *x = INT32_MAX; }\n')
        self.assertEqual([self.compile(*line)[0]["outcome"] for _ in range(2)], ["compiled", "hit"])
        self.write("include/cstdint", "#define INT32_MAX 3\n")
        self.assertEqual(self.compile(*line)[0]["outcome"], "compiled")
        self.write("include/cstdint", "#include_next <cstdint>\n")
        self.assertEqual(self.compile(*line)[0]["outcome"], "compiled")

    def test_types_of_a_host_cannot_be_used_on_a_device(self):
        for text in "std::vector<int> v; v.push_back(1);", 'std::string s("a"); *x = s.size();':
            with self.subTest(text):
                self.write("host.cu", "#include <string>\n#include <vector>\n"
                                      f'extern "C" __global__ void host(int* x) {{ {text} }}\n')  # fmt: skip
                self.run_cli("compile", "host.cu", "--arch", "sm_90a", *STD, expect=FAILED)


if __name__ == "__main__":
    unittest.main()
