# SPDX-License-Identifier: Apache-2.0
"""What scripts/quickstart and scripts/test do around a build, with stand-ins for all that takes long."""

import json
import os
import pty
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
# What ninja "builds": one program that prints its arguments, and files one after the other, each as SLOW as wanted.
NINJA = """
rule program
  command = mkdir -p bin && printf '#!/bin/sh\\necho ran {name} "$$@" $$UBSAN_OPTIONS $$CUKILN_STORE $${SHOWN:+$$CCACHE_DIR}\\n' > $out && chmod +x $out
rule slow
  command = sleep $${SLOW:-0} && touch $out
build bin/unit_store_test: program
build bin/unit_daemon_ops_test: program
build bin/process_faults_test: program
build bin/gpu_kernels_test: program
build bin/cukiln: slow
build bin/cukilnd: slow bin/cukiln
build bin/libcukiln.so: slow bin/cukilnd
build cukiln_cli: phony bin/cukiln
build cukilnd: phony bin/cukilnd
build bin/libcukiln_nvfp4.so: slow bin/libcukiln.so
build cukiln: phony bin/libcukiln.so
build cukiln_nvfp4: phony bin/libcukiln_nvfp4.so
build unit_store_test: phony bin/unit_store_test
build unit_daemon_ops_test: phony bin/unit_daemon_ops_test
build process_faults_test: phony bin/process_faults_test
"""
PRESETS = {"testPresets": [{"name": "dev"}, {"name": "asan", "environment": {"UBSAN_OPTIONS": "as-ctest-sets-it"}}]}


class ScriptsTest(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="cukiln-scripts-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.repo = self.folder / "a clone"
        (self.repo / "scripts").mkdir(parents=True)
        for name in ("common.sh", "quickstart", "test"):
            shutil.copy(SCRIPTS / name, self.repo / "scripts")
        self.program("scripts/bootstrap", 'echo "bootstrap $*" >&2')
        (self.repo / "CMakePresets.json").write_text(json.dumps(PRESETS))
        os.utime(self.repo / "CMakePresets.json", (1, 1))
        for preset in ("dev", "asan", "quick", "release"):
            build = self.repo / "build" / preset
            build.mkdir(parents=True)
            (build / "CMakeCache.txt").write_text(
                f"CMAKE_PROJECT_NAME:STATIC=cukiln\nCMAKE_GENERATOR:INTERNAL=Ninja\n"
                f"CMAKE_MAKE_PROGRAM:FILEPATH={shutil.which('ninja')}\n")
            (build / "build.ninja").write_text(NINJA.replace("{name}", preset))
        (self.folder / "home").mkdir()

    def program(self, path, text):
        file = self.repo / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"#!/bin/sh\n{text}\n")
        file.chmod(0o755)

    def environment(self, **more):
        kept = {name: value for name, value in os.environ.items()
                if not name.startswith(("CUKILN_", "XDG_", "UBSAN"))}  # fmt: skip
        return kept | {"HOME": str(self.folder / "home"), "TERM": "xterm"} | more

    def run_script(self, *command, expect=0, **environment):
        done = subprocess.run([str(c) for c in command], cwd=self.folder, env=self.environment(**environment),
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)  # fmt: skip
        self.assertEqual(done.returncode, expect, done.stdout + done.stderr)
        return done

    def run_on_terminal(self, command, **environment):
        master, slave = pty.openpty()
        process = subprocess.Popen(command, cwd=self.folder, env=self.environment(**environment), stdin=subprocess.DEVNULL,
                                   stdout=slave, stderr=slave, start_new_session=True)  # fmt: skip
        os.close(slave)
        shown = b""
        while True:
            try:
                part = os.read(master, 65536)
            except OSError:  # the other end is closed
                break
            shown += part
        os.close(master)
        self.assertEqual(process.wait(timeout=60), 0, shown)
        return shown.decode()

    def build_slowly(self):
        return ["bash", "-c", 'source "$0"; steps_period=1; build release "$repo/build/log" cukiln_cli cukilnd cukiln',
                str(self.repo / "scripts/common.sh")]  # fmt: skip


