# SPDX-License-Identifier: Apache-2.0
"""examples/containers/Containerfile, without a container engine: the commands of cukiln in its stages, each stage in a root
of its own by unshare and chroot. The build has NVRTC; the image has neither that nor CUDA's headers, a read-only root, no
network and a user of its own."""

from __future__ import annotations

import functools
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

BINARIES = Path(os.environ["CUKILN_TEST_BINARY_DIR"])
REPO = Path(__file__).resolve().parents[2]
RECIPE = REPO / "examples/containers"
CUDA = REPO / ".cukiln-cuda/nvidia/cu13"
IS_DEBIAN_12 = "VERSION_CODENAME=bookworm" in Path("/etc/os-release").read_text()
BUILDER = 64_003  # the build's user, where the recipe names none, is tested as another than root


@functools.cache
def owner(library: str) -> str:
    """The package that a library is of; none for one of cukiln's own."""
    for path in (library, "/usr" + library, library.removeprefix("/usr")):
        found = subprocess.run(["dpkg-query", "--search", path], capture_output=True, text=True)
        if found.returncode == 0:
            return found.stdout.split(":")[0]
    return ""


@functools.cache
def with_dependencies(packages: tuple[str, ...]) -> set[str]:
    """What an image has in which these are installed, without recommended packages."""
    listed = subprocess.check_output(["apt-cache", "depends", "--recurse", "--no-recommends", "--no-suggests",
                                      "--no-conflicts", "--no-breaks", "--no-replaces", "--no-enhances",
                                      *packages, "libc6", "base-files"], text=True)  # fmt: skip
    return {line for line in listed.splitlines() if line and not line.startswith((" ", "<", "|"))}


class Stage:
    """A stage of the Containerfile: its packages, its variables, its user, and the commands of cukiln that it runs."""

    def __init__(self) -> None:
        self.packages: list[str] = []
        self.variables: dict[str, str] = {}
        self.user = ""
        self.copies: list[list[str]] = []
        self.commands: list[list[str]] = []


def stages() -> list[Stage]:
    found: list[Stage] = []
    text = (RECIPE / "Containerfile").read_text().replace("\\\n", " ")
    for line in text.splitlines():
        word, _, rest = line.partition(" ")
        if word == "FROM":
            found.append(Stage())
        elif word in ("ENV", "ARG"):
            name, _, value = rest.partition("=")
            found[-1].variables[name] = value
        elif word == "USER":
            found[-1].user = rest
        elif word == "COPY":
            found[-1].copies.append(rest.split())
        elif word == "RUN" and rest.startswith("apt-get "):
            found[-1].packages = re.findall(r"\blib[^ ]*", rest)
        elif word == "RUN" and rest.startswith("cukiln "):
            found[-1].commands.append(shlex.split(rest))
    return found


