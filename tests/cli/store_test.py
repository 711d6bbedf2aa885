# SPDX-License-Identifier: Apache-2.0
"""ls, rm, gc, verify, stats, doctor, and stores that cannot be used."""

import json
import os
import shutil
import sqlite3
import subprocess
import unittest
from pathlib import Path

from cli import BINARIES, CUKILN, CliTest, DONE, ENVIRONMENT, FAILED, FAKE_DRIVER, STORE, USAGE

NOT_ROOT = unittest.skipIf(os.geteuid() == 0, "root may write anywhere")


class Inventory(CliTest):
    def fill(self):
        self.compile("scale.cu", "--arch", "sm_90a")
        self.compile("add.cu", "-DADDEND=1", "--arch", "sm_90a,sm_100a")
        return self.run_json("ls")["entries"]

    def test_empty_store(self):
        self.assertEqual(self.run_json("ls"), {"entries": []})
        self.assertIn(f"The store in {self.store} is empty", self.run_cli("ls").out)
        for line in (("show", "nosuch"), ("show", "abcdef"), ("rm", "--name", "x")):
            self.assertIn("; the store has no entries", self.run_cli(*line, expect=None).err)

    def test_entries_have_the_promised_fields(self):
        entries = self.fill()
        self.assertEqual(len(entries), 3)
        (scale,) = [e for e in entries if e["name"] == "scale"]
        self.assertLessEqual(
            {"key", "name", "source", "target", "flags", "compiler", "cubin_bytes", "compile_ms", "created",
             "last_used", "hits", "kernels", "dependencies", "origin"}, set(scale))  # fmt: skip
        self.assertEqual((scale["source"], scale["target"], scale["origin"]), ("scale.cu", "sm_90a", "compiled"))
        self.assertEqual(scale["dependencies"], 1)
        self.assertRegex(scale["compiler"], r"^nvrtc \d")
        self.assertLessEqual({"name", "lowered", "registers", "shared_bytes", "local_bytes"},
                             set(scale["kernels"][0]))  # fmt: skip

    def test_filters_and_orders(self):
        self.fill()
        names = lambda *a: [(e["name"], e["target"]) for e in self.run_json("ls", *a)["entries"]]
        self.assertEqual(names("--arch", "sm_100a"), [("add", "sm_100a")])
        self.assertEqual(names("--name", "sc*"), [("scale", "sm_90a")])
        self.assertEqual(names("--name", "none"), [])
        sizes = [e["cubin_bytes"] for e in self.run_json("ls", "--sort", "size")["entries"]]
        self.assertEqual(sizes, sorted(sizes, reverse=True))
        times = [e["compile_ms"] for e in self.run_json("ls", "--sort", "time")["entries"]]
        self.assertEqual(times, sorted(times, reverse=True))
        self.compile("scale.cu", "--arch", "sm_90a")
        self.assertEqual(names("--sort", "hits")[0], ("scale", "sm_90a"))
        self.assertIn("No entry matches", self.run_cli("ls", "--name", "none").out)

    def test_text(self):
        keys = {e["key"][:12] for e in self.fill()}
        text = self.run_cli("ls").out
        self.assertEqual(set(line.split()[0] for line in text.splitlines()[1:4]), keys)
        self.assertRegex(text, r"(?m)^3 entries, .* of cubins, .* of compiling$")

    def test_control_characters_in_a_name_are_escaped(self):  # fault 78
        name = "<script>\n\x1b[2J\u202e&.cu"
        self.write(name, 'extern "C" __global__ void k() {}\n')
        self.compile(name)
        text = self.run_cli("ls").out
        self.assertIn(r"<script>\n\x1b[2J\u202e&", text)
        self.assertNotRegex(text, "[\x1b\u202e]")
        (entry,) = self.run_json("ls")["entries"]
        self.assertEqual(entry["source"], name)
        self.assertNotRegex(self.run_cli("show", entry["key"]).out, "[\x1b\u202e]")

    def test_a_long_name_is_cut_to_the_line(self):  # fault 78
        self.write("x" * 150 + ".cu", 'extern "C" __global__ void k() {}\n')
        self.compile("x" * 150 + ".cu")
        _, shown = self.run_on_terminal("ls", "--color", "never")
        self.assertLessEqual(max(map(len, shown.splitlines())), 80)
        self.assertIn("x" * 150, self.run_cli("ls").out, "not cut where a program reads it")