class Only(ScriptsTest):
    def only(self, *arguments, **options):
        return self.run_script(self.repo / "scripts/test", *arguments, **options)

    def test_builds_and_runs_one_binary_and_installs_nothing(self):
        done = self.only("--only", "store", "-tc", "*a case*", CUKILN_STORE="/of/the/user")
        self.assertEqual(done.stdout, "ran dev -tc=*a case*\n")
        self.assertNotIn("bootstrap", done.stderr)
        self.assertEqual([p.name for p in (self.repo / "build/dev/bin").iterdir()], ["unit_store_test"])

    def test_tests_have_the_ccache_of_the_user(self):
        self.program("bin/ccache", 'test "$*" = "--get-config cache_dir" && echo "$HOME/of-ccache"')
        path = f"{self.repo / 'bin'}:{os.environ['PATH']}"
        found = self.only("--only", "store", SHOWN="1", CCACHE_DIR="", PATH=path).stdout
        self.assertEqual(found, f"ran dev {self.folder / 'home' / 'of-ccache'}\n")
        self.assertEqual(self.only("--only", "store", SHOWN="1", CCACHE_DIR="/c").stdout, "ran dev /c\n")

    def test_a_filter_reaches_doctest_with_or_without_an_equals_sign(self):
        self.assertEqual(self.only("--only", "store", "-tc=a b", "-d").stdout, "ran dev -tc=a b -d\n")
        self.assertEqual(self.only("--only", "store", "-d", "-sf", "a b").stdout, "ran dev -d -sf=a b\n")
        self.assertIn("-tc needs a pattern", self.only("--only", "store", "-tc", expect=2).stderr)

    def test_takes_another_preset_and_its_environment(self):
        self.assertEqual(self.only("--preset", "asan", "--only=store").stdout, "ran asan as-ctest-sets-it\n")

    def test_names_are_those_of_ctest(self):
        for name in ("unit.store", "daemon_ops", "process.faults"):
            self.assertEqual(self.only("--only", name).stdout, "ran dev\n")

    def test_an_unknown_name_lists_those_there_are(self):
        done = self.only("--only", "stroe", expect=2)
        self.assertIn("there is no test 'stroe'", done.stderr)
        self.assertIn("daemon_ops process.faults store", done.stderr)
        self.assertNotIn("gpu", done.stderr)
        self.assertIn("needs a test's name", self.only("--only", expect=2).stderr)


    def test_a_report_of_a_worker_fails_the_run_and_is_shown(self):
        reports = self.repo / "build/asan/worker-reports.log"
        reports.write_text("==1==ERROR: AddressSanitizer: of the run before\n")
        self.only("--preset", "asan", "--only", "store")
        self.program("build/asan/bin/unit_daemon_ops_test",
                     f"echo '==2==ERROR: AddressSanitizer: heap-buffer-overflow' >'{reports}'")  # fmt: skip
        (self.repo / "build/asan/build.ninja").write_text("build unit_daemon_ops_test: phony bin/unit_daemon_ops_test\n"
                                                          "build bin/unit_daemon_ops_test: phony\n")  # fmt: skip
        done = self.only("--preset", "asan", "--only", "daemon_ops", expect=1)
        self.assertIn("AddressSanitizer: heap-buffer-overflow", done.stderr)
        self.assertIn(str(reports), done.stderr)


class Whole(ScriptsTest):
    """scripts/test with a stand-in for ctest."""

    def run_tests(self, *arguments, **options):
        self.program("stand-ins/ctest", 'echo "ctest $*"')
        return self.run_script(self.repo / "scripts/test", "--preset", "dev", *arguments,
                               PATH=f"{self.repo}/stand-ins:{os.environ['PATH']}", **options)  # fmt: skip

    def test_what_only_all_fetches_is_neither_fetched_nor_run(self):
        done = self.run_tests("--", "-R", "store")
        self.assertEqual(re.findall("(?m)^bootstrap.*", done.stderr), ["bootstrap ", "bootstrap --tests"])
        self.assertRegex(done.stdout, r"^ctest --preset dev --parallel \d+ -LE \^fetched\$ -R store\n$")
        done = self.run_tests("--all")
        self.assertEqual(re.findall("(?m)^bootstrap.*", done.stderr), ["bootstrap ", "bootstrap --all-tests"])
        self.assertNotIn("-LE", done.stdout)

    def test_fetches_during_the_build_and_runs_nothing_without_it(self):
        # Each waits for the other: the fetch for what is built last, the build for the fetch's begin.
        build = self.repo / "build/dev"
        self.program("scripts/bootstrap", f"[ $# = 0 ] || {{ touch '{build}/begun'; until [ -e '{build}/built' ]; do sleep 0.01; done; exit 7; }}")
        (build / "build.ninja").write_text("rule wait\n  command = until [ -e begun ]; do sleep 0.01; done; touch $out\nbuild built: wait\n")
        self.assertEqual(self.run_tests(expect=7).stdout, "")


