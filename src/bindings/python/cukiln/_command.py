# SPDX-License-Identifier: Apache-2.0
"""`cukiln` and `python -m cukiln`: the command line of the package takes over the process."""

import os
import sys

from . import _errors, _library


def main() -> int:
    if sys.prefix != sys.base_prefix:  # so that NVIDIA's wheels are found in this environment
        os.environ["VIRTUAL_ENV"] = sys.prefix
    try:
        program = str(_library.find("cukiln"))
        os.execv(program, [program, *sys.argv[1:]])
    except (_errors.NotFoundError, OSError) as error:
        print(f"cukiln: {error}", file=sys.stderr)
        return 3  # the environment lacks something


if __name__ == "__main__":
    sys.exit(main())