class Remove(CliTest):
    def test_by_prefix_and_all(self):
        a, b = self.one_key(), self.one_key("add.cu", "-DADDEND=2")
        self.assertEqual(self.run_json("rm", a[:10]), {"removed": 1})
        self.assertEqual([e["key"] for e in self.run_json("ls")["entries"]], [b])
        self.assertEqual(self.run_cli("rm", "--all").out, "Removed 1 entry.\n")
        self.assertEqual(self.run_json("ls")["entries"], [])

    def test_by_name_and_target(self):
        self.compile("scale.cu", "--arch", "sm_90a")
        self.compile("add.cu", "-DADDEND=1", "--arch", "sm_90a,sm_100a")
        names = lambda: sorted((e["name"], e["target"]) for e in self.run_json("ls")["entries"])
        self.assertEqual(self.run_json("rm", "add", "--arch", "sm_90a"), {"removed": 1})
        self.assertEqual(names(), [("add", "sm_100a"), ("scale", "sm_90a")])
        self.assertIn("no entry matches", self.run_cli("rm", "add", "--arch", "sm_80", expect=FAILED).err)
        refused = self.run_cli("rm", "add", "scal", expect=USAGE)
        self.assertIn('did you mean "scale"?', refused.err)
        self.assertEqual(len(names()), 2)
        self.assertEqual(self.run_json("rm", "--name", "a*"), {"removed": 1})
        self.assertEqual(self.run_json("rm", "scale"), {"removed": 1})
        self.assertEqual(names(), [])

    def test_unknown_key_removes_nothing(self):
        a = self.one_key()
        result = self.run_cli("rm", a, "0123456789", expect=FAILED)
        self.assertIn("no entry 0123456789", result.err)
        self.run_cli("rm", "nothex", expect=USAGE)
        self.run_cli("rm", a[:5], expect=USAGE)
        self.assertEqual(len(self.run_json("ls")["entries"]), 1)


