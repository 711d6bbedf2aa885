# SPDX-License-Identifier: Apache-2.0
"""What the tests of the command line share: a user with a home of their own, and kernels to compile."""

import fcntl
import json
import os
import pty
import shutil
import struct
import subprocess
import tempfile
import termios
import unittest
from pathlib import Path

BINARIES = Path(os.environ["CUKILN_TEST_BINARY_DIR"])
CUKILN = str(BINARIES / "cukiln")
FAKE_DRIVER = str(BINARIES / "libcuda_fake.so")

DONE, FAILED, USAGE, ENVIRONMENT, STORE = range(5)

# Of LeakSanitizer, about itself: GCC 12's crashes now and then as it looks at a thread that is just ending, after all
# that the command had to do, and replaces the exit code by its own.
LEAK_SANITIZER_FAILED = "LeakSanitizer has encountered a fatal error"

SCALE = """#include "tile.cuh"
extern "C" __global__ void scale(float* x, float f) {
  __shared__ float tile[TILE];
  tile[threadIdx.x % TILE] = f;
  x[threadIdx.x] *= tile[threadIdx.x % TILE];
}
extern "C" __global__ void shift(float* x) { x[threadIdx.x] += 1; }
"""
ADD = 'extern "C" __global__ void add(float* x) { x[threadIdx.x] += ADDEND; }\n'
TEMPLATE = "template <class T, int n> __global__ void fill(T* x) { x[threadIdx.x] = n; }\n"
BROKEN = 'extern "C" __global__ void broken(float* x) { *x = nowhere; }\n'


class Result:
    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    def json(self):
        return json.loads(self.out)


class CliTest(unittest.TestCase):
    """Every test has a scratch folder as its working folder, home and store."""

    maxDiff = None

    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="cukiln-cli-"))
        self.addCleanup(self.remove_folder)
        self.store = self.folder / "store"
        self.environment = {name: value for name, value in os.environ.items()
                            if not name.startswith("CUKILN_") or name in ("CUKILN_NVRTC_LIBRARY", "CUKILN_INCLUDE_PATH")}
        self.environment |= {"TERM": "xterm", "NO_COLOR": "", "HOME": str(self.folder), "XDG_CACHE_HOME": str(self.folder / "cache"),
                             "XDG_CONFIG_HOME": str(self.folder / "config"),
                             "XDG_RUNTIME_DIR": str(self.folder / "run"), "TMPDIR": str(self.folder),
                             "CUKILN_STORE": str(self.store), "CUKILN_SYSTEM_STORE": str(self.folder / "system"),
                             "CUKILN_CUDA_LIBRARY": str(self.folder / "no-driver.so")}
        self.write("scale.cu", SCALE)
        self.write("tile.cuh", "#define TILE 64\n")
        self.write("add.cu", ADD)
        self.write("broken.cu", BROKEN)

    def remove_folder(self):
        for path in [self.folder, *self.folder.rglob("*")]:
            if path.is_dir() and not path.is_symlink():
                path.chmod(0o700)
        shutil.rmtree(self.folder)

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text) if isinstance(text, str) else path.write_bytes(text)
        return path

    def put_blob(self, kind, key, value):
        """As an adapter of another compiler does."""
        done = subprocess.run(
            [BINARIES / "store_worker", self.store, "blob", f"kind={kind}", f"key={key}", f"value={value}"],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)  # fmt: skip
        self.assertIn("stored\n", done.stdout, done.stderr)

    def run_cli(self, *arguments, expect=DONE, env=None, binary=False, stdout=subprocess.PIPE):
        done = subprocess.run([CUKILN, *map(str, arguments)], cwd=self.folder, env=self.environment | (env or {}),
                              stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.PIPE, timeout=120)  # fmt: skip
        err = done.stderr.decode(errors="replace")
        out = done.stdout if binary or done.stdout is None else done.stdout.decode()
        if expect is not None and LEAK_SANITIZER_FAILED not in err:
            self.assertEqual(done.returncode, expect, f"cukiln {arguments}\n{out}\n{err}")
        return Result(done.returncode, out, err)

    def run_json(self, *arguments, **options):
        """Exactly one document on stdout."""
        return self.run_cli("--json", *arguments, **options).json()

    def run_on_terminal(self, *arguments, columns=80, env=None):
        """Everything that came to a terminal of this width, and the exit code."""
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        process = subprocess.Popen(
            [CUKILN, *map(str, arguments)], cwd=self.folder, env=self.environment | (env or {}),
            stdin=subprocess.DEVNULL, stdout=slave, stderr=slave, start_new_session=True,
        )  # fmt: skip
        os.close(slave)
        shown = b""
        while True:
            try:
                part = os.read(master, 65536)
            except OSError:  # the other end is closed
                break
            if not part:
                break
            shown += part
        os.close(master)
        return process.wait(timeout=120), shown.decode().replace("\r\n", "\n")

    def compile(self, *arguments, **options):
        """The modules of a compile that works."""
        return self.run_json("compile", *arguments, **options)["modules"]

    def one_key(self, *arguments):
        (module,) = self.compile(*(arguments or ("add.cu", "-DADDEND=1", "--arch", "sm_90a")))
        return module["key"]
