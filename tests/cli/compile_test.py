# SPDX-License-Identifier: Apache-2.0
"""compile, explain and show, with the real NVRTC and no GPU."""

import json
import os
import resource
import shutil
import stat
import subprocess
import time
import unittest
from pathlib import Path

from cli import ADD, BROKEN, CUKILN, CliTest, DONE, ENVIRONMENT, FAILED, FAKE_DRIVER, SCALE, STORE, TEMPLATE, USAGE

HEX64 = r"^[0-9a-f]{64}$"


REPOSITORY = Path(__file__).resolve().parents[2]


class Compile(CliTest):
    def test_compiles_once_then_hits(self):
        arguments = ("scale.cu", "--arch", "sm_90a")
        first = self.run_json("compile", *arguments)
        self.assertEqual((first["hits"], first["compiled"], first["failed"]), (0, 1, 0))
        (module,) = first["modules"]
        self.assertRegex(module["key"], HEX64)
        self.assertEqual(module["outcome"], "compiled")
        self.assertEqual((module["name"], module["source"], module["target"]), ("scale", "scale.cu", "sm_90a"))
        self.assertIsNone(module["error"])
        self.assertGreater(module["milliseconds"], 0)
        kernels = {kernel["name"]: kernel for kernel in module["kernels"]}
        self.assertEqual(set(kernels), {"scale", "shift"})
        self.assertEqual(kernels["scale"]["shared_bytes"], 256)
        self.assertGreater(kernels["scale"]["registers"], 0)

        second = self.run_json("compile", *arguments)
        self.assertEqual((second["hits"], second["compiled"], second["failed"]), (1, 0, 0))
        self.assertEqual(second["modules"][0]["key"], module["key"])
        self.assertEqual(second["modules"][0]["outcome"], "hit")

    def test_what_follows_two_dashes_is_a_file(self):
        self.write("-O3.cu", ADD)
        modules = self.compile("-DADDEND=1", "--arch", "sm_90a", "add.cu", "--", "-O3.cu", "scale.cu")
        self.assertEqual([m["name"] for m in modules], ["add", "-O3", "scale"])
        self.assertEqual(self.run_json("ls", "--"), self.run_json("ls"))

    def test_a_row_for_each_source_and_target(self):
        modules = self.compile("add.cu", "scale.cu", "-DADDEND=1", "--arch", "sm_90a,sm_100a",
                               "--arch", "sm_90a")  # fmt: skip
        self.assertEqual([(m["name"], m["target"]) for m in modules],
                         [("add", "sm_90a"), ("add", "sm_100a"), ("scale", "sm_90a"), ("scale", "sm_100a")])
        self.assertEqual(len({m["key"] for m in modules}), 4)

    def test_a_default_target_without_a_gpu_is_said_once(self):
        shown = self.run_cli("compile", "scale.cu", "add.cu", "--name", "add", "--name", "scale", "-j", "1", expect=None).err
        self.assertEqual(shown.count("no GPU is visible"), 1, shown)
        self.assertIn("scale names no target: compiled for sm_100a", shown)
        self.assertNotIn("no GPU is visible", self.run_cli("compile", "scale.cu", "--arch", "sm_90a").err)

    def test_default_target_is_the_gpus(self):
        env = {"CUKILN_CUDA_LIBRARY": FAKE_DRIVER, "FAKE_CUDA_DEVICES": "3",
               "FAKE_CUDA_CAPABILITY": "90,86"}  # fmt: skip
        modules = self.compile("add.cu", "-DADDEND=1", env=env)
        self.assertEqual([m["target"] for m in modules], ["sm_90a", "sm_86"])
        explained = self.run_json("explain", "add.cu", "-DADDEND=1", env=env)["explanations"]
        self.assertEqual([e["outcome"] for e in explained], ["hit", "hit"])

    def test_options_reach_the_compiler(self):
        self.write("deep/inner.cuh", "#define ADDEND 3\n")
        self.write("inc.cu", '#include <inner.cuh>\n' + ADD)
        self.compile("inc.cu", "-Ideep")
        self.compile("inc.cu", "-I", "deep", "--std", "c++20")
        self.write("fill.cu", TEMPLATE)
        (module,) = self.compile("fill.cu", "--name", "fill<float, 4>", "--name", "fill<int, 2>")
        self.assertEqual({f["name"] for f in module["kernels"]}, {"fill<float, 4>", "fill<int, 2>"})
        self.assertTrue(all(f["lowered"].startswith("_Z") for f in module["kernels"]))

    def test_defined_as_nothing_is_not_defined_as_one(self):
        self.write("one.cu", "#if ONE + 0 == 1\n" + ADD + "#else\n#error not one\n#endif\n")
        self.compile("one.cu", "-DONE", "-DADDEND=1")
        self.compile("one.cu", "-DONE=1", "-D", "ADDEND=1")
        self.run_cli("compile", "one.cu", "-DONE=", "-DADDEND=1", expect=FAILED)

    def test_nvcc_flags_as_they_are(self):
        plain = self.one_key("add.cu", "-DADDEND=1", "--arch", "sm_90a")
        (same,) = self.compile("-O3", "add.cu", "-DADDEND=1", "-gencode=arch=compute_90a,code=sm_90a",
                               "-Xcompiler", "-fPIC", "--expt-relaxed-constexpr")  # fmt: skip
        self.assertEqual((same["outcome"], same["key"]), ("hit", plain))
        self.assertEqual(set(same["dropped_flags"]),
                         {"-O3", "-Xcompiler -fPIC", "--expt-relaxed-constexpr"})  # fmt: skip
        (fast,) = self.compile("add.cu", "-DADDEND=1", "-arch", "sm_90a", "--use_fast_math",
                               "-Xptxas", "-O2", "--flag", "-lineinfo")  # fmt: skip
        self.assertEqual((fast["outcome"], fast["target"]), ("compiled", "sm_90a"))

    def x_of(self, *arguments):
        """What X is in a kernel whose shared memory has X floats, and the key."""
        (module,) = self.compile("x.cu", "--arch", "sm_90a", *arguments)
        return self.shared_floats(module), module["key"]

    def shared_floats(self, module):
        return next(f["shared_bytes"] for f in module["kernels"] if f["name"] == "scale") // 4

    def write_x(self, first=""):
        self.write("x.cu", first + "#ifndef X\n#define X 77\n#endif\n" + SCALE.replace("TILE", "X"))

    def test_the_order_of_the_command_line_is_the_compilers(self):  # fault 102
        self.write_x()
        for arguments, x in ((("-U", "X", "-D", "X=11"), 11), (("-D", "X=11", "-UX"), 77),
                             (("-DX=11", "-U", "X", "-DX=12"), 12), (("--flag", "-DX=11", "-DX=12"), 12),
                             (("-DX=11", "--flag=-DX=12"), 12),
                             (("-D", "X=11", "--undefine-macro=X", "--define-macro", "X=13"), 13)):
            self.assertEqual(self.x_of(*arguments)[0], x, arguments)

    def test_the_last_standard_wins_however_it_is_spelt(self):
        self.write("std.cu", ADD + "static_assert(__cplusplus == EXPECTED);\n")
        self.compile("std.cu", "-DADDEND=1", "-DEXPECTED=202002L", "-std=c++17", "--std", "c++20")
        self.compile("std.cu", "-DADDEND=1", "-DEXPECTED=201703L", "--std", "c++20", "--flag=-std=c++17")

    def test_a_manifest_has_the_key_of_the_command_line(self):
        self.write_x("#include <which.h>\n")
        self.write("a/which.h", "")
        self.write("b/which.h", "#error never found\n")
        self.write("pre.h", "#undef X\n#define X 9\n")
        line = ["-U", "X", "-I", "a", "-D", "X=1", "-lineinfo", "-Ib", "-include", "pre.h", "--std", "c++20"]
        x, key = self.x_of(*line)
        self.assertEqual(x, 9)
        apart = {"include": ["../a"], "flags": ["-UX", "-DX=1", "-lineinfo", "-include", "pre.h", "-std=c++20", "-I", "b"]}
        self.write("made/m.json", json.dumps({"format": 1, "modules": [
            {"name": "flags", "sources": ["../x.cu"], "flags": line, "working_folder": "..", "targets": ["sm_90a"]},
            {"name": "apart", "sources": ["../x.cu"], **apart, "working_folder": "..", "targets": ["sm_90a"]}]}))  # fmt: skip
        report = self.run_json("preload", "made/m.json", "--no-load")["modules"]
        self.assertEqual([(m["outcome"], m["key"]) for m in report], [("hit", key)] * 2)
        self.assertEqual(self.run_json("explain", "x.cu", "--arch", "sm_90a", *line)["key"], key)

        # `define` comes before `flags`: an -U there undefines what is defined here.
        self.write("m.json", json.dumps({"format": 1, "modules": [
            {"name": "x", "sources": ["x.cu"], "include": ["a"], "define": {"X": 1}, "flags": ["-UX"], "targets": ["sm_90a"]}]}))
        (module,) = self.run_json("preload", "m.json", "--no-load")["modules"]
        self.assertEqual(self.shared_floats(module), 77)
        self.assertEqual(self.x_of("-I", "a", "-DX=1", "-UX"), (77, module["key"]))

    def test_flags_that_cukiln_makes_needless_are_said_once(self):  # fault 105
        plain = self.one_key("add.cu", "-DADDEND=1", "--arch", "sm_90a")
        line = ("--pch", "--no-cache", "--time=-", "-c", "-cubin", "-t", "4", "-Wall")
        result = self.run_cli("--json", "compile", "add.cu", "-DADDEND=1", "--arch", "sm_90a,sm_100a", *line)
        module = result.json()["modules"][0]
        self.assertEqual((module["outcome"], module["key"]), ("hit", plain))
        self.assertEqual(module["dropped_flags"],
                         ["--pch", "--no-cache", "--time=-", "-c", "-cubin", "-t 4", "-Wall"])  # fmt: skip
        for flag in ("--pch", "--no-cache", "--time", "-c", "-cubin", "-t", "-Wall"):
            self.assertEqual(result.err.count(f"{flag} is ignored: "), 1, result.err)
        self.assertNotEqual(self.one_key("add.cu", "-DADDEND=1", "--arch", "sm_90a", "-ewp"), plain)
        failed = self.run_cli("compile", "add.cu", "--use_fast_mth", expect=USAGE)
        self.assertIn('did you mean "--use_fast_math"?', failed.err)

    def test_output_writes_the_cubin(self):
        (module,) = self.compile("add.cu", "-DADDEND=1", "-o", "add.cubin")
        cubin = (self.folder / "add.cubin").read_bytes()
        self.assertEqual(cubin[:4], b"\x7fELF")
        self.assertEqual(len(cubin), module["cubin_bytes"])
        self.compile("add.cu", "-DADDEND=1", "-o", "again.cubin")  # a hit writes it, too
        self.assertEqual((self.folder / "again.cubin").read_bytes(), cubin)

    def test_output_of_several_modules_is_a_folder(self):
        several = ("add.cu", "-DADDEND=1", "--arch", "sm_90a,sm_100a")
        result = self.run_cli("compile", *several, "-o", "add.cubin", expect=USAGE)
        self.assertIn("one file for 2 modules", result.err)
        (self.folder / "out").mkdir()
        self.compile(*several, "-o", "out")
        self.assertEqual(sorted(os.listdir(self.folder / "out")),
                         ["add.sm_100a.cubin", "add.sm_90a.cubin"])  # fmt: skip

    def test_a_limit_on_files_costs_no_compile(self):  # fault 8
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        self.addCleanup(resource.setrlimit, resource.RLIMIT_FSIZE, before)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
        (module,) = self.compile("add.cu", "-DADDEND=1", "--arch", "sm_90a", expect=STORE)
        self.assertEqual(module["outcome"], "compiled")

    def test_a_working_folder_that_is_gone(self):
        gone = ("sh", "-c", 'mkdir gone && cd gone && rmdir ../gone && exec "$0" --store rel ls', CUKILN)
        done = subprocess.run(gone, cwd=self.folder, env=self.environment, capture_output=True, text=True)
        self.assertEqual(done.returncode, STORE)
        self.assertIn("expected an absolute path", done.stderr)

    def test_two_modules_of_one_name_do_not_write_over_each_other(self):
        self.write("other/add.cu", ADD)
        (self.folder / "out").mkdir()
        result = self.run_cli("compile", "add.cu", "other/add.cu", "-DADDEND=1", "-o", "out", expect=USAGE)
        self.assertIn("add.sm_100a.cubin", result.err)
        self.assertEqual(os.listdir(self.folder / "out"), [])

    def test_output_is_read_by_whom_the_user_lets_read(self):
        before = os.umask(0o027)
        self.addCleanup(os.umask, before)
        output = ("compile", "add.cu", "-DADDEND=1", "-o")
        self.run_cli(*output, "add.cubin")
        cubin = self.folder / "add.cubin"
        self.assertEqual(cubin.stat().st_mode & 0o777, 0o640)
        cubin.chmod(0o664)
        (self.folder / "link").symlink_to("add.cubin")
        self.run_cli(*output, "link")
        self.assertTrue((self.folder / "link").is_symlink())
        self.assertEqual(cubin.stat().st_mode & 0o777, 0o664)

    def test_a_device_is_written_to_and_stays_one(self):
        fifo = self.folder / "fifo"  # as /dev/null is
        os.mkfifo(fifo)
        reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
        self.addCleanup(os.close, reader)
        self.run_cli("compile", "add.cu", "-DADDEND=1", "-o", "fifo")
        self.assertTrue(stat.S_ISFIFO(fifo.lstat().st_mode))
        self.assertEqual(os.read(reader, 4), b"\x7fELF")
        self.assertIn("regular file", self.run_cli("export", "-o", "fifo", expect=FAILED).err)
        self.assertTrue(stat.S_ISFIFO(fifo.lstat().st_mode))

    def test_compile_error_shows_the_log_and_compiles_the_others(self):
        result = self.run_cli("compile", "broken.cu", "add.cu", "-DADDEND=1", expect=FAILED)
        self.assertIn('identifier "nowhere" is undefined', result.err)
        self.assertIn("broken.cu(1)", result.err)
        self.assertRegex(result.out, r"(?m)^broken +sm_100a +failed")
        self.assertRegex(result.out, r"(?m)^add +sm_100a +compiled")
        document = self.run_json("compile", "broken.cu", "add.cu", "-DADDEND=1", expect=FAILED)
        self.assertEqual((document["hits"], document["failed"]), (1, 1))
        self.assertIn("nowhere", document["modules"][0]["error"])
        self.assertIsNone(document["modules"][0]["key"])

    def test_warnings_are_shown(self):
        self.write("warn.cu", 'extern "C" __global__ void warn(int* x) { int unused_one; *x = 1; }\n')
        result = self.run_cli("compile", "warn.cu")
        self.assertIn("warning: warn for sm_100a: ", result.err)
        self.assertIn("unused_one", result.err)
        self.assertEqual(self.run_cli("compile", "warn.cu", "--quiet", "-DX").err, "")

    def test_offline_names_missing_modules(self):
        result = self.run_cli("compile", "add.cu", "-DADDEND=1", "--offline", expect=FAILED)
        self.assertIn("is not in the store", result.err)
        document = self.run_json("compile", "add.cu", "-DADDEND=1", expect=FAILED,
                                 env={"CUKILN_OFFLINE": "1"})  # fmt: skip
        self.assertEqual(document["modules"][0]["outcome"], "missing")
        self.compile("add.cu", "-DADDEND=1")
        self.assertEqual(self.run_json("compile", "add.cu", "-DADDEND=1", "--offline")["hits"], 1)

    def test_a_missing_compiler_is_an_error_of_the_environment(self):
        env = {"CUKILN_NVRTC_LIBRARY": str(self.folder / "libnvrtc.so")}
        result = self.run_cli("compile", "add.cu", "-DADDEND=1", expect=ENVIRONMENT, env=env)
        self.assertIn("libnvrtc.so", result.err)
        self.run_cli("compile", "add.cu", "-DADDEND=1", expect=ENVIRONMENT,
                     env={"CUKILN_WORKER": str(self.folder / "no-worker")})  # fmt: skip

    def test_a_family_stands_in_for_a_target_that_nvrtc_lacks(self):
        (module,) = self.compile("add.cu", "-DADDEND=1", "--arch", "sm_122a")
        self.assertEqual(module["target"], "sm_120f")
        (entry,) = self.run_json("ls")["entries"]
        self.assertEqual((entry["target"], entry["key"]), ("sm_120f", module["key"]))
        self.assertIn("--gpu-architecture=sm_120f", entry["flags"])
        explained = self.run_json("explain", "add.cu", "-DADDEND=1", "--arch", "sm_122a")
        self.assertEqual((explained["outcome"], explained["target"]), ("hit", "sm_120f"))
        self.assertEqual(explained["key"], module["key"])
        # Two targets that lead to one are one module.
        (again,) = self.compile("add.cu", "-DADDEND=1", "--arch", "sm_122a,sm_123a")
        self.assertEqual((again["outcome"], again["target"]), ("hit", "sm_120f"))

    def test_hits_of_a_family_need_no_compiler(self):
        self.compile("add.cu", "-DADDEND=1", "--arch", "sm_100f")
        env = {"CUKILN_NVRTC_LIBRARY": str(self.folder / "libnvrtc.so")}
        (module,) = self.compile("add.cu", "-DADDEND=1", "--arch", "sm_107a", env=env)
        self.assertEqual((module["outcome"], module["target"]), ("hit", "sm_100f"))

    def test_a_module_with_the_time_is_compiled_and_not_stored(self):
        self.write("when.cu", '__device__ const char* when = __TIME__;\n' + ADD)
        for _ in range(2):
            result = self.run_cli("compile", "when.cu", "-DADDEND=1")
            self.assertIn("not stored: uses __TIME__", result.err)
            self.assertRegex(result.out, "compiled")
        explained = self.run_cli("explain", "when.cu", "-DADDEND=1").out
        self.assertIn("never stored: uses __TIME__ (", explained)
        self.assertIn("when.cu)", explained)
        self.run_cli("compile", "when.cu", "-DADDEND=1", "-o", "when.cubin")
        self.assertEqual((self.folder / "when.cubin").read_bytes()[:4], b"\x7fELF")

    def test_control_characters_are_escaped(self):
        name = "esc\x1b[31m\u202ename.cu"
        self.write(name, BROKEN.replace("nowhere", "nowhere /* \x1b[2J */"))
        code, shown = self.run_on_terminal("compile", name, "--color", "never")
        self.assertEqual(code, FAILED)
        self.assertNotIn("\x1b[31m", shown)
        self.assertNotIn("\x1b[2J", shown)
        self.assertNotIn("\u202e", shown)
        self.assertIn(r"\x1b[31m\u202e", shown)

    def test_rows_fit_a_terminal(self):
        code, shown = self.run_on_terminal("compile", "scale.cu", "add.cu", "-DADDEND=1")
        self.assertEqual(code, DONE)
        plain = self.run_cli("compile", "scale.cu", "add.cu", "-DADDEND=1").out
        self.assertLessEqual(max(map(len, plain.splitlines())), 80)
        self.assertRegex(plain, r"(?m)^  scale +\d+ regs +256 B shared +no spills$")
        self.assertIn("2 modules: 2 hits in", plain)


    def test_an_unsupported_target_lists_the_supported_ones(self):
        result = self.run_cli("compile", "scale.cu", "--arch", "sm_999", expect=USAGE)
        self.assertRegex(result.err, r"does not support the target sm_999 nor its family \(sm_999f, sm_990f\); it supports sm_\d+, .*sm_100, ")

    def test_a_name_that_matches_nothing_lists_the_kernels(self):
        self.write("some.cu", 'extern "C" __global__ void one(int* x) {}\n' + TEMPLATE)
        result = self.run_cli("compile", "some.cu", "--name", "on", "--name", "fill", expect=FAILED)
        self.assertIn("No kernel fill, on in some.cu: it has one, fill<...>", result.err)

    def test_variables_are_listed_as_such(self):
        self.write("some.cu", '__constant__ int table[3];\nextern "C" __global__ void one(int* x) { *x = table[*x]; }\n')
        for _ in ("compiled", "hit"):
            result = self.run_cli("compile", "some.cu", "--name", "&table", "--name", "one")
            self.assertRegex(result.out, r"(?m)^  one +\d+ regs +0 B shared +no spills$")
            self.assertRegex(result.out, r"(?m)^  table +variable +12 B +constant$")
        (module,) = self.compile("some.cu", "--name", "table", "--name", "one")
        self.assertEqual([kernel["name"] for kernel in module["kernels"]], ["one"])
        table = {"name": "table", "lowered": "table", "size_bytes": 12, "is_constant": True}
        self.assertEqual(module["variables"], [table])
        document = self.run_json("show", module["key"])
        self.assertEqual(([k["name"] for k in document["kernels"]], document["variables"]), (["one"], [table]))
        self.assertRegex(self.run_cli("show", module["key"]).out, r"(?s)Variables.*table +12 B +constant +same")
        (entry,) = self.run_json("ls")["entries"]
        self.assertEqual(entry["variables"], [table])

    def test_an_empty_name_is_refused(self):
        result = self.run_cli("compile", "scale.cu", "--name", "", expect=USAGE)
        self.assertIn('module "scale" has an empty name among its names; expected the names', result.err)

    def test_a_module_without_kernels_is_reported(self):
        self.write("fill.cu", TEMPLATE)
        for _ in ("compiled", "hit"):
            result = self.run_cli("compile", "fill.cu")
            self.assertIn('warning: fill for sm_100a has no kernel: ', result.err)
            self.assertIn('such as "fill<float>" (names; --name)', result.err)
        self.write("none.cu", "__device__ int x;\n")
        self.write("guarded.cu", "#if 0\n" + SCALE + "#endif\n")
        for source in ("none.cu", "guarded.cu"):
            result = self.run_cli("compile", source, "--arch", "sm_90a")
            self.assertEqual(result.err, "")
            self.assertRegex(result.out, r"(?m)^  no kernel$")
        self.assertNotIn("no kernel", self.run_cli("compile", "scale.cu").out)
        self.assertEqual(self.run_cli("compile", "scale.cu", "--arch", "sm_90a").err, "")

    def test_missing_host_headers_are_reported_with_cudas(self):
        self.write("host.cu", "#include <regex>\n" + ADD)
        self.assertIn("CUDA has no <cuda/std/regex>", self.run_cli("compile", "host.cu", "-DADDEND=1", expect=FAILED).err)
        self.write("host.cu", "#include <array>\n" + ADD)
        failed = self.run_cli("compile", "host.cu", "-DADDEND=1", "--no-std-shims", expect=FAILED).err
        self.assertIn("std_shims is off: leave out --no-std-shims, or include <cuda/std/array>", failed)

    def test_headers_of_cccl_for_hosts_are_said_to_be_such(self):
        for header, named in (("thrust/sort.h", "thrust/sort.h"), ("cub/cub.cuh", "thrust/system/cuda/")):
            self.write("umbrella.cu", f'#include <{header}>\nextern "C" __global__ void k(int* x) {{ *x = 1; }}\n')
            shown = self.run_cli("compile", "umbrella.cu", "--arch", "sm_90a", expect=FAILED).err
            self.assertIn(f"It includes a header of CCCL that is for hosts: {named}", shown)
            self.assertIn("<cub/block/block_reduce.cuh>", shown)

    def test_a_mangled_name_is_shown_demangled(self):
        self.write("cpp.cu", "__global__ void twice(float* x) { *x *= 2; }\n")
        self.assertRegex(self.run_cli("compile", "cpp.cu").out, r"(?m)^  twice\(float\*\) +\d+ regs")
        self.assertEqual(self.compile("cpp.cu")[0]["kernels"][0]["name"], "_Z5twicePf")