class Maintenance(CliTest):
    def test_gc(self):
        self.one_key()
        would = self.run_json("gc", "--max-age", "0s", "--dry-run", "--max-size", "1")
        self.assertEqual((would["evicted"], would["dry_run"]), (1, True))
        self.assertEqual(len(self.run_json("ls")["entries"]), 1)
        self.assertIn("Would remove 1 entry", self.run_cli("gc", "--max-size", "1", "--dry-run").out)
        self.assertEqual(self.run_json("gc", "--max-age", "30d")["evicted"], 0)
        self.assertIn("Nothing to remove", self.run_cli("gc").out)
        self.assertIn("Removed 1 entry", self.run_cli("gc", "--max-size", "1").out)
        self.assertEqual(self.run_json("ls")["entries"], [])

    def test_stats_count_over_processes(self):
        for _ in range(3):
            self.compile("add.cu", "-DADDEND=1")
        self.run_cli("compile", "broken.cu", expect=FAILED)
        stats = self.run_json("stats")
        wanted = {"entries": 1, "hits": 2, "misses": 2, "compiles": 1, "stored": 1, "failed": 1,
                  "evicted": 0, "corrupt": 0, "singleflight_waits": 0}  # fmt: skip
        self.assertEqual({name: stats[name] for name in wanted}, wanted)
        self.assertGreater(stats["bytes"], 0)
        self.assertGreater(stats["saved_ms"], 0)
        self.assertEqual(stats["misses_by_reason"]["new"], 2)
        self.assertRegex(self.run_cli("stats").out, r"(?m)^hits +2$")

    def test_starts_say_what_they_compiled_and_what_to_do(self):  # fault 447
        self.assertIn("No start left a record", self.run_cli("stats", "--start").out)
        self.assertEqual(self.run_json("stats", "--start"), {"starts": []})
        self.write("m.json", json.dumps({"format": 1, "modules": [
            {"name": "add", "sources": ["add.cu"], "define": {"ADDEND": 1}},
            {"name": "scale" + 90 * "e", "sources": ["scale.cu"]}]}))  # fmt: skip
        driver = {"CUKILN_CUDA_LIBRARY": FAKE_DRIVER}
        self.run_cli("preload", "m.json", env=driver)
        self.write("tile.cuh", "#define TILE 32\n")
        self.run_cli("preload", "m.json", env=driver)
        first, last = self.run_json("stats", "--start")["starts"]
        self.assertEqual((first["hits"], first["compiled"]), (0, 2))
        self.assertEqual((last["hits"], last["compiled"], last["program"], last["sealed"]), (1, 1, "cukiln", False))
        changed, hit = last["modules"]
        self.assertEqual((hit["outcome"], hit["advice"]), ("hit", ""))
        self.assertEqual(changed["reason"], f"header changed: {self.folder}/tile.cuh")
        self.assertIn("cukiln preload MANIFEST after a change", changed["advice"])
        # What another process may have written is escaped.
        (newest,) = sorted((self.store / "v6" / "starts").iterdir())[1:]
        newest.write_text(newest.read_text().replace("header changed", "\\u001b[31mheader"))
        # So is no record: torn, another document, or one that others may write.
        for place, text in enumerate(('{"program": "torn', "[]\n", '{"modules": [{}]}\n', "[" * 4000)):
            self.write(f"store/v6/starts/{place:016}-0000000001.json", text).chmod(0o600)
        self.write("store/v6/starts/0000000000000009-0000000001.json", newest.read_text()).chmod(0o644)
        self.assertEqual(len(self.run_json("stats", "--start")["starts"]), 2)
        code, shown = self.run_on_terminal("--color", "never", "stats", "--start")
        self.assertEqual(code, DONE)
        self.assertNotIn("\x1b", shown)
        self.assertLessEqual(max(map(len, shown.splitlines())), 80, shown)
        self.assertIn("to do: cukiln preload MANIFEST before the start", shown)

    def damage(self):
        """Turns bytes over in every stored cubin."""
        (database,) = self.store.rglob("store.db")
        with sqlite3.connect(database) as db:
            for row, data in db.execute("SELECT id, data FROM payload").fetchall():
                middle = len(data) // 2
                data = data[:middle] + bytes(b ^ 0xFF for b in data[middle : middle + 8]) + data[middle + 8 :]
                db.execute("UPDATE payload SET data=? WHERE id=?", (data, row))
        db.close()

    def test_verify_finds_and_repairs_damage(self):
        key = self.one_key()
        self.assertEqual(self.run_json("verify")["damaged"], 0)
        self.assertIn("1 entry checked, no damage found", self.run_cli("verify").out)
        self.damage()
        result = self.run_cli("verify", expect=FAILED)
        self.assertIn(key[:12], result.out)
        self.assertIn("--repair", result.out)
        document = self.run_json("verify", expect=FAILED)
        self.assertEqual({n: document[n] for n in ("checked", "damaged", "repaired")},
                         {"checked": 1, "damaged": 1, "repaired": 0})  # fmt: skip
        self.assertEqual(document["findings"][0]["key"], key)
        self.assertEqual(self.run_json("verify", "--repair", expect=FAILED)["repaired"], 1)
        self.assertEqual(self.run_json("verify")["checked"], 0)
        self.assertEqual(self.compile("add.cu", "-DADDEND=1", "--arch", "sm_90a")[0]["outcome"], "compiled")

    def test_verify_reports_a_database_that_was_replaced(self):
        self.one_key()
        (database,) = self.store.rglob("store.db")
        os.truncate(database, 0)
        result = self.run_cli("verify", expect=FAILED)
        self.assertIn("starts a new, empty generation", result.err)
        self.assertNotRegex(result.err, "PRAGMA|SELECT", "SQL means nothing to the user")
        self.assertIn("1 damaged, 1 removed", result.out)
        self.assertNotIn("--repair", result.out)
        self.assertEqual(self.run_json("verify")["damaged"], 0)

    def test_a_damaged_index_does_not_stop_a_repair(self):
        self.one_key()
        self.damage()
        (database,) = self.store.rglob("store.db")
        with sqlite3.connect(database) as db:
            db.execute("PRAGMA writable_schema=ON")
            db.execute("CREATE TABLE other(key BLOB PRIMARY KEY)")
            root = "(SELECT rootpage FROM sqlite_schema WHERE name='sqlite_autoindex_other_1')"
            db.execute(f"UPDATE sqlite_schema SET rootpage={root} WHERE name='entry_lru'")
            db.execute("DELETE FROM sqlite_schema WHERE name LIKE '%other%'")
        db.close()
        document = self.run_json("verify", "--repair", expect=FAILED)
        self.assertEqual(document["damaged"], document["repaired"])
        self.assertEqual(self.run_json("verify")["damaged"], 0)
        self.one_key()
        self.assertEqual(self.run_json("verify")["checked"], 1)

    def test_a_damaged_entry_is_compiled_again_and_counted(self):
        key = self.one_key()
        self.damage()
        self.run_cli("show", key, expect=FAILED)
        (module,) = self.compile("add.cu", "-DADDEND=1", "--arch", "sm_90a")
        self.assertEqual((module["outcome"], module["key"]), ("compiled", key))
        self.assertEqual(self.run_json("stats")["corrupt"], 1)