@unittest.skipUnless(os.geteuid() == 0, "a root of its own takes root")
@unittest.skipUnless(CUDA.is_dir(), "NVRTC of .cukiln-cuda")
class Recipe(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="cukiln-image-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.build_stage, self.image_stage = stages()
        self.build = self.root("build", self.build_stage)
        self.image = self.root("image", self.image_stage)

    def root(self, name, stage):
        """What `COPY prefix/ /` and the packages bring: the programs, and of the libraries that they link those of the
        stage's packages."""
        root = self.folder / name
        for folder in ("usr/bin", "tmp", "proc", "dev", "run/cukiln", "app", "var/cache", "usr/local/cuda/nvidia/cu13"):
            (root / folder).mkdir(parents=True)
        (root / "tmp").chmod(0o1777)
        # Elsewhere the packages of Debian 12 have other names.
        installed = with_dependencies(tuple(stage.packages)) if IS_DEBIAN_12 else None
        programs = [BINARIES / name for name in ("cukiln", "cukilnd", "cukiln-compile-worker")]
        for program in programs:
            shutil.copy2(program, root / "usr/bin")
        for linked in [*programs, *CUDA.glob("lib/libnvrtc.so*")]:  # of NVRTC: libc's, which every image has
            for library in re.findall(r"(/\S+) \(0x", subprocess.check_output(["ldd", linked], text=True)):
                if installed is not None and owner(library) not in installed:
                    continue
                target = root / library.lstrip("/")
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(library, target)
        shutil.copytree(RECIPE / "kernels", root / "app/kernels")
        return root

    def run_in(self, root, command, user, variables=(), **options):
        return subprocess.run(self.inside(root, command, user, variables, **options), capture_output=True,
                              text=True, timeout=200, env={"PATH": os.environ["PATH"]})  # fmt: skip

    def inside(self, root, command, user, variables=(), with_cuda=False, writable=False, folders=()):
        """In a mount, process and network namespace of its own. Only /tmp and `folders` are writable, unless the root is."""
        mounts = [f"mount --bind {root} {root}", f"mount -t proc proc {root}/proc",
                  f"mount -t tmpfs -o mode=1777 tmpfs {root}/tmp", f"mount -t tmpfs tmpfs {root}/dev",
                  f"mknod -m 666 {root}/dev/null c 1 3", f"mknod -m 666 {root}/dev/urandom c 1 9"]  # fmt: skip
        if with_cuda:
            mounts.append(f"mount --bind {CUDA} {root}/usr/local/cuda/nvidia/cu13")
        if not writable:
            mounts.append(f"mount -o remount,bind,ro {root}")
        for folder in folders:
            mounts.append(f"mount --bind {self.folder}/volumes{folder} {root}{folder}")
        environment = {"PATH": "/usr/bin", **dict(variables)}
        inside = ["env", "-i", *(f"{name}={value}" for name, value in environment.items()),
                  shutil.which("chroot"), f"--userspec={user}", "--groups=", str(root), *command]  # fmt: skip
        script = " && ".join([*mounts, "exec " + shlex.join(inside)])
        return ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--", "bash", "-c", script]

    def commands(self, stage):
        return [[self.expanded(word, stage) for word in command] for command in stage.commands]

    @staticmethod
    def expanded(word, stage):
        return re.sub(r"\$(\w+)", lambda found: stage.variables[found[1]], word)

    def run_build(self, user="0:0"):
        (self.build / "var/cache").chmod(0o777)
        for command in self.commands(self.build_stage):
            done = self.run_in(self.build, command, user, self.build_stage.variables, with_cuda=True, writable=True)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def copy_from_build(self):
        """As COPY --from: the files are root's then, with their modes."""
        (copy,) = [words[1:] for words in self.image_stage.copies if words[0] == "--from=build"]
        source, target = (root / path.lstrip("/") for root, path in zip((self.build, self.image), copy))
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(source, target)
        for path in [target, *target.rglob("*")]:
            os.chown(path, 0, 0)

    def in_image(self, *command, variables=()):
        user = self.image_stage.user
        self.assertRegex(user, r"^[1-9]\d*:[1-9]\d*$")
        return self.run_in(self.image, ["cukiln", *command], user, {**self.image_stage.variables, **dict(variables)})

    def offline(self, **options):
        arguments = ("preload", "/app/kernels/kernels.json", "--arch", self.image_stage.variables["TARGETS"])
        return self.in_image("--json", *arguments, "--offline", "--no-load", **options)

    def check_image(self):
        done = self.offline()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        report = json.loads(done.stdout)
        self.assertEqual((report["hits"], report["failed"]), (4, 0))
        self.assertEqual({m["reason"] for m in report["modules"]},
                         {"in the store, with CUDA's headers as recorded: there are none here"})  # fmt: skip
        (fits,) = self.commands(self.image_stage)
        done = self.run_in(self.image, fits, self.image_stage.user, self.image_stage.variables)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("4 of 4 modules fit", done.stdout)
        explained = self.in_image("--json", "explain", "/app/kernels/kernels.json", "--arch", "sm_90a")
        answers = json.loads(explained.stdout)["explanations"]
        self.assertEqual({(a["outcome"], a["toolkit"]) for a in answers}, {("hit", "as recorded")})

    # fault 182
    def test_every_kernel_hits_in_an_image_without_nvrtc_and_headers(self):
        self.run_build()
        self.copy_from_build()
        self.check_image()

    def test_the_build_needs_no_root(self):
        self.run_build(f"{BUILDER}:{BUILDER}")
        self.assertEqual((self.build / "var/cache/cukiln/v6").stat().st_uid, BUILDER)
        self.copy_from_build()
        self.check_image()

    # fault 382
    def test_the_daemon_of_the_daemonset_starts_in_the_build_stage(self):
        manifest = (RECIPE / "kubernetes/daemonset.yaml").read_text()
        (command,) = re.findall(r"command: \[(cukilnd, .*)\]", manifest)
        (user,) = re.findall(r"runAsUser: ([1-9]\d*)", manifest)
        folders = ("/run/cukiln", "/var/cache/cukilnd")
        (self.build / "var/cache/cukilnd").mkdir()
        for folder in folders:
            volume = self.folder / f"volumes{folder}"
            volume.mkdir(parents=True, mode=0o700)
            os.chown(volume, int(user), int(user))
        place = {"user": f"{user}:{user}", "folders": folders}
        with open(self.folder / "daemon.log", "w+") as log:
            daemon = subprocess.Popen(self.inside(self.build, command.split(", "), **place),
                                      stdout=log, stderr=log, env={"PATH": os.environ["PATH"]},
                                      start_new_session=True)  # fmt: skip
            try:
                deadline = time.monotonic() + 100
                while True:
                    status = self.run_in(self.build, ["cukiln", "daemon", "status"], **place,
                                         variables={"CUKILN_DAEMON_SOCKET": "/run/cukiln/cukilnd.sock"})  # fmt: skip
                    if status.returncode == 0 or daemon.poll() is not None or time.monotonic() > deadline:
                        break
                log.seek(0)
                self.assertEqual(status.returncode, 0, status.stdout + status.stderr + log.read())
            finally:
                os.killpg(daemon.pid, signal.SIGKILL)
                daemon.wait()

    # fault 182
    def test_what_differs_in_the_image_is_a_miss_that_says_so(self):
        self.run_build()
        self.copy_from_build()
        header = self.image / "app/kernels/vector.cuh"
        text = header.read_text()
        header.write_text(text + "// edited\n")
        done = self.offline()
        self.assertEqual(done.returncode, 1)
        self.assertIn("header changed: /app/kernels/vector.cuh", done.stderr)
        self.assertIn("bring the files that it was compiled with", done.stderr)
        (fits,) = self.commands(self.image_stage)
        self.assertEqual(self.run_in(self.image, fits, self.image_stage.user, self.image_stage.variables).returncode, 1)
        header.write_text(text)
        # Once there are headers of CUDA, they are checked.
        newer = self.image / "opt/newer/cuda_fp16.h"
        newer.parent.mkdir(parents=True)
        newer.write_text("// of a newer release\n")
        done = self.offline(variables={"CUKILN_INCLUDE_PATH": "/opt/newer"})
        self.assertEqual(done.returncode, 1)
        self.assertIn("header changed: /opt/newer/cuda_fp16.h", done.stderr)
        self.assertIn("install those, or remove them", done.stderr)
        newer.rename(self.image / "usr/local/cuda/cuda_fp16.h")  # in none of the searched places
        self.check_image()

    def in_build(self, *command, variables=()):
        done = self.run_in(self.build, ["cukiln", *command], "0:0",
                           {**self.build_stage.variables, **dict(variables)}, with_cuda=True, writable=True)  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    # fault 347
    def test_headers_of_cuda_count_as_recorded_if_it_is_known_whose_they_were(self):
        preload = ("preload", "/app/kernels/kernels.json", "--arch", "sm_90a", "--no-load")
        for key in ("fleet", "other"):
            self.in_build("keygen", "-o", f"/app/{key}.key")
        trusted = ("--trust", "/app/fleet.key.pub", "--trust", "/app/other.key.pub")
        self.in_build("--store", "/app/own", *preload)
        self.in_build("--store", "/app/own", "export", "-o", "/app/own.ckb", "--sign", "/app/fleet.key")
        self.in_build("--store", "/app/own", "export", "-o", "/app/unsigned.ckb")
        # Another "CUDA header", where a setting says that they are.
        header = self.build / "app/foreign/cuda_fp16.h"
        header.parent.mkdir()
        text = (CUDA / "include/cuda_fp16.h").read_text()
        header.write_text(text + "// of another\n")
        self.in_build("--store", "/app/with", *preload, variables={"CUKILN_INCLUDE_PATH": "/app/foreign"})
        self.in_build("--store", "/app/with", "export", "-o", "/app/foreign.ckb", "--sign", "/app/fleet.key")
        # Signed again by one that did not compile it.
        self.in_build("--store", "/app/again", "import", "/app/own.ckb", *trusted)
        self.in_build("--store", "/app/again", "export", "-o", "/app/again.ckb", "--sign", "/app/other.key")
        (self.image / "app/stores").mkdir()
        (self.image / "app/stores").chmod(0o777)
        for path in (self.build / "app").glob("*.[cp][ku]b"):
            shutil.copy2(path, self.image / "app")

        def in_image(*command):
            return self.run_in(self.image, ["cukiln", *command], self.image_stage.user,
                               {**self.image_stage.variables, "CUKILN_SYSTEM_STORE": "/app/none"}, writable=True)  # fmt: skip

        for name, options, is_used in (("own", trusted, True), ("foreign", trusted, False), ("again", trusted, False),
                                       ("unsigned", ("--insecure",), False)):  # fmt: skip
            with self.subTest(name):
                store, bundle = ("--store", f"/app/stores/{name}"), f"/app/{name}.ckb"
                fits = in_image(*store, "fits", bundle, *options)
                self.assertEqual(fits.returncode, 0 if is_used else 1, fits.stdout + fits.stderr)
                done = in_image(*store, "import", bundle, *options)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                done = in_image(*store, "--json", *preload, "--offline")
                report = json.loads(done.stdout)
                self.assertEqual((report["hits"], report["failed"]), (2, 0) if is_used else (0, 2), done.stderr)
                if not is_used:
                    self.assertIn("no headers of CUDA here to check the stored entry's with", done.stderr)
                    self.assertIn("no headers of CUDA here to check the stored entry's with", fits.stdout)
                    explained = in_image(*store, "explain", "/app/kernels/kernels.json", "--arch", "sm_90a")
                    self.assertIn("of headers of CUDA that cannot be checked here", explained.stdout)

    # fault 347
    def test_a_system_store_of_another_than_root_does_not_say_whose_headers_it_had(self):
        self.run_build()
        self.copy_from_build()
        user = int(self.image_stage.user.split(":")[0])
        store = self.image / "var/cache/cukiln"
        for path in [store, *store.rglob("*")]:
            os.chown(path, user, user)
        done = self.offline()
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("bring it in a system store of root's", done.stderr)

    # fault 180
    def test_a_store_that_the_user_cannot_read_is_named(self):
        self.run_build()
        self.copy_from_build()
        (self.image / "var/cache/cukiln/v6").chmod(0o700)
        self.assertEqual(self.offline().returncode, 1)
        doctor = json.loads(self.in_image("--json", "doctor").stdout)
        (check,) = [c for c in doctor["checks"] if c["name"] == "system store"]
        self.assertEqual(check["status"], "wrong")
        self.assertRegex(check["detail"], "^unreadable: ")


if __name__ == "__main__":
    unittest.main()
