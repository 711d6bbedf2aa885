# SPDX-License-Identifier: Apache-2.0
"""show --html: one file that loads nothing, with source beside PTX and SASS, in a browser."""

import json
import os
import platform
import random
import re
import subprocess
import sys
import unittest
from pathlib import Path

from cli import DONE, ENVIRONMENT, USAGE, CliTest

sys.path.insert(0, str(Path(__file__).parents[1] / "addons" / "daemon"))
from chromium import PROGRAM, Chromium  # noqa: E402

REPOSITORY = Path(__file__).parents[2]
HOSTILE = "</script><img src=x onerror=document.title='owned'><!--<script>"
KERNEL = """#include "near.cuh"
extern "C" __global__ void __launch_bounds__(96) k(float* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    x[i] = x[i] / 3.0f;
    near(x);
  }
}
"""
NEAR = "__device__ inline void near(float* x) {\n  atomicAdd(x + 1, 1.0f);\n}\n"
# As nvdisasm prints lines of code that is inlined.
SASS = """#!/bin/sh
printf '%s\\n' '.text.k:' '	//## File "/cukiln/src/k.cu", line 5' '        /*0000*/                   FMUL R1, R2, R3 ;' \\
  '	//## File "/cukiln/src/near.cuh", line 2 inlined at "/cukiln/src/k.cu", line 6' '	//## File "/cukiln/src/k.cu", line 6' \\
  '        /*0010*/               @P0 RED.E.ADD R1, R2 ;' '        /*0020*/                   MOV R1, R2 ;' \\
  '	.section	.text.other' '        /*0000*/                   NOP ;'
"""
TOOLS = [folder for folder in (".cukiln-cutlass/nvidia/cu13/bin", ".cukiln-nvrtc-packages/triton/backends/nvidia/bin")
         if (REPOSITORY / folder / "nvdisasm").exists()]  # fmt: skip
MARKED = "[...document.querySelectorAll('.lines[data-kind={}] .hot')].map((e) => e.lastChild.textContent.trim())"
OCCUPANCY = """#include <stdio.h>
#include <string.h>
#include <cuda_occupancy.h>
int main(void) {
  int major, minor, warps, shared, reserved, registers, bytes, threads, dynamic;
  while (scanf("%d %d %d %d %d %d %d %d %d", &major, &minor, &warps, &shared, &reserved, &registers, &bytes, &threads, &dynamic) == 9) {
    struct cudaOccDeviceProp device;
    struct cudaOccFuncAttributes kernel;
    struct cudaOccDeviceState state;
    cudaOccResult result;
    int blocks = 0;
    memset(&device, 0, sizeof device);
    memset(&kernel, 0, sizeof kernel);
    memset(&state, 0, sizeof state);
    device.computeMajor = major;
    device.computeMinor = minor;
    device.maxThreadsPerBlock = 1024;
    device.maxThreadsPerMultiprocessor = warps * 32;
    device.regsPerBlock = device.regsPerMultiprocessor = 65536;
    device.warpSize = 32;
    device.sharedMemPerBlock = 49152;
    device.sharedMemPerMultiprocessor = shared;
    device.sharedMemPerBlockOptin = shared - reserved;
    device.reservedSharedMemPerBlock = reserved;
    device.numSms = 1;
    kernel.maxThreadsPerBlock = 1024;
    kernel.numRegs = registers;
    kernel.sharedSizeBytes = bytes;
    kernel.partitionedGCConfig = PARTITIONED_GC_OFF;
    kernel.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
    kernel.maxDynamicSharedSizeBytes = dynamic;
    state.carveoutConfig = SHAREDMEM_CARVEOUT_MAX_SHARED;
    cudaOccMaxBlocksPerMultiprocessor(&blocks, &device);
    if (cudaOccMaxActiveBlocksPerMultiprocessor(&result, &device, &kernel, &state, threads, dynamic) != CUDA_OCC_SUCCESS) return 1;
    printf("%d %d\\n", blocks, result.activeBlocksPerMultiprocessor);
  }
  return 0;
}
"""


