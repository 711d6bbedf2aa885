# SPDX-License-Identifier: Apache-2.0
"""The standard headers for device code: which there are, what they serve, and that they change nothing else."""

import hashlib
import unittest
from pathlib import Path

from cli import FAILED, CliTest

REPOSITORY = Path(__file__).resolve().parents[2]
FOREIGN = Path(__file__).resolve().parent / "foreign"
# The same headers as files, for programs that compile without cukiln.
NAMED = ("--no-std-shims", "-I", REPOSITORY / "kernels_src/std")
CUTLASS = REPOSITORY / ".cukiln-cutlass/cutlass_library/source/include"
OTHERS = REPOSITORY / ".cukiln-cuda-tested"  # NVRTCs without CCCL

# Each compiles alone, with an empty kernel.
HEADERS = """
cstdint cstddef cstdlib cstring cmath cfloat climits cassert cstdio ctime type_traits limits utility tuple array functional
numeric algorithm iterator memory initializer_list complex ratio chrono atomic bit concepts span string_view optional variant
stdint.h stddef.h stdlib.h string.h math.h float.h limits.h assert.h stdio.h
vector string iostream sstream stdexcept exception map unordered_map mutex shared_mutex compare typeinfo typeindex random
cctype cerrno cfenv charconv system_error ios version ctype.h errno.h fenv.h strings.h unistd.h sys/types.h
cuda_runtime.h cuda_runtime_api.h cuda_fp16.h cuda_bf16.h cuda_fp8.h cuda_fp4.h cooperative_groups.h mma.h
cub/block/block_reduce.cuh cub/block/block_scan.cuh cub/warp/warp_reduce.cuh thrust/tuple.h thrust/iterator/counting_iterator.h
cuda/barrier cuda/pipeline cuda/std/span cuda/std/tuple cuda/ptx cuda_pipeline.h nv/target cuda/atomic
""".split()
# These do not: CUDA's cuda.h declares functions of the host without saying so.
WITH_DEFAULT_DEVICE = ["cuda.h"]

# Uses of many headers, and the flags that they need. tests/cli/foreign_test.py has excerpts in the manner of libraries.
EXCERPTS = {"standard.cu": ["-default-device", "--std", "c++20"], "freestanding.cu": [],
            "host_members.cu": ["-default-device", "--std", "c++20"]}
# These include no standard header, or those of cuda::std: flags, and whether CCCL looks for <version> in them.
UNTOUCHED = {"rtc_like.cu": (["-D__TYPE__=__nv_bfloat16", "-D__LOAD_SIZE__=8", "-D__BLOCK_SIZE__=256"], False),
             "cub_block.cu": ([], True), "cutlass_copy.cu": (["-default-device", "-I", CUTLASS], True)}


