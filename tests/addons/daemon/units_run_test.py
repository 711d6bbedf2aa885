# SPDX-License-Identifier: Apache-2.0
"""The units of a user under a systemd of their own: the init process of new namespaces, with a cgroup2 tree, /run, /etc, /tmp and
/var of its own. Root only; skipped where it cannot run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

BINARIES = Path(os.environ["CUKILN_TEST_BINARY_DIR"])
UNITS = Path(__file__).resolve().parents[3] / "scripts" / "systemd"
SYSTEMD = Path("/usr/lib/systemd/systemd")
ALICE, MALLORY = 64_001, 64_002
TIMEOUT = 60

# Becomes systemd. Nothing that it mounts or writes is seen outside: /proc/sys is the kernel's, and so read-only.
INIT = f"""set -e
cd "$1"
mount --make-rprivate /
umount -R /sys/fs/cgroup && mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t proc proc /proc && mount --bind /proc/sys /proc/sys && mount -o remount,bind,ro /proc/sys
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/io /run/units /run/user-units /run/user/{ALICE} /run/systemd/system /run/lock
mkdir -p /run/systemd/unit-root /run/systemd/mount-rootfs  # systemd makes them for its first service with mounts
mount --bind . /run/io
cp -a /etc /run/etc && mount --bind /run/etc /etc
for folder in /tmp /var/tmp; do mount -t tmpfs -o mode=1777 tmpfs $folder; done
for folder in /var/cache /var/lib; do mount -t tmpfs -o mode=755 tmpfs $folder; done
printf '%s\\n' alice:x:{ALICE}:{ALICE}::/run/alice: mallory:x:{MALLORY}:{MALLORY}::/run/mallory: >>/etc/passwd
printf '%s\\n' alice:x:{ALICE}: mallory:x:{MALLORY}: >>/etc/group
install -d -o alice -m 700 /run/alice /run/user/{ALICE}
install -d -o mallory -m 700 /run/mallory
cp /run/io/system/* /run/units
cp /run/io/user/* /run/user-units
export SYSTEMD_UNIT_PATH=/run/units container=other
exec {SYSTEMD} --system --unit=test.target --log-target=null --show-status=no
"""

# Runs as a service. `compile USER SOCKET` prints what a client gets.
PROBE = f"""#!/bin/bash
exec >/run/io/report 2>&1
echo begins
compile() {{
  echo "extern \\"C\\" __global__ void k$RANDOM(int*) {{}}" >/tmp/k.cu
  for try in $(seq 50); do  # a service that its socket starts greets its first clients late
    setpriv --reuid=$1 --regid=$1 --init-groups env -i PATH="$PATH" HOME=/run/$1 CUKILN_DAEMON=require \\
      CUKILN_NVRTC_LIBRARY=/run/io/bin/libnvrtc_fake.so CUKILN_DAEMON_SOCKET=$2 \\
      /run/io/bin/cukiln compile /tmp/k.cu --arch sm_90a --json >/tmp/out 2>&1
    status=$?
    grep -q 'sent no greeting' /tmp/out || break
    sleep 0.1
  done
  echo "$1: exit $status"
  [ $status = 0 ] || grep -m 1 '"error"' /tmp/out
}}
workers() {{  # the processes that have no child of the same program
  for process in $(pgrep -f cukiln-compile-worker); do
    grep -q cukilnd.service /proc/$process/cgroup || continue
    pgrep -P $process -f cukiln-compile-worker >/tmp/children && continue
    echo "worker: $(stat -c %u /proc/$process) $(grep -E '^(CapEff|Seccomp):' /proc/$process/status | tr -d '\\t\\n') $(grep 'Max processes' /proc/$process/limits | tr -s ' ')"
  done
}}
compile alice /run/user/{ALICE}/cukiln/cukilnd.sock
workers
compile mallory /run/user/{ALICE}/cukiln/cukilnd.sock
stat -c '%U %a' /run/user/{ALICE}/cukiln/cukilnd.sock
export XDG_RUNTIME_DIR=/run/user/{ALICE}
setpriv --reuid=alice --regid=alice --init-groups systemctl --user stop cukilnd.service
setpriv --reuid=alice --regid=alice --init-groups systemctl --user show -p Result -p ExecMainStatus cukilnd.service
echo ends
"""
BARE = "[Unit]\nDefaultDependencies=no\n"
MANAGER = f"""[Service]
User=alice
Type=notify
Delegate=yes
Environment=XDG_RUNTIME_DIR=/run/user/{ALICE} HOME=/run/alice SYSTEMD_UNIT_PATH=/run/user-units
ExecStart={SYSTEMD} --user --log-target=null
"""


def cgroup_root() -> Path | None:
    for line in Path("/proc/mounts").read_text().splitlines():
        _, where, kind = line.split()[:3]
        if kind == "cgroup2":
            return Path(where)
    return None


class UnitsRun(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="cukiln-units-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.folder.chmod(0o755)
        for name in ("bin", "system", "user"):
            (self.folder / name).mkdir()
        for program in ("cukiln", "cukilnd", "cukiln-compile-worker", "libnvrtc_fake.so"):
            shutil.copy(BINARIES / program, self.folder / "bin")
        library = "Environment=CUKILN_NVRTC_LIBRARY=/run/io/bin/libnvrtc_fake.so"
        for unit in UNITS.iterdir():
            text = unit.read_text().replace("=/usr/bin/cukilnd", "=/run/io/bin/cukilnd")
            text = text.replace("[Service]\n", f"[Service]\n{library}\n")
            (self.folder / "user" / unit.name).write_text(text)
        for kind in ("system", "user"):
            for target in ("basic", "default", "sockets", "sysinit", "shutdown"):
                wanted = "Wants=cukilnd.socket\n" if (kind, target) == ("user", "default") else ""
                (self.folder / kind / f"{target}.target").write_text(BARE + wanted)
        self.unit("test.target", "Wants=alice.service probe.service\n")
        self.unit("alice.service", MANAGER)
        self.unit("probe.service", "After=alice.service\n[Service]\nType=oneshot\nExecStart=/run/io/probe\n")
        (self.folder / "probe").write_text(PROBE)
        (self.folder / "probe").chmod(0o755)
        (self.folder / "init").write_text(INIT)

    def unit(self, name: str, text: str) -> None:
        (self.folder / "system" / name).write_text(BARE + text)

    def report(self) -> str:
        path = self.folder / "report"
        return path.read_text() if path.exists() else ""

    def remove_cgroups(self, cgroup: Path) -> None:
        for folder in sorted(cgroup.rglob("*/"), reverse=True):
            folder.rmdir()
        cgroup.rmdir()

    def run_manager(self) -> str:
        cgroup = cgroup_root() / f"cukiln-units-{os.getpid()}"
        cgroup.mkdir()
        enter = f'echo $$ >{cgroup}/cgroup.procs && exec unshare --mount --pid --fork --kill-child --cgroup --uts --ipc --net sh init "$0"'
        with (self.folder / "init.log").open("w") as log:
            manager = subprocess.Popen(["sh", "-c", enter, self.folder], cwd=self.folder, stdin=subprocess.DEVNULL,
                                       stdout=log, stderr=log)  # fmt: skip
        deadline = time.monotonic() + TIMEOUT
        try:
            while manager.poll() is None and "\nends\n" not in self.report() and time.monotonic() < deadline:
                time.sleep(0.1)
        finally:
            manager.kill()  # with it the namespace's init, and so all of its processes
            manager.wait()
            while "populated 1" in (cgroup / "cgroup.events").read_text() and time.monotonic() < deadline + 10:
                time.sleep(0.05)
            self.remove_cgroups(cgroup)
        return self.report()

    def test_the_service_starts_by_its_socket_compiles_and_stops(self) -> None:  # fault 138
        report = self.run_manager()
        if not report:
            self.skipTest(f"no systemd can run here: {(self.folder / 'init.log').read_text()}")
        lines = report.splitlines()
        self.assertIn("alice: exit 0", lines, report)
        self.assertRegex(report, r"\nmallory: exit [^0]")  # fault 36: another user
        self.assertIn("alice 600", lines)
        self.assertRegex(report, rf"\nworker: {ALICE} CapEff:0+Seccomp:2 Max processes \d+ \d+ ")
        self.assertEqual((lines.count("Result=success"), lines.count("ExecMainStatus=0")), (1, 1), report)
        self.assertEqual(lines[-1], "ends")


if __name__ == "__main__":
    if os.geteuid() != 0 or not SYSTEMD.exists() or shutil.which("unshare") is None or cgroup_root() is None:
        print("skipped: only root can run a systemd, and this machine has none or no cgroup2")
        sys.exit(77)
    unittest.main()