class Html(CliTest):
    @classmethod
    def setUpClass(cls):
        cls.browser = Chromium()
        cls.addClassCleanup(cls.browser.__exit__)

    def setUp(self):
        super().setUp()
        self.write("k.cu", KERNEL)
        self.write("near.cuh", NEAR)
        self.write("tools/nvdisasm", SASS).chmod(0o755)
        self.environment["PATH"] = f"{self.folder}/tools:{os.environ['PATH']}"

    def compile_kernel(self, *arguments):
        return self.one_key("k.cu", "--arch", "sm_90a", *arguments)

    def page(self, key, *arguments):
        self.run_cli("show", "--html", key, "-o", "page.html", *arguments)
        text = (self.folder / "page.html").read_text()
        self.assertNotRegex(text, r"(?i)\b(?:src|href|action)\s*=\s*[\"']?(?!x onerror)|url\(|@import")
        self.browser.complaints.clear()
        self.browser.events.clear()
        self.browser.open("about:blank")
        self.browser.open((self.folder / "page.html").as_uri())
        self.assertTrue(self.browser.wait_for("document.querySelector('main') !== null"))
        return text

    def tearDown(self):
        self.assertEqual(self.browser.complaints, [])
        elsewhere = [one["url"] for one in self.browser.events if not one["url"].endswith(("/page.html", "about:blank"))]
        self.assertEqual(elsewhere, [])

    def text(self, selector="main"):
        return self.browser.evaluate(f"document.querySelector({selector!r}).innerText")

    def marked(self, kind):
        return self.browser.evaluate(MARKED.format(kind))

    def click_line(self, kind, part):
        self.browser.evaluate(f"""[...document.querySelectorAll('.lines[data-kind={kind}] > div')]
          .find((e) => e.textContent.includes({json.dumps(part)})).click()""")

    def test_a_source_line_marks_what_it_became_and_back(self):
        self.page(self.compile_kernel("--flag", "-lineinfo"), "-I", ".")
        self.click_line("source", "x[i] / 3.0f")
        self.assertEqual(self.marked("sass"), ["/*0000*/        FMUL R1, R2, R3 ;"])
        self.assertTrue(any(line.startswith("div.rn.f32") for line in self.marked("ptx")), self.marked("ptx"))
        self.assertFalse(any(line.startswith(("atom", "red")) for line in self.marked("ptx")))
        self.assertIn("Line 5: ", self.text("output"))
        self.click_line("source", "near(x);")  # inlined: its header's lines too
        self.assertEqual(self.marked("sass"), ["/*0010*/    @P0 RED.E.ADD R1, R2 ;", "/*0020*/        MOV R1, R2 ;"])
        self.assertTrue(any(line.startswith(("atom", "red")) for line in self.marked("ptx")), self.marked("ptx"))
        self.click_line("source", "atomicAdd(x + 1")
        self.assertEqual(len(self.marked("sass")), 2)
        self.click_line("sass", "MOV R1, R2")
        self.assertEqual(self.marked("source"), ["near(x);", "atomicAdd(x + 1, 1.0f);"])
        self.browser.evaluate("document.querySelector('.lines[data-kind=source]').focus()")
        self.browser.press("ArrowDown", 40)
        self.assertEqual(len(self.marked("source")), 1)
        self.browser.press("Escape", 27)
        self.assertEqual(self.marked("source"), [])

    @unittest.skipUnless(TOOLS, "no nvdisasm is here")
    def test_the_lines_of_the_real_disassembler(self):
        self.environment["PATH"] = f"{REPOSITORY / TOOLS[0]}:{os.environ['PATH']}"
        self.page(self.compile_kernel("--flag", "-lineinfo"), "-I", ".")
        self.click_line("source", "atomicAdd(x + 1")
        self.assertTrue(any(re.search("RED|ATOM", line) for line in self.marked("sass")), self.marked("sass"))
        self.click_line("source", "x[i] / 3.0f")
        self.assertTrue(any("FFMA" in line for line in self.marked("sass")), self.marked("sass"))
        self.assertFalse(any(re.search("RED|ATOM", line) for line in self.marked("sass")), self.marked("sass"))

    def test_without_line_tables_headers_and_disassembler_it_says_what_to_do(self):
        key = self.compile_kernel()
        self.write("tools/nvdisasm", "#!/bin/sh\necho '        /*0000*/                   EXIT ;'\n")
        self.page(key, "-I", ".")
        self.assertIn("compile the module with -lineinfo", self.text())
        self.environment["PATH"] = "/nowhere"
        self.page(key)
        self.assertIn("/cukiln/src/near.cuh has changed or is missing; name the source's folder, and those of its compile, with -I",
                      self.text())  # fmt: skip
        self.assertIn("neither nvdisasm nor cuobjdump is in PATH", self.text())
        self.assertIn("the page is without PTX: the store has cubins, not PTX", self.run_cli("show", key, "--html", "-o", "p.html").err)
        self.assertIn("x[i] / 3.0f", self.text())
        self.write("near.cuh", NEAR + "// edited\n")
        self.page(key, "-I", ".")
        self.assertIn("/cukiln/src/near.cuh has changed or is missing", self.text())
        self.write("near.cuh", NEAR)
        self.environment["CUKILN_NVRTC_LIBRARY"] = str(self.folder / "none.so")
        self.page(key, "-I", ".")
        self.assertIn("none.so", self.text())

    def test_without_the_text_of_a_source_the_page_names_its_digest(self):
        key = self.compile_kernel()
        digest = self.run_json("show", key)["request"]["sources"][0]["digest"]
        (database,) = self.store.glob("**/store.db")
        subprocess.run([sys.executable, "-c", "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); "
                        "c.execute(\"UPDATE payload SET source_text=x''\"); c.commit()", database], check=True)  # fmt: skip
        self.page(key, "-I", ".")
        self.assertIn(f"the store has this entry without the text of /cukiln/src/k.cu; the file that was compiled has the digest {digest}",
                      self.text())  # fmt: skip

    def test_what_others_wrote_is_text(self):  # fault 357
        self.write("near.cuh", f"// {HOSTILE}\n{NEAR}")
        self.write("k.cu", f"// {HOSTILE} \x1b[31m \u202e\n#warning {HOSTILE} \u202e\n{KERNEL}// ".encode() + b"\xff\n")
        self.write("m.json", json.dumps({"format": 1, "modules": [
            {"name": HOSTILE + "\u202e", "sources": ["k.cu"], "define": {"X": f'"{HOSTILE}"'}, "flags": ["-lineinfo"], "targets": ["sm_90a"]}]}))  # fmt: skip
        self.run_cli("preload", "m.json", "--no-load")
        entry = self.run_json("ls")["entries"][0]
        text = self.page(entry["key"], "-I", ".")
        self.assertEqual(text.count("<script"), 2)
        self.assertEqual(text.count("</script"), 2)
        self.assertNotIn("<!--", text)
        self.assertEqual(self.browser.evaluate("document.images.length"), 0)
        self.assertEqual(self.browser.evaluate("document.title"), f"{HOSTILE}␣ for sm_90a")
        for part in ("h1", "main"):
            self.assertIn(HOSTILE, self.text(part))
        self.assertNotRegex(self.text(), "[\x1b\u202e]")
        self.browser.evaluate(  # and if it were not, it could not run
            "document.body.insertAdjacentHTML('beforeend', '<img src=\"data:,\" onerror=\"document.title=1\">')")
        self.assertTrue(self.browser.wait_for("document.images.length > 0"))
        self.assertTrue(any("Content Security Policy" in one for one in self.browser.complaints))
        self.assertNotEqual(self.browser.evaluate("document.title"), "1")
        self.browser.complaints.clear()
        self.browser.events.clear()

    def test_occupancy_is_what_nvidia_computes(self):
        self.page(self.compile_kernel())
        self.assertIn("at most 96 threads", self.text())
        self.assertEqual(self.browser.evaluate("document.getElementById('threads').value"), "96")
        self.assertRegex(self.text(), r"9\.0\s+21 of 32\s+63 of 64\s+98 %\s+warps")
        enter = lambda name, value: self.browser.evaluate(
            f"(() => {{ const i = document.getElementById('{name}'); i.value = {value}; i.dispatchEvent(new Event('input')); }})()")
        enter("threads", 1000)  # no more than the kernel takes
        self.assertRegex(self.text(), r"9\.0\s+21 of 32\s+63 of 64")
        enter("dynamic", 100000)
        self.assertRegex(self.text(), r"9\.0\s+2 of 32\s+6 of 64\s+9 %\s+shared memory")
        self.write("block.cu", 'extern "C" __global__ void __block_size__((32, 4, 2)) k(int* x) { *x = 1; }\n')
        self.page(self.one_key("block.cu", "--arch", "sm_90a"))
        self.assertIn("at most 256 threads", self.text())
        headers = REPOSITORY / ".cukiln-cuda/nvidia/cu13/include"
        if not (headers / "cuda_occupancy.h").exists():
            self.skipTest("no cuda_occupancy.h is here")
        self.write("occupancy.c", OCCUPANCY)
        subprocess.run(["cc", "-I", headers, "-o", "occupancy", "occupancy.c"], cwd=self.folder, check=True)
        limits = []
        for target in ("sm_75", "sm_80", "sm_90", "sm_100", "sm_110", "sm_120"):
            key = self.one_key("add.cu", "-DADDEND=1", "--arch", target)
            self.page(key)
            limits += self.browser.evaluate("data.limits")
        self.assertEqual([one["capability"] for one in limits],
                         ["7.5", "8.0", "8.6", "8.7", "8.9", "9.0", "10.0", "10.3", "11.0", "12.0", "12.1"])  # fmt: skip
        chance = random.Random(5)
        cases = []
        for one in limits:
            for _ in range(200):
                most = one["shared_bytes"] - one["reserved_bytes"]
                shared = min(chance.choice((0, 0, chance.randrange(49152))), most)
                cases.append((one, chance.randrange(1, 256), shared, chance.randrange(1, 1025),
                              chance.choice((0, chance.randrange(most - shared + 1)))))  # fmt: skip
        asked = "".join(f"{one['capability'].replace('.', ' ')} {one['warps']} {one['shared_bytes']} {one['reserved_bytes']} "
                        f"{registers} {shared} {threads} {dynamic}\n" for one, registers, shared, threads, dynamic in cases)  # fmt: skip
        done = subprocess.run([self.folder / "occupancy"], input=asked, capture_output=True, text=True, check=True)
        expected = [tuple(map(int, line.split())) for line in done.stdout.splitlines()]
        own = self.browser.evaluate(
            f"{json.dumps(cases)}.map(([l, r, s, t, d]) => [l.blocks, occupancy(l, {{registers: r, shared_bytes: s}}, t, d).blocks])")
        self.assertEqual(len(own), len(expected))
        for case, mine, theirs in zip(cases, own, expected, strict=True):
            self.assertEqual(tuple(mine), theirs, case)

    def test_it_fits_400_pixels_and_can_be_read_in_light_and_dark(self):
        self.page(self.compile_kernel("--flag", "-lineinfo"), "-I", ".")
        self.click_line("source", "near(x);")
        self.addCleanup(self.browser.call, "Emulation.clearDeviceMetricsOverride")
        self.addCleanup(self.browser.prefer, "light")
        for width in (1280, 400):
            self.browser.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
            self.assertTrue(self.browser.wait_for(f"innerWidth == {width}"))
            self.assertTrue(self.browser.evaluate("document.documentElement.scrollWidth <= innerWidth"), width)
            out = """[...document.querySelectorAll('td, h1, p, dd, input, select')]
              .filter((e) => e.getBoundingClientRect().right > document.documentElement.clientWidth).map((e) => e.textContent)"""
            self.assertEqual(self.browser.evaluate(out), [], width)
            for scheme in ("light", "dark"):
                self.browser.prefer(scheme)
                for pair, ratio in self.browser.contrasts("text quiet accent bad", "back card soft").items():
                    self.assertGreaterEqual(ratio, 4.5, (scheme, pair))
                if folder := os.environ.get("CUKILN_SCREENSHOTS"):
                    self.browser.screenshot(f"{folder}/entry-{width}-{scheme}.png")

    def test_the_file_and_what_is_printed(self):
        key = self.compile_kernel()
        first = self.page(key, "-I", ".")
        self.assertRegex(first, "script-src 'nonce-[0-9a-f]{64}'")  # which no text in the page can know
        self.assertEqual(self.run_cli("show", key, "--html", "-I", ".").out, first)
        printed = self.run_json("show", key, "--html", "-I", ".", "-o", "page.html")  # as --cubin: replaced
        self.assertEqual(printed, {"key": key, "output": "page.html", "size_bytes": len(first.encode())})
        self.assertNotIn("html", self.run_json("show", key))
        self.assertIn("-o F", self.run_cli("--json", "show", key, "--html", expect=USAGE).out)
        self.run_cli("show", key, "--html", "--sass", expect=USAGE)
        self.run_cli("show", key, "--source", "-I", ".", expect=USAGE)
        self.run_cli("show", key, "--html", "-o", "nowhere/page.html", expect=USAGE)
        self.run_cli("show", key, "--ptx", expect=ENVIRONMENT)
        self.assertIn(".target sm_90a", self.run_cli("show", key, "--ptx", "-I", ".", expect=DONE).out)


if __name__ == "__main__":
    if PROGRAM is None:
        print("There is no Chromium here. On Debian scripts/bootstrap --all-tests installs it; see daemon.ops_page.")
        sys.exit(77 if platform.freedesktop_os_release()["ID"] == "ubuntu" else 1)  # 77: ctest counts it as skipped
    unittest.main()