@unittest.skipUnless(shutil.which("unshare"), "hiding the headers of this machine needs unshare")
class OneWheel(CliTest):
    """NVRTC alone, without a header of CUDA's on the machine."""

    KERNEL = """#include <cuda_runtime.h>
#include <cuda_fp16.h>
#include <cub/block/block_reduce.cuh>
extern "C" __global__ void k(float* p) { *p = __half2float(__float2half(1.0f)); }
"""

    def setUp(self):
        super().setUp()
        self.write("halves.cu", self.KERNEL)
        library = REPOSITORY / ".cukiln-cuda-tested/13.5/nvidia/cu13/lib"
        (self.folder / "alone/lib").mkdir(parents=True)
        for path in library.glob("libnvrtc*.so.*"):
            (self.folder / "alone/lib" / path.name).symlink_to(path.resolve())
        (self.folder / "empty").mkdir()

    def run_alone(self, script, size="100m"):
        """Runs a script where no header is to be found, with a store on a disk of `size`."""
        disk = self.folder / "disk"
        disk.mkdir(exist_ok=True)
        toolkits = {path.resolve() for path in (REPOSITORY / ".cukiln-cuda", *Path("/usr/local").glob("cuda*"))}
        mounts = "".join(f"mount --bind {self.folder}/empty {folder} || exit 99; " for folder in toolkits)
        mounts += f"mount -t tmpfs -o size={size},mode=700 tmpfs {disk} || exit 99; "
        done = subprocess.run(
            ["unshare", "-rm", "sh", "-c", mounts + script], cwd=self.folder, capture_output=True, text=True,
            env=self.environment | {"CUKILN_STORE": str(disk / "store"),
                                    "CUKILN_NVRTC_LIBRARY": str(self.folder / "alone/lib/libnvrtc.so.13")},
            timeout=120)  # fmt: skip
        if done.returncode == 99:
            self.skipTest(f"nothing could be mounted: {done.stderr}")
        return done

    def test_headers_of_the_nvrtc_are_installed_once(self):
        done = self.run_alone(f"{CUKILN} doctor; {CUKILN} compile halves.cu && "
                              f"{CUKILN} compile halves.cu && ls {self.folder}/disk/store/v6/headers")
        self.assertEqual(done.returncode, DONE, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"headers +ok +those that NVRTC 13\.5\.\d+ carries")
        self.assertRegex(done.stdout, r"(?s)compiled.*hit")
        self.assertRegex(done.stdout, r"(?m)^install\.lock\nnvrtc-13\.5\.\d+-[0-9a-f]{16}$")

    def test_a_disk_that_is_too_small_for_them_is_named(self):
        """fault 172"""
        done = self.run_alone(f"{CUKILN} compile add.cu -DADDEND=1 && {CUKILN} compile halves.cu", "16m")
        self.assertEqual(done.returncode, FAILED, done.stdout + done.stderr)
        self.assertIn("1 compiled", done.stdout)
        self.assertIn("the headers that NVRTC carries cannot be installed in", done.stderr)
        self.assertIn("CUDA's headers were not found, and the headers that NVRTC carries", done.stderr)


