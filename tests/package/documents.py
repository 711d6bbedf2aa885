# SPDX-License-Identifier: Apache-2.0
"""Fails unless the documents below a folder, an installed one, lead to documents and examples that are there too."""

import re
import sys
from pathlib import Path

folder = Path(sys.argv[1])
absent = [path for path in ("README.md", "CHANGELOG.md", "OPERATIONS.md", "examples/service_startup.cpp",
                            "examples/containers/kubernetes/job.yaml", "scripts/observability/alerts.yml",
                            "scripts/observability/dashboard.json") if not (folder / path).is_file()]  # fmt: skip
for page in folder.rglob("*.md"):
    for link in re.findall(r"\]\(([^()\s#:]+)(?:#[^()\s]*)?\)", page.read_text(encoding="utf-8")):
        target = (page.parent / link).resolve()
        if not target.exists() and (target.suffix == ".md" or "examples" in target.parts):
            absent.append(f"{target}, to which {page.relative_to(folder)} leads")
if absent:
    sys.exit("not installed:\n" + "\n".join(absent))
