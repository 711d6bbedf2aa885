#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes what a package of cukiln is made of as a CycloneDX document: the Debian packages that it is linked with or that are
compiled into it, and what it opens at run time. Validates the document against CycloneDX's schema.

usage: sbom.py OUTPUT          the Debian packages, if they are built on this machine
       sbom.py OUTPUT WHEEL    that wheel, by what scripts/bootstrap noted when it made .cukiln-wheel
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import uuid
from collections.abc import Iterable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import NamedTuple

from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentScope, ComponentType, Pedigree
from cyclonedx.model.license import DisjunctiveLicense, LicenseExpression
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL

REPOSITORY = Path(__file__).resolve().parents[1]


class Library(NamedTuple):
    package: str  # Debian's with its headers
    name: str
    license: str
    note: str
    shared: str = ""  # what the Debian packages are linked with; all else is in the files of cukiln


CURL = Library("libcurl4-openssl-dev", "curl", "curl", "remote stores over HTTP; programs only", "libcurl.so")
LIBRARIES = [
    Library("libsqlite3-dev", "SQLite", "blessing", "the store", "libsqlite3.so"),
    Library("libzstd-dev", "zstd", "BSD-3-Clause OR GPL-2.0-only", "compression", "libzstd.so"),
    Library("libsodium-dev", "libsodium", "ISC", "BLAKE2b and Ed25519"),
    Library("libhiredis-dev", "hiredis", "BSD-3-Clause", "remote stores in Redis; programs only", "libhiredis.so"),
    CURL,
    Library("libcpp-httplib-dev", "cpp-httplib", "MIT", "the daemon's admin HTTP server", "libcpp-httplib.so"),
    Library("libfmt-dev", "fmt", "MIT", "compiled in"),
    Library("libxxhash-dev", "xxHash", "BSD-2-Clause", "compiled in"),
    Library("nlohmann-json3-dev", "nlohmann-json", "MIT", "compiled in"),
    Library("libtomlplusplus-dev", "toml++", "MIT", "compiled in"),
    Library("libcli11-dev", "CLI11", "BSD-3-Clause", "compiled in; command line only"),
]
OPENSSL = Library("libssl-dev", "OpenSSL", "Apache-2.0", "what curl and cpp-httplib encrypt with; programs only", "libssl.so")
GCC = Library("libstdc++-dev", "libstdc++", "GPL-3.0-or-later WITH GCC-exception-3.1", "in the compile worker")
OPENED = [("NVRTC", "nvidia-cuda-nvrtc", "12.8 or later"), ("nvJitLink", "nvidia-nvjitlink", "of NVRTC's CUDA, to link modules")]


class Package(NamedTuple):
    """A binary package of Debian's, and the source package from which it was built."""

    name: str
    version: str
    architecture: str
    source: str
    source_version: str
    sha256: str = ""


FORMAT = "${Package} ${Version} ${Architecture} ${source:Package} ${source:Version}\n"


def output_of(*command: str | Path) -> str:
    found = subprocess.run(command, capture_output=True, text=True)
    if found.returncode != 0:
        raise SystemExit(f"sbom.py: '{' '.join(map(str, command))}' failed: {found.stderr.strip()}; run scripts/bootstrap --packages")
    return found.stdout


def installed(name: str) -> Package:
    package = Package(*output_of("dpkg-query", "--show", f"--showformat={FORMAT}", name).splitlines()[0].split())
    # The indexes that apt has fetched name digests of the versions of today only.
    known = output_of("apt-cache", "show", f"{package.name}={package.version}")
    sha256 = re.search(r"^SHA256: (\w+)$", known, re.MULTILINE)
    return package._replace(sha256=sha256[1] if sha256 else "")


def owner(file: Path) -> Package:
    # Of a merged /usr, dpkg knows some paths as they were before.
    return installed(output_of("dpkg-query", "--search", f"*{str(file).removeprefix('/usr')}").split(": ")[0])


def digest(sha256: str) -> list[HashType]:
    return [HashType(alg=HashAlgorithm.SHA_256, content=sha256)] if sha256 else []


def of_debian_packages() -> Iterator[tuple[Library, Package]]:
    for library in LIBRARIES:
        package = installed(library.package)
        if library.shared:
            files = output_of("dpkg-query", "--listfiles", library.package).splitlines()
            link = next(Path(file) for file in files if file.endswith(f"/{library.shared}"))
            package = owner(link.resolve())
            if library is CURL:
                ssl = re.search(r"=> (\S*/libssl\.so\S*)", output_of("ldd", link))
                if not ssl:
                    raise SystemExit(f"sbom.py: {link} has no OpenSSL")
                yield OPENSSL, owner(Path(ssl[1]))
        yield library, package
    yield GCC, owner(Path(output_of("g++", "-print-file-name=libstdc++.a").strip()).resolve())