class Explain(CliTest):
    scale = ("scale.cu", "--arch", "sm_90a")

    def test_a_manifest(self):
        self.one_key(*self.scale)
        self.write("made/m.json", json.dumps({"format": 1, "modules": [
            {"name": "scaling", "sources": ["../scale.cu"], "targets": ["sm_90a"]},
            {"name": "add", "sources": ["../add.cu"], "define": {"ADDEND": 1}, "targets": ["sm_90a"]}]}))  # fmt: skip
        answers = self.run_json("explain", "made/m.json")["explanations"]
        self.assertEqual([a["outcome"] for a in answers], ["hit", "miss"])
        self.assertRegex(answers[0]["subject"], r"^scaling \(made/../scale.cu|scale.cu\) for sm_90a$")
        answers = self.run_json("explain", "made/m.json", "--arch", "sm_100a")["explanations"]
        self.assertEqual([(a["outcome"], a["subject"][-11:]) for a in answers], [("miss", "for sm_100a")] * 2)
        text = self.run_cli("explain", "made/m.json", "scale.cu", "--arch", "sm_90a").out
        self.assertEqual(text.count(": hit"), 2)
        self.assertIn("there is no source", self.run_cli("explain", "none.cu", "made/m.json", expect=USAGE).err)

    def test_never_compiled(self):
        document = self.run_json("explain", *self.scale)
        self.assertEqual((document["outcome"], document["key"], document["nearest"]), ("miss", None, None))
        self.assertIn("nothing of this module was stored here", self.run_cli("explain", *self.scale).out)

    def test_hit(self):
        key = self.one_key(*self.scale)
        document = self.run_json("explain", *self.scale)
        self.assertEqual((document["outcome"], document["key"]), ("hit", key))
        self.assertEqual(document["differences"], [])
        self.assertRegex(self.run_cli("explain", *self.scale).out, rf": hit\n.*{key[:12]}")

    def test_changed_header_is_named_with_both_digests(self):
        key = self.one_key(*self.scale)
        self.write("tile.cuh", "#define TILE 32\n")
        document = self.run_json("explain", *self.scale)
        self.assertEqual((document["outcome"], document["nearest"]), ("miss", key))
        (difference,) = document["differences"]
        self.assertEqual(difference["field"], "header changed")
        self.assertRegex(difference["was"], r"tile\.cuh [0-9a-f]{12}$")
        self.assertNotEqual(difference["was"], difference["now"])
        text = self.run_cli("explain", *self.scale).out
        self.assertRegex(text, r"(?m)^header changed\n- .*tile\.cuh \w+\n\+ .*tile\.cuh \w+$")
        (module,) = self.compile(*self.scale)
        self.assertEqual(module["reason"][:15], "header changed:")
        self.write("tile.cuh", "#define TILE 16\n")  # both differ alike: the last one counts
        self.assertEqual(self.run_json("explain", *self.scale)["nearest"], module["key"])

    def test_flags_targets_and_sources_are_named(self):
        self.one_key(*self.scale)
        document = self.run_json("explain", "scale.cu", "--arch", "sm_100a", "--use_fast_math")
        fields = {d["field"]: (d["was"], d["now"]) for d in document["differences"]}
        self.assertEqual(fields["target"], ("sm_90a", "sm_100a"))
        self.assertEqual(fields["flag"], ("", "--use_fast_math"))
        self.write("scale.cu", SCALE + "// edited\n")
        (difference,) = self.run_json("explain", *self.scale)["differences"]
        self.assertEqual(difference["field"], "source")

    def test_an_entry_of_another_module_counts_only_with_the_same_text(self):
        key = self.one_key(*self.scale)
        self.assertEqual(self.run_json("explain", "add.cu", "--arch", "sm_90a")["nearest"], None)
        self.write("renamed.cu", SCALE)
        self.assertEqual(self.run_json("explain", "renamed.cu", "--arch", "sm_90a")["nearest"], key)

    def test_all_options_of_compile_are_accepted(self):
        line = ("add.cu", "-DADDEND=1", "--arch", "sm_90a", "-j", "2", "-o", "add.cubin", "--offline", "-O3", "--pch")
        self.assertEqual(self.run_json("explain", *line)["outcome"], "miss")
        self.one_key()
        self.assertEqual(self.run_json("explain", *line)["outcome"], "hit")
        self.assertFalse((self.folder / "add.cubin").exists())

    def test_two_keys(self):
        a = self.one_key(*self.scale)
        b = self.one_key(*self.scale, "-DX=1")
        document = self.run_json("explain", a[:8], b[:8])
        self.assertEqual([d["field"] for d in document["differences"]], ["flag"])
        text = self.run_cli("explain", a, b).out
        self.assertRegex(text, rf"--- {a[:12]}.*\n\+\+\+ {b[:12]}")
        self.assertIn("same entry", self.run_cli("explain", a, a).out)
        self.run_cli("explain", a, "0000000000", expect=FAILED)
        self.run_cli("show", a)
        hits = {e["key"]: e["hits"] for e in self.run_json("ls")["entries"]}
        self.assertEqual(hits, {a: 0, b: 0}, "neither counts as a use")


