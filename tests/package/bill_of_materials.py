# SPDX-License-Identifier: Apache-2.0
"""A bill of materials is true of what it describes.

usage: bill_of_materials.py BILL WHEEL    fault 366: the wheel has the versions that its bill names
       bill_of_materials.py BILL DEB…     fault 367: the bill names every library that these depend on
"""

import hashlib
import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

RUNTIMES = {"libc6", "libgcc-s1", "libstdc++6"}  # of the compiler, of which every program takes what is there


def check_wheel(bill, components, wheel):
    assert bill["metadata"]["component"]["hashes"][0]["content"] == hashlib.sha256(wheel.read_bytes()).hexdigest()
    with zipfile.ZipFile(wheel) as files:
        library = files.read("cukiln/lib/libcukiln.so")
    for name in ("SQLite", "zstd"):  # the libraries that have their version in them
        version = components[name]["pedigree"]["ancestors"][0]["version"]
        assert f"\0{version}\0".encode() in library, f"{wheel.name} has not {name} {version}"
    assert {"SQLite", "zstd", "libsodium", "hiredis", "fmt", "xxHash", "nlohmann-json", "toml++", "CLI11", "libstdc++"} <= {
        name for name, component in components.items() if component.get("hashes")
    }, "a component has no digest, or is missing"


def check_debian_packages(components, packages):
    named = {re.match(r"pkg:deb/\w+/([^@]+)@", component["purl"]) for component in components.values()}
    named = {match[1] for match in named if match}
    depends = "".join(subprocess.check_output(["dpkg-deb", "-f", package, "Depends"], text=True) for package in packages)
    needed = {name for name in re.findall(r"(?:^|, )(lib[\w.+-]+)", depends, re.MULTILINE) if "cukiln" not in name}
    assert needed > RUNTIMES, needed
    assert needed - RUNTIMES <= named, f"the bill lacks {needed - RUNTIMES - named}"
    assert "libssl3" in {name.removesuffix("t64") for name in named}, "the bill lacks what curl encrypts with"


def main():
    bill = json.loads(Path(sys.argv[1]).read_text())
    components = {component["name"]: component for component in bill["components"]}
    assert {"NVRTC", "nvJitLink"} <= components.keys()
    if sys.argv[2].endswith(".whl"):
        check_wheel(bill, components, Path(sys.argv[2]))
    else:
        check_debian_packages(components, sys.argv[2:])


if __name__ == "__main__":
    main()
