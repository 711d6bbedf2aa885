# SPDX-License-Identifier: Apache-2.0
"""The fields of each command's JSON are those that src/cli/README.md promises."""

import json
import os
import re
import subprocess
import unittest
from pathlib import Path

from cli import BINARIES, CUKILN, CliTest, FAILED, FAKE_DRIVER, USAGE

SOURCES = Path(__file__).resolve().parents[2] / "src"
README = SOURCES / "cli/README.md"
KERNEL = {"name", "lowered", "registers", "shared_bytes", "local_bytes"}
# What programs rely on; a field may be added beside these.
CONTRACT = {
    ("compile", ""): {"modules", "hits", "compiled", "failed", "stored", "milliseconds"},
    ("compile", "modules[]"): {"name", "source", "target", "key", "outcome", "reason", "milliseconds", "cubin_bytes",
                               "stored", "not_stored", "error", "kernels"},
    ("compile", "kernels[]"): KERNEL,
    ("ls", "entries[]"): {"key", "name", "source", "target", "flags", "compiler", "cubin_bytes", "compile_ms",
                          "created", "last_used", "hits", "kernels", "dependencies", "origin"},
    ("ls", "kernels[]"): KERNEL,
    ("explain", ""): {"outcome", "target", "key", "nearest", "differences"},
    ("explain", "differences[]"): {"field", "was", "now"},
    ("stats", ""): {"entries", "bytes", "hits", "misses", "compiles", "stored", "evicted", "corrupt",
                    "singleflight_waits"},
    ("verify", ""): {"checked", "damaged", "repaired"},
    ("doctor", "checks[]"): {"name", "status", "detail", "advice", "protections"},
    ("doctor", "checks[].protections"): {"seccomp", "landlock", "not_dumpable", "max_tasks", "max_memory_bytes"},
}  # fmt: skip

VARIABLE = '__constant__ int table[3];\nextern "C" __global__ void one(int* x) { *x = table[*x]; }\n'


def promised():
    """(command, object) -> fields, of the table."""
    table = re.search(r"(?ms)^## JSON\n(.*?)^## ", README.read_text())[1]
    fields, commands, where = {}, [], ""
    for row in re.findall(r"(?m)^\| (.*) \|$", table)[1:]:
        command, place, names = (cell.strip() for cell in row.split("|"))
        where = place or where
        commands = re.findall(r"`(\w+)`", command) or ([command] if command else commands)
        names = re.sub(r"\(.*?\)|;.*", "", names)
        for one in commands:
            same = re.search(r"those of `(\w+)`", names)
            inherited = fields[same[1], "entries[]"] if same else set()
            found = set(re.findall(r"`(\w+)`", re.sub(r"those of `\w+`", "", names)))
            key = (one, "" if where == "document" else where.strip("`"))
            fields[key] = found | inherited | (set() if place else fields[key])
    return fields


def objects(document, path=""):
    """Path -> names of the fields, of each object in a document; of a list's elements together."""
    if isinstance(document, list):
        for element in document:
            yield from objects(element, path + "[]")
    elif isinstance(document, dict):
        yield path, set(document)
        for name, value in document.items():
            if name not in ("counters", "dropped_by_reason"):  # one field for each counter, or reason
                yield from objects(value, f"{path}.{name}" if path else name)


