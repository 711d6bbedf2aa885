# SPDX-License-Identifier: Apache-2.0
"""The machine code of every shipped module for sm_100a: nothing spills, and the GEMMs use what
sm_100a has for them, as do those for the other targets with tcgen05. environment:
CUKILN_TEST_BINARY_DIR."""

import re
import sys
import tempfile
import unittest
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "kernels"))
from machine_code import MANIFEST, REPOSITORY, compile_module, modules

NEWEST_NVRTC = REPOSITORY / ".cukiln-cuda-tested/13.5/nvidia/cu13/lib/libnvrtc.so.13"

# A kernel with 192 threads may have 255 registers; these have room for what a change may add.
MOST_REGISTERS = 160
# By kernel: what its code must have. The rest of a name says for how many CTAs, and what it copies.
ONE_CTA = ("UTCOMMA.4X", "UTCCP.T.S.4x32dp128bit", "UTMALDG.2D", "UTMALDG.3D")
OF_PAIR = ("UTCOMMA.2CTA.4X", "UTCCP.T.S.2CTA.4x32dp128bit", "UTCBAR.2CTA.MULTICAST", "UCGABAR_ARV")
PAIR = (*OF_PAIR, "UTMALDG.2D.2CTA", "UTMALDG.3D.2CTA", "UTMALDG.3D.MULTICAST.2CTA")  # that of column scales
SHARED_BOTH = (*OF_PAIR, "UTMALDG.2D.MULTICAST.2CTA", "UTMALDG.3D.MULTICAST.2CTA")  # rows and columns
SHARED_ROWS = (*SHARED_BOTH, "UTMALDG.2D.2CTA")
SWAPPED = (*ONE_CTA, "UCGABAR_ARV", "STAS.128", "STG.E.128")
# By the module's number of tokens.
GEMMS = {
    "8": {
        "nvfp4_gemm_128x128": ONE_CTA,
        "nvfp4_gemm_128x256": ONE_CTA,
        "nvfp4_gemm_grouped_128x128": ONE_CTA,
        "nvfp4_gemm_grouped_128x256": ONE_CTA,
        "nvfp4_gemm_256x256": PAIR,
        "nvfp4_gemm_256x128": PAIR,
        "nvfp4_gemm_256x256_x2": SHARED_ROWS,
        "nvfp4_gemm_256x192_x2": SHARED_ROWS,
        "nvfp4_gemm_256x128_x2": SHARED_ROWS,
        "nvfp4_gemm_256x256_x4": SHARED_BOTH,
        "nvfp4_gemm_256x192_x4": SHARED_BOTH,
    },
    "16": {f"nvfp4_gemm_swapped_{tile}": SWAPPED for tile in (16, 32, 64, 128, 256, "64_half")},
}  # fmt: skip
# A GEMM's, and an epilogue that quantises: E2M1 of two floats and UE4M3.
GROUPED_UP = ("LDTM.x32", "UTCBAR", "SYNCS.PHASECHK.TRANS64.TRYWAIT", "UTMACCTL.PF", "ACQBULK", "PREEXIT",
              "F2FP.SATFINITE.E2M1", "F2FP.SATFINITE.E4M3", *ONE_CTA)  # fmt: skip
GROUPED_UP_REGISTERS = 192
# By module and kernel, how many 16-byte loads there are at least.
WIDE = {
    ("nvfp4_moe_grouped", "moe_route_rows"): 2,
    ("nvfp4_moe_combine", "moe_combine_rows"): 4,
}
# How the block-scaled MMA is called in the machine code of other targets.
OTHER_TARGETS = {
    "sm_100f": ".4X",
    "sm_103a": ".BLOCK16",
    "sm_103f": ".BLOCK16",
    "sm_107a": ".BLOCK16",
    "sm_107f": ".BLOCK16",
    "sm_110a": ".4X",
}
ALL_GEMMS = ("LDTM.x32", "UTCBAR", "SYNCS.PHASECHK.TRANS64.TRYWAIT", "UTMACCTL.PF", "ACQBULK", "PREEXIT")  # fmt: skip
# Must not precede griddepcontrol.wait: griddepcontrol.launch_dependents, loads that are not TMA's, stores.
WAIT, AFTER_WAIT = "ACQBULK", ("PREEXIT", "LDG", "STG", "UTMASTG")