class StdHeaders(CliTest):
    def sources(self, headers):
        for i, header in enumerate(headers):
            text = f'#include <{header}>\nextern "C" __global__ void empty_{i}(int* x) {{ *x = 1; }}\n'
            yield self.write(f"headers/{i}.cu", text)

    def outcomes(self, headers, *flags, expect):
        modules = self.run_json("compile", *self.sources(headers), "--arch", "sm_90a", *flags, expect=expect)["modules"]
        return dict(zip(headers, (module["outcome"] for module in modules), strict=True))

    def cubin(self, source, *flags):
        out = self.folder / "out.cubin"
        out.unlink(missing_ok=True)
        self.run_cli("compile", FOREIGN / source, "--arch", "sm_90a", "-o", out, *flags)
        return hashlib.sha256(out.read_bytes()).hexdigest()

    def test_each_header_compiles_alone(self):
        self.assertGreaterEqual(len(HEADERS), 60)
        for standard in "c++17", "c++20":
            with self.subTest(standard):
                outcomes = self.outcomes(HEADERS, "--std", standard, expect=None)
                self.assertEqual([header for header, outcome in outcomes.items() if outcome != "compiled"], [])

    def test_what_declares_host_functions_wants_a_flag(self):
        self.assertEqual(set(self.outcomes(WITH_DEFAULT_DEVICE, expect=FAILED).values()), {"failed"})
        given = self.outcomes(WITH_DEFAULT_DEVICE, "-default-device", expect=0)
        self.assertEqual(set(given.values()), {"compiled"})

    def test_excerpts_of_libraries_compile(self):
        for source, flags in EXCERPTS.items():
            with self.subTest(source):
                self.assertEqual(self.cubin(source, *flags), self.cubin(source, *NAMED, *flags))
                self.run_cli("compile", FOREIGN / source, "--arch", "sm_90a", "--no-std-shims", *flags, expect=FAILED)

    def test_cubins_of_cccl_and_cutlass_are_the_same_without(self):  # fault 200
        for source, (flags, looks_for_version) in UNTOUCHED.items():
            with self.subTest(source):
                self.environment["CUKILN_STORE"] = str(self.folder / source / "with")
                given = self.cubin(source, *flags)
                self.environment["CUKILN_STORE"] = str(self.folder / source / "without")
                self.assertEqual(self.cubin(source, "--no-std-shims", *flags), given)
                # One key, if none is looked for: what was compiled with them is a hit without, and the reverse.
                (module,) = self.compile(FOREIGN / source, "--arch", "sm_90a", *flags)
                self.assertEqual(module["outcome"], "compiled" if looks_for_version else "hit")

    def test_integers_and_limits_need_no_cccl(self):
        libraries = sorted(OTHERS.glob("*/nvidia/*/lib/libnvrtc.so.*"))
        self.assertGreaterEqual(len(libraries), 2)
        for library in libraries:
            root = library.parents[3]
            with self.subTest(root.name):
                (header,) = root.glob("nvidia/*/include/cuda_fp16.h")
                self.environment["CUKILN_NVRTC_LIBRARY"] = str(library)
                self.environment["CUKILN_INCLUDE_PATH"] = str(header.parent)
                (module,) = self.compile(FOREIGN / "freestanding.cu", "--arch", "sm_90a")
                self.assertEqual(module["outcome"], "compiled")
                self.write("tuple.cu", "#include <tuple>\n")
                failed = self.run_cli("compile", "tuple.cu", "--arch", "sm_90a", expect=FAILED).err
                self.assertIn("It is a header of CCCL: install nvidia-cuda-cccl", failed)

    def test_a_header_of_the_users_own_comes_first_and_is_part_of_the_key(self):  # fault 201
        line = ("own.cu", "--arch", "sm_90a", "-I", "include")
        self.write("own.cu", '#include <cstdint>\nextern "C" __global__ void own(int* x) { *x = INT32_MAX; }\n')
        self.assertEqual(self.compile(*line)[0]["outcome"], "compiled")
        self.assertEqual(self.compile(*line)[0]["outcome"], "hit")
        shown = self.run_cli("explain", *line, "--no-std-shims").out
        self.assertIn("header vanished\n- /cukiln/std/cstdint", shown)
        self.write("include/cstdint", "#define INT32_MAX 3\n")
        self.assertIn("header appeared\n+ ", self.run_cli("explain", *line).out)
        self.assertEqual(self.compile(*line)[0]["outcome"], "compiled")
        self.write("include/cstdint", "#include_next <cstdint>\n")
        self.assertEqual(self.compile(*line)[0]["outcome"], "compiled")

    def test_has_include_sees_them(self):  # fault 200
        self.write("has.cu", '#if __has_include(<cstdint>)\nextern "C" __global__ void with(int* x) { *x = 1; }\n'
                             '#else\nextern "C" __global__ void without(int* x) { *x = 2; }\n#endif\n')  # fmt: skip
        for flags, name in ([], "with"), (["--no-std-shims"], "without"):
            for outcome in "compiled", "hit":
                (module,) = self.compile("has.cu", "--arch", "sm_90a", *flags)
                self.assertEqual((module["outcome"], module["kernels"][0]["name"]), (outcome, name))

    def test_bundles_and_ptx_are_made_with_and_without(self):  # fault 200
        self.write("has.cu", '#if __has_include(<cstdint>)\n#include <cstdint>\n#define WITH std::int32_t\n#else\n#define WITH int\n#endif\n'
                             'extern "C" __global__ void k(WITH* x) { *x = 1; }\n')  # fmt: skip
        self.run_cli("keygen", "-o", "k.key")
        for flags in [], ["--no-std-shims"]:
            with self.subTest(flags):
                (module,) = self.compile("has.cu", "--arch", "sm_90a", *flags)
                self.assertIn(".entry k(", self.run_cli("show", module["key"], "--ptx").out)
                self.run_cli("export", "-o", "b.ckb", "--sign", "k.key", module["key"])
                self.assertIn("1 of 1 module fit", self.run_cli("fits", "b.ckb", "--trust", "k.key.pub").out)
        own = self.write("toolkit/cstdint", "// of a toolkit\n").parent
        done = self.run_cli("fits", "b.ckb", "--trust", "k.key.pub", env={"CUKILN_INCLUDE_PATH": str(own)}, expect=FAILED)
        self.assertIn(f"header appeared: {own}/cstdint", done.out)

    def test_a_manifest_may_leave_them_out(self):
        self.write("int.cu", '#include <cstdint>\nextern "C" __global__ void k(int32_t* x) { *x = 1; }\n')
        manifest = '{"format": 1, "modules": [{"name": "a", "sources": ["int.cu"], "targets": ["sm_90a"]%s}]}'
        self.write("with.json", manifest % "")
        self.write("without.json", manifest % ', "std_shims": false')
        self.run_cli("preload", "with.json", "--no-load")
        for line in ("preload", "without.json", "--no-load"), ("preload", "with.json", "--no-load", "--no-std-shims"):
            failed = self.run_cli(*line, expect=FAILED)
            self.assertIn("std_shims is off", failed.out + failed.err)
        self.assertIn(": hit", self.run_cli("explain", "with.json").out)
        self.assertIn(": miss", self.run_cli("explain", "with.json", "--no-std-shims").out)

    def test_types_of_a_host_cannot_be_used_on_a_device(self):  # fault 202
        for text in "std::vector<int> v; v.push_back(1);", "std::map<int, int> m;", 'std::string s("a"); *x = s.size();':
            with self.subTest(text):
                self.write("host.cu", "#include <map>\n#include <string>\n#include <vector>\n"
                                      f'extern "C" __global__ void host(int* x) {{ {text} }}\n')  # fmt: skip
                failed = self.run_cli("compile", "host.cu", "--arch", "sm_90a", expect=FAILED).err
                self.assertIn("declared for host functions only: device code cannot use them", failed)

    def test_a_daemon_compiles_with_them(self):  # fault 204
        (self.folder / "run").mkdir(mode=0o700)
        self.addCleanup(self.run_cli, "daemon", "stop", expect=None)
        self.run_cli("daemon", "start")
        self.environment["CUKILN_DAEMON"] = "require"
        self.write("int.cu", '#include <cstdint>\nextern "C" __global__ void k(int32_t* x) { *x = 1; }\n')
        line = ("int.cu", "--arch", "sm_90a")
        self.assertEqual([self.compile(*line)[0]["outcome"] for _ in range(2)], ["compiled", "hit"])
        failed = self.run_cli("compile", *line, "--no-std-shims", expect=FAILED).err
        self.assertIn("std_shims is off", failed)

    def test_errors_show_where_they_are(self):
        self.write("log.cu", '#include <functional>\nextern "C" __global__ void k(int* x) { *x = std::hash<int3>{}({}); }\n')
        failed = self.run_cli("compile", "log.cu", "--arch", "sm_90a", expect=FAILED).err
        self.assertIn("/cukiln/std/functional(", failed)

    def test_headers_and_code_of_a_host_are_named_so(self):  # fault 203
        for text, says in (
            ("#include <torch/extension.h>\n", "It is a header for hosts. NVRTC compiles device code only"),
            ("#include <regex>\n", "include <regex> in host code only"),
            ("__global__ void k() {}\nvoid launch() { k<<<1, 1>>>(); }\n", "a launch (<<<>>>) or main(), for which -default-device does not help"),
            ("int twice(int x) { return 2 * x; }\n", "unless the flag -default-device is given"),
            ("__device__ int f();\n__global__ void k(int* x) { *x = f(); }\n", "No source of the module defines it"),
        ):  # fmt: skip
            with self.subTest(text):
                self.write("host.cu", text)
                self.assertIn(says, self.run_cli("compile", "host.cu", "--arch", "sm_90a", expect=FAILED).err)


if __name__ == "__main__":
    unittest.main()