class Fields(CliTest):
    def check(self, command, *documents):
        """The documents have all promised objects, and these have the promised fields."""
        wanted = {path: fields for (one, path), fields in promised().items() if one == command}
        found = {}
        for document in documents:
            for path, fields in objects(document):
                path = re.sub(r".*\.(?=(?:kernels|variables)\[\]$)", "", path)  # of modules, of entries
                found[path] = found.get(path, set()) | fields
        self.assertEqual(wanted, found, command)

    def test_the_table_keeps_the_contract(self):
        table = promised()
        for key, fields in CONTRACT.items():
            self.assertLessEqual(fields, table[key], key)

    def test_the_table_has_every_command(self):
        script = self.run_json("completion", "bash")["script"]
        commands = set(re.findall(r"(?m)^help\t(\S+)\t", script)) - {"help"}
        self.assertEqual({command for command, _ in promised() if " " not in command}, commands)

    def test_modules(self):
        line = ("scale.cu", "--arch", "sm_90a")
        self.write("v.cu", VARIABLE)
        self.check("compile", self.run_json("compile", *line), self.run_json("compile", "v.cu", "--name", "table"))
        self.write("m.json", json.dumps({"format": 1, "modules": [
            {"name": "s", "sources": ["scale.cu"]}, {"name": "v", "sources": ["v.cu"], "names": ["table"]}]}))  # fmt: skip
        self.check("preload", self.run_json("preload", "m.json", env={"CUKILN_CUDA_LIBRARY": FAKE_DRIVER}),
                   self.run_json("preload", "m.json", "--system-store", "system"))
        self.check("`stats --start`", self.run_json("stats", "--start"))
        self.check("fits", self.run_json("fits", "m.json", env={"CUKILN_CUDA_LIBRARY": FAKE_DRIVER}, expect=None))
        self.write("tile.cuh", "#define TILE 32\n")
        self.check("explain", self.run_json("explain", *line))
        several = self.run_json("explain", "scale.cu", "--arch", "sm_90a,sm_100a")
        self.assertEqual(set(several), {"explanations"})
        self.assertEqual(set(several["explanations"][0]), promised()["explain", ""])
        self.check("record", self.run_json("record", "-o", "r.json", "--", CUKILN, "compile", *line))

    @unittest.skipUnless((SOURCES / "addons/link").exists(), "a build without src/addons/link")
    def test_entries(self):
        self.write("v.cu", VARIABLE)
        variable = self.one_key("v.cu", "--arch", "sm_90a", "--name", "table")
        key = self.one_key("scale.cu", "--arch", "sm_90a")
        self.write("extra.ptx", ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry e() { ret; }\n")
        linked = self.one_key("scale.cu", "--arch", "sm_90a", "--link", "rdc", "--object", "extra.ptx")
        self.put_blob("triton", "KEY/a", "x")
        self.check("ls", self.run_json("ls"), self.run_json("ls", "--blobs"))
        self.check("show", *(self.run_json("show", one) for one in (key, variable, linked)))
        self.check("stats", self.run_json("stats"))
        self.check("keygen", self.run_json("keygen", "-o", "k.key"))
        self.check("export", self.run_json("export", "-o", "b.ckb", "--sign", "k.key"))
        self.check("`export --sources`", self.run_json("export", "--sources", "laid", key, expect=FAILED))
        take = ("import", "b.ckb", "--trust", "k.key.pub")
        self.check("import", self.run_json(*take), self.run_json(*take, env={"CUKILN_DISABLE_STORE": "1"}))
        self.check("gc", self.run_json("gc"))
        self.check("rm", self.run_json("rm", key))
        (database,) = self.store.rglob("store.db")
        os.truncate(database, 0)
        self.check("verify", self.run_json("verify", expect=FAILED))

    def test_the_machine(self):
        self.check("doctor", self.run_json("doctor"))
        self.check("config", self.run_json("config"))
        self.check("completion", self.run_json("completion", "bash"))
        self.check("any with `--help`", self.run_json("gc", "--help"), self.run_json("--help"))
        self.assertEqual(self.run_json("help", "gc")["help"], self.run_cli("help", "gc").out)
        self.check("`cukiln --version`", self.run_json("--version"))
        broken = self.run_cli("--json", "show", "nothing", expect=USAGE).json()
        self.check("any that fails", broken)

    @unittest.skipUnless((BINARIES / "cukilnd").exists(), "a build without cukilnd")
    def test_the_daemon(self):
        (self.folder / "run").mkdir(mode=0o700)
        self.environment |= {"CUKILN_NVRTC_LIBRARY": str(BINARIES / "libnvrtc_fake.so")}
        self.addCleanup(self.run_cli, "daemon", "stop", expect=None)
        started = self.run_json("daemon", "start")
        self.write("slow.cu", f'// fake: wait {self.folder}/go\nextern "C" __global__ void slow(int* x) {{}}\n')
        client = subprocess.Popen([CUKILN, "compile", "slow.cu", "--arch", "sm_90a", "--json"], cwd=self.folder,
                                  env=self.environment, stdout=subprocess.DEVNULL)  # fmt: skip
        self.addCleanup(client.wait)
        running = self.run_json("daemon", "status")
        while not running["compiles"] and client.poll() is None:
            running = self.run_json("daemon", "status")
        self.write("go", "")
        self.check("daemon", started, running)
        self.assertEqual(client.wait(60), 0)
        self.assertEqual(set(self.run_json("daemon", "stop")), {"running", "socket"})


if __name__ == "__main__":
    unittest.main()
