# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's sampling functions as a rival: compiled where there is time, carried, and loaded beside PyTorch.

A folder has FlashInfer's Python modules that sampling takes, what they import and PyTorch does not bring, and FlashInfer's two
compiled modules, `sampling.so` and `topk.so` (flashinfer_topk.cpp), which its just-in-time compiler made from its own sources.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import types
from pathlib import Path

VERSION = "0.7.2"
ARCHITECTURE = "9.0a"
PYTHON = "3.12"  # of the machine with the GPU
PARTS = ("*.py", "jit/**/*.py", "trace/**/*.py")  # of the package; the rest is another 500 MB
MODULES = ("sampling", "topk")
NEEDED = ("apache-tvm-ffi", "nvidia-ml-py", "packaging", "requests", "tqdm")  # to import it, beside PyTorch
TO_COMPILE = ("ninja", "nvidia-curand==10.4.0.35")


def import_package(packages: Path) -> types.ModuleType:
    """flashinfer.sampling, without the rest of the package, whose __init__ imports all there is."""
    package = types.ModuleType("flashinfer")
    package.__path__ = [str(packages / "flashinfer")]
    package.__spec__ = importlib.util.spec_from_loader("flashinfer", None, is_package=True)
    sys.modules["flashinfer"] = package
    sys.path.append(str(packages))
    import flashinfer.sampling
    import flashinfer.topk  # noqa: F401: it is imported later otherwise, while a graph is recorded

    return flashinfer.sampling


class Part:
    """A compiled module without all of its functions: FlashInfer looks up even those that it does not call."""

    def __init__(self, module: object) -> None:
        self._module = module

    def __getattr__(self, name: str) -> object:
        def missing(*_: object) -> None:
            raise NotImplementedError(f"{name} was not compiled: flashinfer_topk.cpp has what sampling calls")

        return getattr(self._module, name, missing)


def load(folder: Path) -> types.ModuleType:
    """Its functions, with the compiled modules of the folder."""
    os.environ.setdefault("FLASHINFER_WORKSPACE_BASE", str(folder / "workspace"))
    os.environ.setdefault("FLASHINFER_CUDA_ARCH_LIST", ARCHITECTURE)
    sampling = import_package(folder / "packages")
    from flashinfer.jit.core import JitSpecNvcc

    JitSpecNvcc.build_and_load = lambda spec: Part(spec.load(folder / f"{spec.name}.so"))
    sampling.version = VERSION
    return sampling


def install(folder: Path, names: tuple[str, ...], *options: str) -> None:
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--root-user-action=ignore", "--target",
                    folder, *options, *names], check=True)  # fmt: skip


def gather(folder: Path, scratch: Path) -> None:
    """Fills the folder. Needs nvcc, the package registry and, the first time, PyTorch and ten minutes: what was compiled is
    kept in `scratch`."""
    tools = scratch / "packages"
    if not (tools / "flashinfer").exists():
        install(tools, (f"flashinfer-python=={VERSION}", *NEEDED, *TO_COMPILE))
    shutil.rmtree(folder, ignore_errors=True)
    install(folder / "packages", NEEDED, "--python-version", PYTHON, "--only-binary=:all:")
    for part in PARTS:
        for file in (tools / "flashinfer").glob(part):
            target = folder / "packages" / file.relative_to(tools)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, target)
    compiled = [scratch / f"{module}.so" for module in MODULES]
    if not all(module.exists() for module in compiled):
        compile_in(scratch, tools)
    for module in compiled:
        shutil.copy(module, folder)


def compile_in(scratch: Path, tools: Path) -> None:
    # No driver is needed to link.
    (scratch / "stubs").mkdir(exist_ok=True)
    subprocess.run(["c++", "-shared", "-x", "c++", os.devnull, "-Wl,-soname,libcuda.so.1", "-o",
                    scratch / "stubs" / "libcuda.so"], check=True)  # fmt: skip
    cuda = Path(shutil.which("nvcc")).resolve().parents[1] if "CUDA_HOME" not in os.environ else Path(os.environ["CUDA_HOME"])
    environment = os.environ | {"CUDA_HOME": str(cuda),
                                "CPATH": str(next(tools.glob("nvidia/**/curand_kernel.h")).parent),
                                "FLASHINFER_CUDA_ARCH_LIST": ARCHITECTURE, "FLASHINFER_WORKSPACE_BASE": str(scratch),
                                "LIBRARY_PATH": f"{scratch / 'stubs'}:{cuda / 'lib'}:{cuda / 'lib64'}",
                                "PATH": f"{tools / 'bin'}:{os.environ['PATH']}",
                                "PYTHONPATH": str(Path(__file__).resolve().parents[3] / ".cukiln-torch")}
    subprocess.run([sys.executable, __file__, tools], env=environment, check=True)
    for module in MODULES:
        shutil.copy(next(scratch.glob(f".cache/flashinfer/**/{module}/{module}.so")), scratch)


def compile_modules(packages: Path) -> None:
    import_package(packages)
    from flashinfer.jit.core import gen_jit_spec
    from flashinfer.jit.sampling import gen_sampling_module

    topk = [packages / "flashinfer" / "data" / "csrc" / "topk.cu", Path(__file__).with_name("flashinfer_topk.cpp")]
    for specification in (gen_sampling_module(), gen_jit_spec("topk", topk, extra_cuda_cflags=["-lineinfo"])):
        specification.build()


if __name__ == "__main__":
    compile_modules(Path(sys.argv[1]))
