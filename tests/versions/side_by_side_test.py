# SPDX-License-Identifier: Apache-2.0
"""Version 0.1 and this one share a machine, a store folder and a remote store; each uses its own entries only."""

import subprocess

from versions import KERNELS, NEW, OLD, VersionsTest, main, name_of

from servers import Nginx, Redis  # versions adds its folder

ORDERS = ((OLD, NEW), (NEW, OLD))


class SideBySide(VersionsTest):
    def in_each_order(self):
        """Yields (old, new) and (new, old), each with an empty store that both share."""
        for first, second in ORDERS:
            with self.subTest(first=name_of(first)):
                self.environment["CUKILN_STORE"] = str(self.folder / f"store, {name_of(first)} first")
                yield first, second

    def fill(self, *versions):
        for version in versions:
            self.assertEqual(self.compiled_by(version), "compiled", name_of(version))

    def test_each_version_hits_its_own_entries_only(self):  # fault 124
        for first, second in self.in_each_order():
            self.fill(first, second)  # the second version misses
            for version in (first, second, first):
                self.assertEqual(self.compiled_by(version), "hit", name_of(version))
            for version in (first, second):
                self.assertEqual(len(self.entries_of(version)), 1)
                self.assertEqual(self.run_as(version, "verify")["damaged"], 0)

    def test_a_kernel_that_looks_for_a_standard_header_is_compiled_by_each(self):  # fault 124
        self.write("has.cu", '#if __has_include(<cstdint>)\nextern "C" __global__ void with() {}\n'
                             '#else\nextern "C" __global__ void without() {}\n#endif\n')  # fmt: skip
        self.write("int.cu", '#include <cstdint>\nextern "C" __global__ void k(std::int32_t* x) { *x = 1; }\n')
        for first, second in self.in_each_order():
            for outcome in "compiled", "hit":
                for version in first, second:
                    report = self.run_as(version, "compile", "has.cu", "--arch", "sm_90a")
                    self.assertEqual(self.outcome_of(version, report), outcome, name_of(version))
            self.assertEqual(self.outcome_of(NEW, self.run_as(NEW, "compile", "int.cu", "--arch", "sm_90a")), "compiled")
            self.assertIn("cannot open source file", self.run_as(OLD, "compile", "int.cu", "--arch", "sm_90a", expect=1))
            self.assertEqual({kernel["name"] for entry in self.entries_of(NEW) for kernel in entry["kernels"]}, {"with", "k"})

    def test_removing_entries_of_one_version_keeps_those_of_the_other(self):
        for first, second in self.in_each_order():
            for removing in (("rm", "--all"), ("gc", "--max-size", "1"), ("verify", "--repair")):
                self.run_as(first, "rm", "--all")
                self.run_as(second, "rm", "--all")
                self.fill(first, second)
                self.run_as(first, *removing)
                self.assertEqual(self.compiled_by(second), "hit", removing)

    def test_both_versions_write_concurrently(self):
        self.fill(OLD, NEW)
        running = [
            subprocess.Popen(
                [version / "cukiln", "--json", "compile", "add.cu", f"-DADDEND={number}", "--arch", "sm_90a"],
                cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)  # fmt: skip
            for number in range(2, 5) for version in (OLD, NEW)  # fmt: skip
        ]
        for process in running:
            _, errors = process.communicate(timeout=120)
            self.assertEqual(process.returncode, 0, errors)
        for version in (OLD, NEW):
            self.assertEqual(len(self.entries_of(version)), 4)
            self.assertEqual(self.compiled_by(version), "hit")
            self.assertEqual(self.run_as(version, "verify")["damaged"], 0)

    def test_a_bundle_of_the_other_version_is_rejected_and_changes_nothing(self):
        for first, second in self.in_each_order():
            self.fill(first, second)
            bundle = self.folder / f"{first.parent.name}.ckb"
            self.run_as(first, "export", "-o", bundle)
            error = self.run_as(second, "import", bundle, "--insecure", expect=1)
            self.assertIn("version", error)
            self.assertEqual(len(self.entries_of(second)), 1)
            self.assertEqual(self.compiled_by(second), "hit")

    def test_a_bundle_with_blobs_is_rejected_by_the_other_version(self):  # fault 285
        self.put_blob("triton", "KEY/add.cubin", "bytes")
        bundle = self.folder / "blobs.ckb"
        self.assertEqual(self.run_as(NEW, "export", "-o", bundle)["blobs"], 1)
        self.assertIn("version", self.run_as(OLD, "import", bundle, "--insecure", expect=1))
        self.assertEqual(self.entries_of(OLD), [])

    def test_one_remote_store_serves_both_versions(self):
        for server, path in ((Nginx, "/cache"), (Redis, "")):
            for first, second in ORDERS:
                with self.subTest(server=server.__name__, first=name_of(first)):
                    remote = self.started(server())
                    names = remote.files if server is Nginx else remote.keys
                    for version, found_before in ((first, "compiled"), (second, "compiled"),
                                                  (first, "hit"), (second, "hit")):  # fmt: skip
                        before = set(names())
                        number = len(list((self.folder / "hosts").glob("*"))) if (self.folder / "hosts").exists() else 0
                        host = self.host(f"h{number}", remote.url + path)
                        self.assertEqual(self.compiled_by(version, env=host), found_before, name_of(version))
                        self.assertLessEqual(before, set(names()))  # no object of the other version is replaced
                    self.assertEqual(len(names()), 4)

    def test_a_daemon_of_the_other_version_is_not_used(self):
        for first, second in self.in_each_order():
            (self.folder / "run").mkdir(mode=0o700, exist_ok=True)
            self.run_as(first, "daemon", "start")
            try:
                self.assertEqual(self.compiled_by(second), "compiled")
                self.assertEqual(self.compiled_by(second), "hit")
                self.assertEqual(self.compiled_by(first), "compiled")
                self.assertEqual(self.compiled_by(first), "hit")
            finally:
                self.run_as(first, "daemon", "stop")


if __name__ == "__main__":
    main()