class Doctor(CliTest):
    def checks(self, **options):
        return {c["name"]: c for c in self.run_json("doctor", **options)["checks"]}

    def test_a_missing_driver_is_no_error(self):
        checks = self.checks()
        for name in ("nvrtc", "headers", "worker", "store", "sqlite"):
            self.assertEqual(checks[name]["status"], "ok", checks[name])
        self.assertEqual(checks["driver"]["status"], "missing")
        self.assertTrue(checks["driver"]["advice"])
        self.assertIn(str(self.store), checks["store"]["detail"])

    def test_the_protections_of_the_worker_are_listed(self):  # fault 137
        check = self.checks()["sandbox"]
        active = check["protections"]
        self.assertEqual(set(active), {"seccomp", "landlock", "not_dumpable", "max_tasks", "max_memory_bytes"})
        self.assertEqual(check["status"] == "ok", all(active.values()), check)
        self.assertEqual(check["advice"] == "", check["status"] == "ok")
        for shown, is_active in (("seccomp", active["seccomp"]), (f"Landlock {active['landlock']}", active["landlock"]),
                                 (f"at most {active['max_tasks']} tasks", active["max_tasks"])):  # fmt: skip
            self.assertEqual(shown in check["detail"].split("; no ")[0], bool(is_active))

    @unittest.skipUnless(os.geteuid() == 0, "only root can give up a capability")
    def test_a_protection_that_is_missing_is_named_and_no_error(self):  # fault 137
        done = subprocess.run(["setpriv", "--bounding-set=-setuid", "--inh-caps=-setuid", CUKILN, "--json", "doctor"],
                              env=self.environment, capture_output=True, text=True, timeout=120)  # fmt: skip
        self.assertEqual(done.returncode, DONE, done.stdout)
        (check,) = [c for c in json.loads(done.stdout)["checks"] if c["name"] == "sandbox"]
        self.assertEqual((check["status"], check["protections"]["max_tasks"]), ("missing", 0))
        self.assertIn("no limit of tasks", check["detail"])
        self.assertIn("user namespaces", check["advice"])

    def test_driver_and_devices(self):
        checks = self.checks(env={"CUKILN_CUDA_LIBRARY": str(BINARIES / "libcuda_fake.so"),
                                  "FAKE_CUDA_DEVICES": "2", "FAKE_CUDA_CAPABILITY": "90,100"})  # fmt: skip
        self.assertEqual(checks["driver"]["status"], "ok")
        self.assertIn("sm_90a", checks["devices"]["detail"])
        self.assertIn("sm_100a", checks["devices"]["detail"])

    def test_missing_compiler_and_worker(self):
        env = {"CUKILN_NVRTC_LIBRARY": str(self.folder / "libnvrtc.so"),
               "CUKILN_WORKER": str(self.folder / "worker")}  # fmt: skip
        checks = self.checks(expect=ENVIRONMENT, env=env)
        for name in ("nvrtc", "worker"):
            self.assertEqual(checks[name]["status"], "missing")
            self.assertTrue(checks[name]["advice"])
        self.assertIn(checks["headers"]["status"], ("ok", "missing"))  # there is always a line for headers
        text = self.run_cli("doctor", expect=ENVIRONMENT, env=env).out
        self.assertIn("Something needed is missing or wrong", text)
        self.checks(env=env | {"CUKILN_OFFLINE": "1"})  # exit 0: nothing is to be compiled

    @unittest.skipIf("CUKILN_NVRTC_LIBRARY" in os.environ or "CUKILN_INCLUDE_PATH" in os.environ, "settings name NVRTC")
    def test_the_advice_for_a_missing_nvrtc_works_on_debian_12(self):
        """Its pip refuses to install outside of a virtual environment, which need not be active then."""
        advice = self.checks(expect=ENVIRONMENT, env={"CUKILN_NVRTC_LIBRARY": "/nowhere/libnvrtc.so"})["nvrtc"]["advice"]
        self.assertRegex(advice, r"python3 -m venv DIR\), DIR/bin/pip install nvidia-cuda-nvrtc nvidia-cuda-runtime, then nvrtc_library = ")
        packages = self.folder / "DIR/lib/python3.11/site-packages"
        packages.mkdir(parents=True)
        (packages / "nvidia").symlink_to(Path(__file__).resolve().parents[2] / ".cukiln-cuda/nvidia")
        (library,) = packages.glob("nvidia/cu1?/lib/libnvrtc.so.1?")
        self.write("config/cukiln/config.toml", f'nvrtc_library = "{library}"\n')
        checks = self.checks(expect=None)
        self.assertEqual([checks[name]["status"] for name in ("nvrtc", "headers")], ["ok", "ok"])
        self.assertIn(str(packages), checks["headers"]["detail"])

    def test_doctor_shows_the_limits_of_compiles(self):
        limits = self.checks(env={"CUKILN_JOBS": "3", "CUKILN_MEMORY": "2GiB"})["limits"]
        self.assertEqual((limits["status"], limits["detail"], limits["advice"]),
                         ("ok", "3 compiles concurrently, in 2.0 GiB (the setting memory)", ""))  # fmt: skip
        self.assertIn("CUKILN_MEMORY", self.checks(env={"CUKILN_MEMORY": "100MiB"})["limits"]["advice"])
        self.assertRegex(self.checks()["limits"]["detail"], r"^\d+ compiles? concurrently, in [\d.]+ [KMG]iB \(.+\)$")

    def test_doctor_lists_each_nvrtc_in_use_and_why_others_are_skipped(self):
        if "CUKILN_NVRTC_LIBRARY" in self.environment:
            self.skipTest("an NVRTC was named: no other is looked at")
        detail = self.checks()["nvrtc"]["detail"]
        self.assertIn("for sm_100a, sm_90a", detail)
        library = Path(detail.split(" in ")[1].split(",")[0])
        old = self.folder / "venv/lib/python3.11/site-packages/nvidia/cuda_nvrtc/lib"
        old.mkdir(parents=True)
        (old / "libnvrtc.so.12.6.85").symlink_to(library)  # it is what its name says
        for builtins in library.parent.glob("libnvrtc-builtins.so.*"):
            (old / builtins.name).symlink_to(builtins)
        result = self.run_cli("--json", "doctor", env={"VIRTUAL_ENV": str(self.folder / "venv")},
                              expect=None)  # fmt: skip
        newer, older = [c for c in result.json()["checks"] if c["name"] == "nvrtc"]
        self.assertIn(f"{library}, for sm_100a", newer["detail"])
        self.assertNotIn("sm_90a", newer["detail"])
        self.assertEqual(newer["status"], "ok")
        self.assertIn(f"({old}/libnvrtc.so.12.6.85) is too old for sm_100a, which needs 12.8",
                      newer["advice"])  # fmt: skip
        self.assertIn(f"{old}/libnvrtc.so.12.6.85, for sm_90a", older["detail"])

    def test_an_nvrtc_that_is_too_old_is_wrong(self):
        library = self.checks()["nvrtc"]["detail"].split(" in ")[1].split(",")[0]
        old = self.folder / "libnvrtc.so.12.6.85"
        old.symlink_to(library)
        checks = self.checks(expect=ENVIRONMENT, env={"CUKILN_NVRTC_LIBRARY": str(old)})
        self.assertEqual(checks["nvrtc"]["status"], "wrong")
        self.assertIn("too old for sm_100a, which needs 12.8", checks["nvrtc"]["advice"])

    def test_an_unusable_store_is_wrong(self):
        self.store.mkdir(mode=0o755)
        self.store.chmod(0o777)
        checks = self.checks(expect=ENVIRONMENT)
        self.assertEqual(checks["store"]["status"], "wrong")
        self.assertIn("chmod", checks["store"]["detail"])

    @unittest.skipUnless(shutil.which("unshare"), "a small file system needs unshare")
    def test_a_full_disk_is_wrong(self):
        small = self.folder / "small"
        small.mkdir()
        script = (f"mount -t tmpfs -o size=3m,mode=700 tmpfs {small} || exit 99; {CUKILN} ls >&2; "
                  f"head -c 4m /dev/zero 2>/dev/null >{small}/filler; {CUKILN} doctor")  # fmt: skip
        done = subprocess.run(["unshare", "-rm", "sh", "-c", script], cwd=self.folder, capture_output=True, text=True,
                              env=self.environment | {"CUKILN_STORE": str(small / "store")}, timeout=60)  # fmt: skip
        if done.returncode not in (DONE, ENVIRONMENT):
            self.skipTest(f"no file system could be mounted: {done.stderr}")
        self.assertEqual(done.returncode, ENVIRONMENT, done.stdout)
        self.assertRegex(done.stdout, r"(?s)store +wrong .*its disk is nearly full: .* free\n +do: free space on the disk")

    def test_text_fits_a_terminal(self):
        _, shown = self.run_on_terminal("doctor", "--color", "never")
        words = [line for line in shown.splitlines() if len(line) > 80]
        self.assertTrue(all("/" in line for line in words), words)  # a path is not broken
        self.assertIn("Everything needed is in place.", shown)