class Progress(ScriptsTest):
    def test_a_line_now_and_then_where_there_is_no_terminal(self):
        lines = self.run_script(*self.build_slowly(), SLOW="1.1").stderr.splitlines()
        self.assertRegex(lines[0], r"^    \[[12]/3\] after \d s$")
        self.assertLessEqual(len(lines), 3)

    def test_in_place_on_a_terminal_and_gone_at_the_end(self):
        shown = self.run_on_terminal(self.build_slowly(), SLOW="1.1")
        self.assertRegex(shown, r"\r\x1b\[K    \[[12]/3\]  0:0\d")
        self.assertNotIn("\n", shown)
        self.assertTrue(shown.endswith("\r\x1b[K"), repr(shown))


class Quickstart(ScriptsTest):
    def setUp(self):
        super().setUp()
        self.cukiln("exit 0")

    def cukiln(self, text):
        self.program("build/quick/bin/cukiln", f'echo "cukiln $*"\n{text}')

    def quickstart(self, **options):
        return self.run_script(self.repo / "scripts/quickstart", **options)

    def test_builds_what_it_runs_and_says_how_to_build_the_rest(self):
        done = self.quickstart()
        self.assertFalse((self.repo / "build/quick/bin/libcukiln.so").exists())
        self.assertIn("--target product", done.stderr)
        self.assertIn("cukiln preload --arch sm_90a,sm_100a --no-load\n", done.stdout)
        self.assertIn("bootstrap", done.stderr)

    def test_a_link_to_it_works(self):
        link = self.folder / "link"
        link.symlink_to(self.repo / "scripts/quickstart")
        self.assertIn("cukiln preload", self.run_script(link).stdout)

    def test_a_checkout_that_cannot_be_written_is_told_first(self):
        (self.repo / "build/quickstart.log").mkdir()
        done = self.quickstart(expect=3)
        self.assertRegex(done.stderr, r"^error: cannot write .*/a clone/build")
        self.assertIn("git clone", done.stderr)
        self.assertNotIn("bootstrap", done.stderr)

    def test_a_store_that_cannot_be_written_is_told_before_the_build(self):
        (self.folder / "file").touch()
        done = self.quickstart(expect=4, CUKILN_STORE=str(self.folder / "file/store"))
        self.assertIn(f"cannot write the store, {self.folder}/file/store", done.stderr)
        self.assertIn("CUKILN_STORE=", done.stderr)
        self.assertNotIn("bootstrap", done.stderr)

    def test_a_store_that_cukiln_refuses_is_told_before_kernels_are_compiled(self):
        self.cukiln('[ "$2" != ls ] || { echo "error: too open" >&2; exit 4; }')
        done = self.quickstart(expect=4)
        self.assertIn("error: too open", done.stderr)
        self.assertIn("CUKILN_STORE=", done.stderr)
        self.assertNotIn("preload", done.stdout)