class Show(CliTest):
    def setUp(self):
        super().setUp()
        self.key = self.one_key("scale.cu", "--arch", "sm_90a", "-DX=1", "--name", "scale", "-O3")

    def test_json_has_everything(self):
        document = self.run_json("show", self.key[:6].upper())
        self.assertEqual((document["key"], document["name"], document["target"]), (self.key, "scale", "sm_90a"))
        self.assertEqual([d["path"] for d in document["dependencies"]], ["/cukiln/src/tile.cuh"])
        request = document["request"]
        self.assertIn("--define-macro=X=1", request["arguments"])
        self.assertEqual(request["names"], ["scale"])
        self.assertEqual(request["sources"][0]["path"], "/cukiln/src/scale.cu")
        self.assertEqual(request["sources"][0]["size_bytes"], len(SCALE))
        self.assertRegex(request["compiler"]["version"], r"^\d+\.\d+\.\d+$")
        self.assertTrue(document["portable"])
        self.assertEqual(document["dropped_flags"], "-O3")
        self.assertLess(abs(document["created"] - time.time()), 300)

    def test_by_name_and_target(self):
        self.assertEqual(self.run_json("show", "scale")["key"], self.key)
        other = self.one_key("scale.cu", "--arch", "sm_100a")
        several = self.run_cli("show", "scale", expect=USAGE).err
        self.assertIn('several of the 2 entries of "scale" match: give a key, or --arch', several)
        self.assertIn(f"{other[:12]}  scale for sm_100a", several)
        self.assertEqual(self.run_json("show", "scale", "--arch", "sm_100a")["key"], other)
        self.one_key("scale.cu", "--arch", "sm_100a", "-DX=2")
        alike = self.run_cli("show", "scale", "--arch", "sm_100a", expect=USAGE).err
        self.assertIn("match: give a key\n", alike)
        self.assertRegex(alike, r"scale for sm_100a, stored 2.*--define-macro=X=2")
        self.assertIn('did you mean "scale"?', self.run_cli("show", "scales", expect=USAGE).err)
        self.run_cli("show", "scale", "--arch", "sm_80", expect=USAGE)

    def test_text_has_a_section_for_each(self):
        text = self.run_cli("show", self.key).out
        for section in ("Inputs", "Dependencies", "Kernels", "History", "Log"):
            self.assertRegex(text, rf"(?m)^{section}\b")
        self.assertIn(self.key, text)
        self.assertLessEqual(max(map(len, text.splitlines())), 80)

    def test_source_is_the_exact_text(self):
        self.assertEqual(self.run_cli("show", self.key, "--source", binary=True).out, SCALE.encode())
        self.assertEqual(self.run_json("show", self.key, "--source")["source_text"], SCALE)

    def test_source_is_escaped_on_a_terminal(self):
        self.write("esc.cu", "// \x1b[31m\n" + ADD)
        key = self.one_key("esc.cu", "-DADDEND=1")
        self.assertIn(b"\x1b[31m", self.run_cli("show", key, "--source", binary=True).out)
        _, shown = self.run_on_terminal("show", key, "--source")
        self.assertNotIn("\x1b[31m", shown)

    def test_cubin(self):
        self.assertEqual(self.run_cli("show", self.key, "--cubin", binary=True).out[:4], b"\x7fELF")
        self.run_cli("show", self.key, "--cubin", "-o", "out.cubin")
        self.assertEqual((self.folder / "out.cubin").read_bytes()[:4], b"\x7fELF")
        self.run_cli("show", self.key, "--cubin", "--json", expect=USAGE)
        code, shown = self.run_on_terminal("show", self.key, "--cubin")
        self.assertEqual(code, USAGE)
        self.assertIn("-o F", shown)

    def test_sass_through_a_program_in_path(self):
        tool = self.write("tools/nvdisasm", '#!/bin/sh\nwc -c < "$2"\n')
        tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
        bytes_in = self.run_json("ls")["entries"][0]["cubin_bytes"]
        path = f"{tool.parent}:{os.environ['PATH']}"
        result = self.run_cli("show", self.key, "--sass", env={"PATH": path})
        self.assertEqual(int(result.out), bytes_in)

    def test_sass_names_the_missing_tool(self):
        result = self.run_cli("show", self.key, "--sass", expect=ENVIRONMENT, env={"PATH": "/nowhere"})
        self.assertIn("nvdisasm", result.err)

    def test_ptx_is_compiled_again(self):
        key = self.one_key("add.cu", "--arch", "sm_90a", "-DADDEND=7")
        ptx = self.run_cli("show", key, "--ptx").out
        self.assertIn(".target sm_90a", ptx)
        self.assertIn("add", ptx)

    def test_ptx_names_the_missing_header(self):
        result = self.run_cli("show", self.key, "--ptx", expect=ENVIRONMENT)
        self.assertIn("tile.cuh", result.err)


if __name__ == "__main__":
    unittest.main()