class UnusableStore(CliTest):
    about_the_disk = (["ls"], ["show", "abcdef"], ["verify"], ["gc"], ["stats"], ["rm", "--all"])

    def check(self, advice, env=None, compiles=STORE):
        for command in self.about_the_disk:
            result = self.run_cli(*command, expect=STORE, env=env)
            self.assertEqual(result.out, "")
            self.assertIn(advice, result.err)
            self.assertEqual(result.err.count(advice), 1, "said once")
            self.run_json(*command, expect=STORE, env=env)["error"]
        result = self.run_cli("compile", "add.cu", "-DADDEND=1", "--arch", "sm_90a", expect=compiles, env=env)
        self.assertIn("1 compiled", result.out)
        self.assertIn("0 stored, 1 not stored: ", result.out)
        return result

    def test_a_folder_open_to_others(self):
        self.store.mkdir()
        self.store.chmod(0o777)
        result = self.check("chmod 700")
        self.assertEqual(result.err.count("warning: "), 1)
        self.assertEqual(os.listdir(self.store), [])

    def test_a_symbolic_link(self):
        (self.folder / "elsewhere").mkdir(mode=0o700)
        self.store.symlink_to(self.folder / "elsewhere")
        self.check(str(self.store))

    def test_a_file_in_its_place(self):
        self.write("store", "")
        self.check(str(self.store))

    @NOT_ROOT
    def test_a_folder_that_cannot_be_written(self):
        self.store.mkdir(mode=0o500)
        self.check(str(self.store))

    def test_a_read_only_store_is_reported_with_what_to_do(self):
        self.one_key()
        compile = ("compile", "add.cu", "-DADDEND=1", "--arch", "sm_90a")
        self.run_cli("export", "-o", "bundle")
        (self.store / "v6").chmod(0o500)
        self.assertIn(f"chmod 700 {self.store}/v6\n", self.run_cli(*compile).err)  # a hit
        self.assertIn("is read-only", self.run_cli("gc", expect=STORE).err)
        self.assertIn("Imported 0 entries; 1 was already there", self.run_cli("import", "bundle", "--insecure").out)
        (self.store / "v6").chmod(0o700)
        (database,) = self.store.rglob("store.db")
        with sqlite3.connect(database) as db:
            db.execute("PRAGMA user_version=99")
            db.execute("UPDATE meta SET v=99 WHERE k='min_writer'")
        db.close()
        newer = self.run_cli(*compile).err
        self.assertIn("a newer cukiln wrote it", newer)
        self.assertNotIn("chmod", newer)

    def test_disabled(self):
        self.check("CUKILN_DISABLE_STORE", env={"CUKILN_DISABLE_STORE": "1"}, compiles=DONE)
        self.assertFalse(self.store.exists())

    def test_other_users_cannot_read_the_files(self):
        self.one_key()
        for path in [self.store, *self.store.rglob("*")]:
            self.assertEqual(path.stat().st_mode & 0o077, 0, path)