def of_wheel(architecture: str) -> Iterator[tuple[Library, Package]]:
    by_name = {library.package: library for library in LIBRARIES}
    by_name |= dict.fromkeys(("libstdc++-10-dev", f"libstdc++-10-dev-{architecture}-cross"), GCC)
    for line in (REPOSITORY / ".cukiln-wheel/unpacked.txt").read_text().splitlines():
        package = Package(*line.split())
        if package.architecture in (architecture, "all") and package.name in by_name:
            yield by_name[package.name], package


def component(library: Library, package: Package, distribution: str) -> Component:
    upstream = re.split("[-+]", package.version.split(":")[-1])[0]
    return Component(
        name=library.name,
        version=package.version,
        type=ComponentType.LIBRARY,
        bom_ref=f"{package.name}@{package.version}",
        description=library.note,
        licenses=[LicenseExpression(library.license)],
        hashes=digest(package.sha256),
        purl=PackageURL("deb", distribution, package.name, package.version, {"arch": package.architecture}),
        pedigree=Pedigree(
            ancestors=[Component(name=library.name, version=upstream, type=ComponentType.LIBRARY)],
            notes=f"with the patches of the source package {package.source} {package.source_version}",
        ),
    )


def opened(name: str, wheel: str, note: str) -> Component:
    found = re.search(rf"{wheel}==([0-9.]+)", (REPOSITORY / "scripts/bootstrap").read_text())
    if not found:
        raise SystemExit(f"sbom.py: scripts/bootstrap pins no {wheel}")
    return Component(
        name=name,
        version=found[1],
        type=ComponentType.LIBRARY,
        bom_ref=f"{wheel}@{found[1]}",
        description=f"opened at run time, not part of cukiln: {note}; this one in the tests",
        scope=ComponentScope.OPTIONAL,
        licenses=[DisjunctiveLicense(name="NVIDIA CUDA Toolkit EULA")],
        purl=PackageURL("pypi", None, wheel, found[1]),
    )


def cukiln_version() -> str:
    header = (REPOSITORY / "include/cukiln/version.hpp").read_text()
    return ".".join(re.findall(r"^#define CUKILN_VERSION_[A-Z]+ (\d+)$", header, re.MULTILINE))


def distribution_here() -> str:
    release = Path("/etc/os-release").read_text()
    found = re.search(r"^ID=\"?([a-z]+)", release, re.MULTILINE)
    return found[1] if found else "debian"


def document(main: Component, components: Iterable[Component]) -> Bom:
    bom = Bom(components=components)
    bom.metadata.component = main
    bom.register_dependency(main, bom.components)
    # The same inputs give the same bytes.
    named = "\n".join([str(main.purl), *sorted(str(component.purl) for component in bom.components)])
    bom.serial_number = uuid.uuid5(uuid.NAMESPACE_URL, named)
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
    bom.metadata.timestamp = datetime.fromtimestamp(epoch, timezone.utc)
    return bom


def main() -> None:
    if len(sys.argv) not in (2, 3):
        raise SystemExit(__doc__)
    version = cukiln_version()
    if wheel := Path(sys.argv[2]) if len(sys.argv) == 3 else None:
        parts = of_wheel("arm64" if wheel.stem.endswith("_aarch64") else "amd64")
        distribution = "debian"
        purl = PackageURL("pypi", None, "cukiln", version, {"file_name": wheel.name})
    else:
        parts = of_debian_packages()
        distribution = distribution_here()
        purl = PackageURL("generic", None, "cukiln", version)
    cukiln = Component(
        name="cukiln",
        version=version,
        type=ComponentType.LIBRARY,
        bom_ref=f"cukiln@{version}",
        licenses=[DisjunctiveLicense(id="Apache-2.0")],
        hashes=digest(hashlib.sha256(wheel.read_bytes()).hexdigest() if wheel else ""),
        purl=purl,
    )
    components = [component(library, package, distribution) for library, package in parts]
    bom = document(cukiln, [*components, *(opened(*given) for given in OPENED)])
    text = make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string(indent=2)
    if error := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
        raise SystemExit(f"sbom.py: the document is not valid: {error}")
    Path(sys.argv[1]).write_text(text + "\n")


if __name__ == "__main__":
    main()