class Bootstrap(ScriptsTest):
    def bootstrapped(self, argument, *, cpu):
        """What is installed from the Python index, run by run of pip: its arguments, then the files that they name."""
        log = self.folder / f"pip-{cpu}.log"
        self.program("stand-ins/python3", f"""
[ "$3" = install ] || exit 0
case $* in *--dry-run*) exit {0 if cpu else 1} ;; esac
echo "pip $*" >>'{log}'
while [ $# != 0 ]; do
  case $1 in --target) mkdir -p "$2" ;; -r) cat "$2" >>'{log}' ;; esac
  shift
done""")
        path = f"{self.repo}/stand-ins:{os.environ['PATH']}"
        self.run_script(self.repo / "scripts/bootstrap", argument, PATH=path)
        return [run.splitlines() for run in re.split(r"(?m)^pip ", log.read_text())[1:]]

    def test_nothing_is_installed_that_has_no_digest(self):  # fault 368
        shutil.copy(SCRIPTS / "bootstrap", self.repo / "scripts")
        shutil.copytree(SCRIPTS / "requirements", self.repo / "scripts/requirements")
        self.program("stand-ins/dpkg-query", 'shift 3; printf "installed %s\\n" "$@"')
        for name in ("apt-get", "sudo", "nginx", "promtool", "redis-server"):
            self.program(f"stand-ins/{name}", "")
        for_tests = "\n".join(line for run in self.bootstrapped("--tests", cpu=True) for line in run)
        self.assertIn("\nnumpy==", for_tests)
        self.assertNotRegex(for_tests, "(?m)^(torch|transformers|moto|cuda-core|kubernetes-validate)==")
        for cpu in (True, False):
            runs = self.bootstrapped("--all-tests", cpu=cpu)
            for arguments, *lines in runs:
                self.assertIn(" --require-hashes ", arguments)
                text = "\n".join(lines).replace("\\\n", "")
                wanted = [line for line in text.splitlines() if not line.startswith("#")]
                self.assertTrue(wanted, arguments)
                for requirement in wanted:
                    self.assertRegex(requirement, r"^[\w.-]+==\S+ .*--hash=sha256:[0-9a-f]{64}")
            (installed,) = ("\n".join(run) for run in runs if ".cukiln-torch.part" in run[0])
            self.assertEqual(re.findall(r"(?m)^torch==[\d.]+(\+cpu)? ", installed), ["+cpu" if cpu else ""])
            self.assertEqual("\nnvidia-cublas==" in installed, not cpu)
            shutil.rmtree(self.repo / ".cukiln-torch")


class Packages(unittest.TestCase):
    def test_debian_packages_have_the_number_of_the_soname(self):  # fault 426
        header = (SCRIPTS.parent / "include/cukiln/version.hpp").read_text()
        abi = ".".join(re.findall(r"VERSION_(?:MAJOR|MINOR) (\d+)", header))
        names = {f"libcukiln{abi}", f"libcukiln-nvfp4-{abi}"}
        control = (SCRIPTS / "debian/control").read_text()
        self.assertEqual(set(re.findall(r"libcukiln(?:-nvfp4-)?[\d.]+", control)), names)
        for name in names:
            self.assertTrue((SCRIPTS / f"debian/{name}.install").is_file(), name)