class FillingTheStore(CliTest):
    """Where that is the only purpose, a store that refuses is exit code 4, and nothing else is."""

    arguments = ("compile", "add.cu", "-DADDEND=1", "--arch", "sm_90a")

    def setUp(self):
        super().setUp()
        self.write("m.json", """{"format":1,"modules":[
            {"name":"add","sources":["add.cu"],"define":{"ADDEND":"1"},"targets":["sm_90a"]},
            {"name":"scale","sources":["scale.cu"],"targets":["sm_90a"]}]}""")

    def spoil(self):
        self.store.mkdir(exist_ok=True)
        self.store.chmod(0o777)

    def test_stored_modules_are_counted(self):
        report = self.run_json(*self.arguments)
        self.assertEqual((report["stored"], report["modules"][0]["stored"]), (1, True))
        again = self.run_json(*self.arguments)
        self.assertEqual((again["hits"], again["stored"], again["modules"][0]["stored"]), (1, 0, False))
        self.assertEqual(again["modules"][0]["not_stored"], "")

    def test_a_refusing_store_gives_exit_4_after_the_work(self):  # fault 126
        self.spoil()
        for arguments, modules in ((self.arguments, 1), (("preload", "m.json", "--no-load"), 2)):
            report = self.run_json(*arguments, expect=STORE)
            self.assertEqual((report["compiled"], report["stored"]), (modules, 0))
            for module in report["modules"]:
                self.assertEqual((module["outcome"], module["stored"]), ("compiled", False))
                self.assertTrue(module["not_stored"])
        self.assertIn("0 stored, 2 not stored: ", self.run_cli("preload", "m.json", "--no-load", expect=STORE).out)

    def test_an_entry_larger_than_the_store_is_refused(self):  # fault 126
        report = self.run_json(*self.arguments, expect=STORE, env={"CUKILN_MAX_SIZE": "1KiB"})
        self.assertIn("larger than the store's limit", report["modules"][0]["not_stored"])

    def test_with_an_output_a_refusing_store_is_no_error(self):
        self.spoil()
        self.run_cli(*self.arguments, "-o", "add.cubin")
        self.run_cli("preload", "m.json", env={"CUKILN_CUDA_LIBRARY": FAKE_DRIVER})

    def test_a_module_that_is_never_stored_is_not_refused(self):
        self.write("when.cu", 'extern "C" __global__ void when(char* x) { *x = __TIME__[0]; }\n')
        report = self.run_json("compile", "when.cu", "--arch", "sm_90a")
        self.assertEqual((report["stored"], report["modules"][0]["stored"]), (0, False))
        self.assertIn("__TIME__", report["modules"][0]["not_stored"])
        off = self.run_json(*self.arguments, env={"CUKILN_DISABLE_STORE": "1"})
        self.assertEqual((off["compiled"], off["stored"]), (1, 0))

    def test_other_errors_take_precedence_over_a_refusing_store(self):
        self.spoil()
        self.run_cli("compile", "add.cu", "broken.cu", "-DADDEND=1", expect=FAILED)
        self.run_cli(*self.arguments, "--no-such-flag", expect=USAGE)
        self.run_cli(*self.arguments, expect=ENVIRONMENT, env={"CUKILN_NVRTC_LIBRARY": "/nowhere/libnvrtc.so"})

    def test_import_prints_what_was_not_stored(self):  # fault 126
        self.run_cli(*self.arguments)
        self.run_cli("compile", "scale.cu", "--arch", "sm_90a")
        self.run_cli("export", "-o", "all.ckb")
        self.run_cli("rm", "--all")
        taken = self.run_json("import", "all.ckb", "--insecure", expect=STORE, env={"CUKILN_MAX_SIZE": "1KiB"})
        self.assertEqual((taken["entries"], taken["stored"]), (2, 0))
        self.assertEqual([r["entries"] for r in taken["not_stored"]], [2])
        self.assertIn("larger", taken["not_stored"][0]["reason"])
        off = self.run_json("import", "all.ckb", "--insecure", env={"CUKILN_DISABLE_STORE": "1"})
        self.assertEqual((off["stored"], len(off["not_stored"])), (0, 1))
        self.spoil()
        taken = self.run_cli("import", "all.ckb", "--insecure", expect=STORE)
        self.assertIn("Imported 0 entries", taken.out)
        self.assertIn("2 entries not stored: ", taken.err)
        self.assertIn("chmod", taken.err)
        bundle = bytearray((self.folder / "all.ckb").read_bytes())
        bundle[-1] ^= 1
        self.write("bad.ckb", bytes(bundle))
        self.run_cli("import", "bad.ckb", "--insecure", expect=FAILED)
        self.store.chmod(0o700)
        self.assertEqual(self.run_json("import", "all.ckb", "--insecure")["stored"], 2)


