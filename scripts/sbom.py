#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes what cukiln is made of as a CycloneDX document: libraries with the versions of this machine, the
header-only ones among them, and what it opens at run time. Validates the document against CycloneDX's schema.

usage: sbom.py OUTPUT
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import uuid
from datetime import datetime, timezone
from pathlib import Path
from typing import NamedTuple

from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentScope, ComponentType
from cyclonedx.model.license import DisjunctiveLicense, LicenseExpression
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL

REPOSITORY = Path(__file__).resolve().parents[1]


class Library(NamedTuple):
    package: str  # Debian's, which scripts/bootstrap installs
    name: str
    license: str
    note: str


LIBRARIES = [
    Library("libsqlite3-dev", "SQLite", "blessing", "the store"),
    Library("libzstd-dev", "zstd", "BSD-3-Clause OR GPL-2.0-only", "compression"),
    Library("libsodium-dev", "libsodium", "ISC", "BLAKE2b and Ed25519"),
    Library("libhiredis-dev", "hiredis", "BSD-3-Clause", "remote stores in Redis; programs only"),
    Library("libcurl4-openssl-dev", "curl", "curl", "remote stores over HTTP; programs only"),
    Library("libcpp-httplib-dev", "cpp-httplib", "MIT", "the daemon's admin HTTP server"),
    Library("libfmt-dev", "fmt", "MIT", "compiled in"),
    Library("libxxhash-dev", "xxHash", "BSD-2-Clause", "compiled in"),
    Library("nlohmann-json3-dev", "nlohmann-json", "MIT", "compiled in"),
    Library("libtomlplusplus-dev", "toml++", "MIT", "compiled in"),
    Library("libcli11-dev", "CLI11", "BSD-3-Clause", "compiled in; command line only"),
]


def installed_version(package: str) -> str:
    found = subprocess.run(
        ["dpkg-query", "-W", "-f", "${Version}", package], capture_output=True, text=True
    )
    if found.returncode != 0 or not found.stdout:
        raise SystemExit(f"sbom.py: {package} is not installed: run scripts/bootstrap --packages")
    return found.stdout


def cukiln_version() -> str:
    header = (REPOSITORY / "include/cukiln/version.hpp").read_text()
    return ".".join(re.findall(r"^#define CUKILN_VERSION_[A-Z]+ (\d+)$", header, re.MULTILINE))


def distribution() -> str:
    release = Path("/etc/os-release").read_text()
    found = re.search(r"^ID=\"?([a-z]+)", release, re.MULTILINE)
    return found[1] if found else "debian"


def nvrtc_pin() -> str:
    found = re.search(r"nvidia-cuda-nvrtc==([0-9.]+)", (REPOSITORY / "scripts/bootstrap").read_text())
    if not found:
        raise SystemExit("sbom.py: scripts/bootstrap pins no nvidia-cuda-nvrtc")
    return found[1]


def document() -> Bom:
    version = cukiln_version()
    main = Component(
        name="cukiln",
        version=version,
        type=ComponentType.LIBRARY,
        bom_ref=f"cukiln@{version}",
        licenses=[DisjunctiveLicense(id="Apache-2.0")],
        purl=PackageURL("generic", None, "cukiln", version),
    )
    components = [
        Component(
            name=library.name,
            version=(found := installed_version(library.package)),
            type=ComponentType.LIBRARY,
            bom_ref=f"{library.package}@{found}",
            description=library.note,
            licenses=[LicenseExpression(library.license)],
            purl=PackageURL("deb", distribution(), library.package, found),
        )
        for library in LIBRARIES
    ]
    nvrtc = nvrtc_pin()
    components.append(
        Component(
            name="NVRTC",
            version=nvrtc,
            type=ComponentType.LIBRARY,
            bom_ref=f"nvidia-cuda-nvrtc@{nvrtc}",
            description="opened at run time, not part of cukiln: 12.8 or later; this one in the tests",
            scope=ComponentScope.OPTIONAL,
            licenses=[DisjunctiveLicense(name="NVIDIA CUDA Toolkit EULA")],
            purl=PackageURL("pypi", None, "nvidia-cuda-nvrtc", nvrtc),
        )
    )
    bom = Bom(components=components)
    bom.metadata.component = main
    bom.register_dependency(main, components)
    # The same inputs give the same bytes.
    named = "\n".join([str(main.purl), *sorted(str(component.purl) for component in components)])
    bom.serial_number = uuid.uuid5(uuid.NAMESPACE_URL, named)
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
    bom.metadata.timestamp = datetime.fromtimestamp(epoch, timezone.utc)
    return bom


def main() -> None:
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    text = make_outputter(document(), OutputFormat.JSON, SchemaVersion.V1_6).output_as_string(indent=2)
    if error := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
        raise SystemExit(f"sbom.py: the document is not valid: {error}")
    Path(sys.argv[1]).write_text(text + "\n")


if __name__ == "__main__":
    main()