def counted(code):
    """How often each instruction occurs, in the order in which they first occur."""
    return Counter(instruction.operation for instruction in code)


# Modules of other targets' GEMMs: nvfp4_gemm and nvfp4_gemm_16 have all of sm_100a's.
WITHOUT_KERNELS = {"nvfp4_gemm_32", "nvfp4_gemm_prefill_256", "nvfp4_w4a16_gemm_skinny",
                   "nvfp4_w4a16_gemm_prefill", "nvfp4_w4a16_gemm_prefill_224", "nvfp4_w4a16_gemm_prefill_256"}  # fmt: skip


class MachineCode(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.functions, cls.code = {}, {}  # by module and kernel
        for module in modules():
            folder = Path(cls.folder.name, module["name"])
            folder.mkdir()
            for name, report, counts in cls.compile(module, folder):
                cls.functions[module["name"], name] = report
                cls.code[module["name"], name] = counts

    @classmethod
    def compile(cls, module, folder, arch="sm_100a", nvrtc=None):
        """Of each kernel: its name, what the compiler reports, and its instructions."""
        functions, code = compile_module(module, folder, Path(cls.folder.name, "store"), arch, nvrtc)
        return [(name, functions[name], counted(code[name])) for name in sorted(functions)]

    def test_every_shipped_kernel_was_disassembled(self):
        shipped = {module["name"] for module in modules()}
        self.assertEqual({module for module, _ in self.code}, shipped - WITHOUT_KERNELS)
        self.assertTrue(all(sum(counts.values()) > 50 for counts in self.code.values()))

    def test_nothing_spills_or_uses_local_memory(self):
        for name, function in self.functions.items():
            with self.subTest(name):
                self.assertEqual(function["spill_bytes"], 0)
                self.assertEqual(function["local_bytes"], 0)
                local = [i for i in self.code[name] if i.split(".")[0] in ("LDL", "STL")]
                self.assertEqual(local, [])

    def test_gemms_of_targets_without_tcgen05_spill_nothing_either(self):
        folder = Path(self.folder.name, "portable")
        folder.mkdir()
        source = MANIFEST.parent / "../../kernels_src/nvfp4/nvfp4_gemm.cu"
        for arch in ("sm_100", "sm_110f"):
            for tokens in ("8", "16"):
                into = folder / arch / tokens
                into.mkdir(parents=True)
                module = {"sources": [source], "define": {"CUKILN_GEMM_TOKENS": tokens}}
                compiled = self.compile(module, into, arch)
                self.assertEqual(len(compiled), 3)
                for name, function, code in compiled:
                    with self.subTest(name, arch=arch):
                        self.assertEqual(function["spill_bytes"], 0)
                        self.assertTrue(any(i.startswith("HMMA") for i in code))

    def test_mixtures_of_experts_for_sm_90a_use_no_local_memory_either(self):
        chosen = [module for module in modules()
                  if re.fullmatch(r"nvfp4_moe_(gemm|prefill|w4a16)(_prefill)?(_\d+)?", module["name"])]  # fmt: skip
        self.assertGreaterEqual(len(chosen), 10)
        for module in chosen:
            folder = Path(self.folder.name, "sm_90a", module["name"])
            folder.mkdir(parents=True)
            for name, function, code in self.compile(module, folder, "sm_90a"):
                with self.subTest(name, module=module["name"]):
                    self.assertEqual((function["spill_bytes"], function["local_bytes"]), (0, 0))
                    self.assertFalse({"LDL", "STL"} & {i.split(".")[0] for i in code})

    def test_other_targets_with_tcgen05_have_the_same_gemms(self):
        source = MANIFEST.parent / "../../kernels_src/nvfp4/nvfp4_gemm.cu"
        for arch, mma in OTHER_TARGETS.items():
            for tokens, gemms in GEMMS.items():
                folder = Path(self.folder.name, arch, tokens)
                folder.mkdir(parents=True)
                module = {"sources": [source], "define": {"CUKILN_GEMM_TOKENS": tokens}}
                compiled = self.compile(module, folder, arch, NEWEST_NVRTC)
                self.assertEqual([name for name, _, _ in compiled], sorted(gemms))
                for name, function, code in compiled:
                    with self.subTest(name, arch=arch):
                        self.check_gemm(gemms[name], function, code, mma)

    def test_a_mixture_of_experts_moves_16_bytes_at_a_time_between_its_gemms(self):
        for kernel, loads in WIDE.items():
            with self.subTest(kernel):
                code = self.code[kernel]
                wide = [count for i, count in code.items() if i.startswith("LDG") and ".128" in i]
                self.assertGreaterEqual(sum(wide), loads)

    def test_gemms_use_what_sm_100a_has_for_them(self):
        for tokens, gemms in GEMMS.items():
            module = "nvfp4_gemm" if tokens == "8" else f"nvfp4_gemm_{tokens}"
            for name, has in gemms.items():
                with self.subTest(name):
                    self.check_gemm(has, self.functions[module, name], self.code[module, name], ".4X")

    def test_the_first_grouped_gemm_quantises_in_its_epilogue(self):
        for name in ("moe_grouped_up", "moe_grouped_up_dynamic"):
            function, code = self.functions["nvfp4_moe_grouped_up", name], self.code["nvfp4_moe_grouped_up", name]
            with self.subTest(name):
                self.assertEqual([i for i in GROUPED_UP if not any(c.startswith(i) for c in code)], [])
                self.assertEqual(self.before_wait(code), [])
                self.assertLessEqual(function["registers"], GROUPED_UP_REGISTERS)
                self.assertEqual(function["shared_bytes"], 0)
                stores = [i for i in code if i.startswith("STG") and ".128" in i]
                self.assertNotEqual(stores, [])
                self.check_maps(code)
        self.check_fences(self.code["nvfp4_moe_grouped_up", "moe_grouped_up"])

    def test_a_row_of_the_first_grouped_gemm_is_counted_with_release_and_acquire(self):
        code = self.code["nvfp4_moe_grouped_up", "moe_grouped_up_dynamic"]
        order = [i for i in code if i.startswith(("REDG.E.MAX", "MEMBAR.ALL.GPU", "ATOMG.E.ADD", "CCTL.IVALL"))]
        self.assertEqual([i.split(".")[0] for i in order], ["REDG", "MEMBAR", "ATOMG", "CCTL"])
        self.assertEqual([code[i] for i in order], [1, 1, 1, 1])

    def before_wait(self, code):
        return [i for i in list(code)[: list(code).index(WAIT)] if i.startswith(AFTER_WAIT)]

    def check_gemm(self, has, function, code, mma):
        wanted = [i.replace(".4X", mma) for i in has]
        missing = [i for i in (*wanted, *ALL_GEMMS)
                   if not any(c == i or c.startswith(i + ".") for c in code)]  # fmt: skip
        self.assertEqual(missing, [])
        self.assertEqual(any(i.startswith("UTMASTG.2D") for i in code), has != SWAPPED)  # else D is stored from registers
        self.assertEqual(self.before_wait(code), [])
        self.assertLessEqual(function["registers"], MOST_REGISTERS)
        self.assertEqual(function["spill_bytes"], 0)
        # All of it is dynamic: the launcher asks for what the kernel's layout takes.
        self.assertEqual(function["shared_bytes"], 0)
        self.check_maps(code)
        self.check_fences(code)

    def check_maps(self, code):
        """Each tensor map is prefetched: data and scales of both operands, and, where TMA stores it, the output."""
        maps = 5 if any(i.startswith("UTMASTG") for i in code) else 4
        self.assertGreaterEqual(sum(count for i, count in code.items() if i.startswith("UTMACCTL.PF")), maps)

    def check_fences(self, code):
        """A fence of the device takes hundreds of clocks: only a cluster's barrier has one, and no mbarrier."""
        fences = sum(count for i, count in code.items() if i.startswith("MEMBAR") and i.endswith(".GPU"))
        self.assertLessEqual(fences, code["UCGABAR_ARV"])


if __name__ == "__main__":
    unittest.main()