class Blobs(CliTest):
    def setUp(self):
        super().setUp()
        self.put_blob("triton", "KEY/add.cubin", "x" * 5000)
        self.put_blob("triton", "KEY/add.json", "{}")
        self.put_blob("inductor", "k\x01\xe9", "")

    def blobs(self, *arguments):
        return self.run_json("ls", "--blobs", *arguments)["blobs"]

    def test_they_are_listed_beside_entries(self):
        self.assertEqual(self.run_json("ls"), {"entries": []})
        self.assertIn("'cukiln ls --blobs' lists the blobs", self.run_cli("ls").out)
        largest = self.blobs("--sort", "size")[0]
        self.assertEqual({n: largest[n] for n in ("kind", "key", "size_bytes", "hits")},
                         {"kind": "triton", "key": "KEY/add.cubin", "size_bytes": 5000, "hits": 0})  # fmt: skip
        self.assertEqual([b["key"] for b in self.blobs("--name", "induc*")], ["0x6b01c3a9"])
        self.assertRegex(self.run_cli("ls", "--blobs").out, r"(?m)^3 blobs, 4\.88 KiB$|^3 blobs, 4\.9 KiB$")
        self.compile("scale.cu", "--arch", "sm_90a")
        self.assertRegex(self.run_cli("ls").out, r"(?m)^1 entry, .*\nand 3 blobs with 4\.")

    def test_one_is_shown_and_removed_by_its_id(self):
        entry = self.one_key("scale.cu", "--arch", "sm_90a")
        (blob,) = [b for b in self.blobs() if b["key"] == "KEY/add.json"]
        self.assertEqual(self.run_json("show", blob["id"][:12]), blob)
        self.assertRegex(self.run_cli("show", blob["id"][:12]).out, r"(?m)^key +KEY/add\.json$")
        self.assertIn("no entry", self.run_cli("show", "0123456789ab", expect=FAILED).err)
        self.assertEqual(self.run_json("rm", blob["id"][:12]), {"removed": 1})
        self.assertEqual(len(self.blobs()), 2)
        self.run_cli("rm", self.blobs()[0]["id"], "0123456789ab", expect=FAILED)
        self.assertEqual(len(self.blobs()), 2)  # one is unknown: nothing is removed
        self.assertEqual(self.run_json("rm", self.blobs()[0]["id"], entry), {"removed": 2})
        self.assertEqual((len(self.blobs()), self.run_json("ls")["entries"]), (1, []))
        self.assertEqual(self.run_json("rm", "--all"), {"removed": 1})

    def test_they_are_counted_checked_and_evicted(self):
        stats = self.run_json("stats")
        self.assertEqual(stats["blobs"], {"blobs": 3, "size_bytes": 5002, "hits": 0, "misses": 0, "waits": 0,
                                          "stored": 3, "evicted": 0})
        self.assertRegex(self.run_cli("stats").out, r"(?m)^blobs +3 ")
        self.assertIn("0 entries and 3 blobs checked, no damage found", self.run_cli("verify").out)
        (database,) = self.store.rglob("store.db")
        with sqlite3.connect(database) as connection:
            connection.execute("UPDATE payload SET data=x'7b7e' WHERE data=x'7b7d'")
        connection.close()
        report = self.run_json("verify", "--repair", expect=FAILED)
        self.assertEqual((report["blobs"], report["damaged"], report["repaired"]), (3, 1, 1))
        self.assertIn("blob", report["findings"][0]["what"])
        report = self.run_json("gc", "--max-size", "1")
        self.assertEqual((report["evicted"], report["blobs"]), (0, 2))
        self.assertEqual(self.blobs(), [])
        self.assertEqual(self.run_json("stats")["blobs"]["evicted"], 2)


class SystemStore(CliTest):
    def test_its_entries_are_listed_and_hit_and_kept(self):
        key = self.one_key()
        self.store.rename(self.folder / "system")
        self.assertEqual([e["key"] for e in self.run_json("ls")["entries"]], [key])
        self.assertEqual(self.compile("add.cu", "-DADDEND=1", "--arch", "sm_90a")[0]["outcome"], "hit")
        result = self.run_cli("rm", key)
        self.assertIn("only in the system store, which is read-only", result.err)
        self.assertEqual(len(self.run_json("ls")["entries"]), 1)


if __name__ == "__main__":
    unittest.main()