class Ci(ScriptsTest):
    """.ci/run over scripts that only note how they are called."""

    LISTED = [{"name": "unit.store", "command": ["x"], "properties": [{"name": "REQUIRED_FILES", "value": ["{tests}/store_test.cpp"]}]},
              {"name": "cli.usage", "command": ["python3", "{tests}/usage_test.py"], "properties": []}]  # fmt: skip

    def setUp(self):
        super().setUp()
        shutil.copytree(SCRIPTS.parent / ".ci", self.repo / ".ci", ignore=shutil.ignore_patterns("tested"))
        self.repo = self.repo.resolve()
        for path in ("tests/store_test.cpp", "tests/usage_test.py", "kernels_src/nvfp4/gemm.cu", "src/core/base/text.hpp", "src/cli/ls.cpp",
                     "src/core/store/store.cpp", "src/schema/generate.py", "tests/nvfp4/emulator/run.py", "tests/package/run.sh"):  # fmt: skip
            self.write(path, '#include "core/base/text.hpp"\n' if path == "src/core/store/store.cpp" else "")
        self.log = self.folder / "calls.log"
        for name in ("scripts/bootstrap", "scripts/check-layers", "scripts/check-faults", "scripts/format", "scripts/doxygen", "scripts/test",
                     "scripts/budget", ".ci/quickstart-twice", "tests/package/run", "tests/package/without", "scripts/package", "tests/package/debian",
                     "tests/package/wheels", "tests/aarch64/run", "scripts/fuzz", "scripts/tidy"):  # fmt: skip
            self.program(name, f'echo "$0 $*" >>"{self.log}"; case "$0 $*" in *"$FAILING"*) exit 1 ;; esac')
        listed = json.dumps({"tests": self.LISTED}).replace("{tests}", str(self.repo / "tests"))
        self.program("stand-ins/ctest", f"cat <<'END'\n{listed}\nEND")
        self.git("init", "--quiet")

    def write(self, path, text):
        (self.repo / path).parent.mkdir(parents=True, exist_ok=True)
        (self.repo / path).write_text(text)

    def git(self, *arguments):
        subprocess.run(["git", "-c", "core.excludesFile=", *arguments], cwd=self.repo, env=self.environment(), check=True)

    def ci(self, *arguments, failing="nothing"):
        self.git("add", "--all", ":!build")
        self.log.write_text("")
        self.run_script(self.repo / ".ci/run", *arguments, expect=failing != "nothing", FAILING=failing,
                        PATH=f"{self.repo}/stand-ins:{os.environ['PATH']}")  # fmt: skip
        return self.log.read_text().splitlines()

    def repeated(self, calls):
        return [call for call in calls if " -R " in call]

    def tidied(self, calls):
        return [call for call in calls if call.startswith("scripts/tidy")]

    def test_what_passed_with_the_same_inputs_is_left_out(self):
        calls = self.ci()
        self.assertIn("scripts/test --all", calls)
        self.assertEqual(self.repeated(calls), [r"scripts/test --all -- -R ^(unit\.store|cli\.usage)$"] * 20)
        self.assertIn("tests/package/run shared static wheel core", calls)
        self.assertEqual(self.tidied(calls), ["scripts/tidy src/cli src/core/base src/core/store"])
        calls = self.ci()
        self.assertIn("scripts/test --all -- -LE ^(emulator|kernels|python|sm100)$", calls)
        for left_out in (self.repeated(calls), self.tidied(calls), [call for call in calls if call.startswith("tests/package/run")]):
            self.assertEqual(left_out, [])
        for preset in ("asan", "tsan"):
            self.assertIn(f"scripts/test --preset {preset}", calls)

    def test_a_change_runs_what_it_decides(self):
        self.ci()
        self.write("src/cli/ls.cpp", "// changed\n")
        calls = self.ci()
        self.assertIn("scripts/test --all -- -LE ^(emulator|kernels|python|sm100)$", calls)
        self.assertEqual(self.tidied(calls), ["scripts/tidy src/cli"])
        self.write("src/core/store/store.cpp", "// changed\n")
        self.assertIn("scripts/test --all -- -LE ^(emulator|kernels|sm100)$", self.ci())
        self.write("src/core/store/store.cpp", '#include "core/base/text.hpp"\n')
        self.ci()
        self.write("src/core/base/text.hpp", "// changed\n")  # which src/core/store includes
        calls = self.ci()
        self.assertIn("scripts/test --all", calls)
        self.assertEqual(self.tidied(calls), ["scripts/tidy src/core/base src/core/store"])
        self.write("tests/usage_test.py", "# changed\n")
        self.assertEqual(self.repeated(self.ci()), [r"scripts/test --all -- -R ^(cli\.usage)$"] * 20)
        self.write("tests/nvfp4/emulator/run.py", "# changed\n")
        self.assertIn("scripts/test --all -- -LE ^(kernels|python|sm100)$", self.ci())

    def test_what_failed_runs_again(self):
        for failing, again in (("tidy", "scripts/tidy src/cli src/core/base src/core/store"), ("package/run", "tests/package/run shared static wheel core"),
                               (" -R ", r"scripts/test --all -- -R ^(unit\.store|cli\.usage)$"), ("test --all", "scripts/test --all")):  # fmt: skip
            (self.repo / ".ci/tested").unlink(missing_ok=True)
            self.ci(failing=failing)
            self.assertIn(again, self.ci())

    def test_no_part_begins_late(self):
        run = self.repo / ".ci/run"
        run.write_text(re.sub(r"latest=\d+", "latest=-1", run.read_text()))
        self.assertEqual(self.ci(), [])
        self.assertIn("scripts/test --all", self.ci("--all"))

    def test_all_leaves_nothing_out(self):
        self.ci()
        calls = self.ci("--all")
        for call in ("scripts/test --all", "scripts/tidy src/cli src/core/base src/core/store", "tests/package/wheels ", "tests/aarch64/run "):
            self.assertIn(call, calls)


if __name__ == "__main__":
    unittest.main()
