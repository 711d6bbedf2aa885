# SPDX-License-Identifier: Apache-2.0
"""The recipes of examples/foreign: their files are there, and code in the manner of their projects compiles with them."""

import json
import shutil
import unittest
from pathlib import Path

from cli import FAILED, USAGE, CliTest

REPOSITORY = Path(__file__).resolve().parents[2]
RECIPES = REPOSITORY / "examples/foreign"
EXCERPTS = Path(__file__).resolve().parent / "foreign"
CUTLASS = REPOSITORY / ".cukiln-cutlass/cutlass_library/source"
TARGETS = ["sm_90a", "sm_100a"]
# A recipe, the module whose flags are taken, an excerpt in the manner of its source, and its kernels.
LIKE = {"deepgemm": ("sm90_bf16_gemm", "instance_like.cuh", ["gemm::stages<256, 4, float>"]),
        "flashinfer": ("sampling", "launcher_like.cu", ["engine::sample<256, half>"]),
        "cute": ("sgemm_1", "tutorial_like.cu", []),
        "cudf": ("transform", "udf_like.cu", ["entry"]),
        "transformer_engine": ("transpose_bf16", "rtc_like.cu", ["transpose_optimized_kernel"]),
        "openmm": ("ewald", "context_like.cu", ["add_forces"]),
        "thunderkittens": ("hopper", "tiles_like.cu", []),
        "llama_cpp": ("softmax", "ggml_like.cu", []),
        "sglang": ("rmsnorm_sm90", "jit_like.cuh", ["elementwise::scale<4, true, float>"])}  # fmt: skip
# What the stand-in of OpenMM includes from it.
COMMON = """#define KERNEL extern "C" __global__
#define GLOBAL
#define LOCAL __shared__
#define RESTRICT __restrict__
#define LOCAL_ID threadIdx.x
#define GLOBAL_ID (blockIdx.x * blockDim.x + threadIdx.x)
#define GLOBAL_SIZE (blockDim.x * gridDim.x)
#define ATOMIC_ADD(to, value) atomicAdd(to, value)
typedef unsigned long long mm_ulong;
__device__ inline long long realToFixedPoint(real x) { return static_cast<long long>(x * 0x100000000); }
"""

# What the stand-ins of SGLang, and its own headers, include from tvm-ffi.
DLPACK = """#pragma once
#include <cstdint>
typedef enum { kDLCPU = 1, kDLCUDA = 2 } DLDeviceType;
typedef struct { DLDeviceType device_type; int32_t device_id; } DLDevice;
"""


class Recipes(CliTest):
    def setUp(self):
        super().setUp()
        shutil.copytree(RECIPES, self.folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("checkouts"))

    def preload(self, name, expect=0):
        return self.run_json("preload", name, "--no-load", expect=expect)["modules"]

    def module(self, recipe, name):
        modules = json.loads((RECIPES / f"{recipe}.json").read_text())["modules"]
        return next(module for module in modules if module["name"] == name)

    def test_there_is_a_recipe_for_each_project_and_its_own_files_are_there(self):
        recipes = sorted(path.stem for path in RECIPES.glob("*.json"))
        self.assertEqual(recipes, sorted([*LIKE, "cub"]))
        readme = (RECIPES / "README.md").read_text()
        for recipe in recipes:
            self.assertIn(f"`{recipe}.json`", readme)
            for module in json.loads((RECIPES / f"{recipe}.json").read_text())["modules"]:
                with self.subTest(recipe, module=module["name"]):
                    for path in [*module["sources"], *module["include"]]:
                        self.assertTrue(path.startswith("checkouts/") or (RECIPES / path).exists(), path)
                    self.assertLessEqual({*module["targets"]}, {*TARGETS})

    def test_without_a_checkout_the_error_names_the_file(self):
        failed = self.run_cli("preload", "deepgemm.json", "--no-load", expect=USAGE)
        self.assertIn("checkouts/DeepGEMM/deep_gemm/include/deep_gemm/impls/", failed.err)

    def test_code_in_the_manner_of_each_project_compiles_with_its_recipe(self):
        self.write("checkouts/openmm/platforms/cuda/src/kernels/common.cu", COMMON)
        self.write("checkouts/openmm/platforms/cuda/src/kernels/vectorOps.cu", "")
        self.write("checkouts/tvm-ffi/tvm_ffi/include/dlpack/dlpack.h", DLPACK)
        self.write("checkouts/sglang/sglang/kernels/jit/include/sgl_kernel/utils.h", "#pragma once\n")
        for place in "DeepGEMM/third-party/cutlass", "cutlass":
            link = self.folder / "checkouts" / place
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(CUTLASS)
        for recipe, (name, excerpt, names) in LIKE.items():
            with self.subTest(recipe):
                module = self.module(recipe, name) | {"sources": [str(EXCERPTS / excerpt)], "targets": TARGETS}
                module["names"] = names
                if not names:
                    del module["names"]
                self.write("like.json", json.dumps({"format": 1, "modules": [module]}))
                for compiled in self.preload("like.json"):
                    self.assertEqual(compiled["outcome"], "compiled")
                    self.assertEqual(len(compiled["kernels"]), 1)
                # Nothing that the recipe adds is left out without a reason.
                bare = {"format": 1, "modules": [{"name": "bare", "sources": module["sources"], "targets": ["sm_90a"]}]}
                self.write("bare.json", json.dumps(bare))
                self.preload("bare.json", expect=FAILED)

    def test_algorithms_of_blocks_and_warps_compile_with_the_toolkits_cub_as_well(self):
        done = self.preload("cub.json")  # no checkout: its folders are not there
        self.assertEqual([m["outcome"] for m in done], ["compiled"] * 4)
        self.assertEqual([len(m["kernels"]) for m in done], [10, 10, 4, 4])


if __name__ == "__main__":
    unittest.main()
