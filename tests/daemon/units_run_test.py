# SPDX-License-Identifier: Apache-2.0
"""The units under a systemd of their own: the init process of new namespaces, with a cgroup2 tree, /run, /etc, /tmp and
/var of its own. Root only; skipped where it cannot run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

BINARIES = Path(os.environ["CUKILN_TEST_BINARY_DIR"])
UNITS = Path(__file__).resolve().parents[2] / "scripts" / "systemd"
SYSTEMD = Path("/usr/lib/systemd/systemd")
ALICE, MALLORY, SERVICE, SIGNER, GROUP = 64_001, 64_002, 64_003, 64_004, 64_010
TIMEOUT = 60

# Becomes systemd. Nothing that it mounts or writes is seen outside: /proc/sys is the kernel's, and so read-only.
INIT = f"""set -e
cd "$1"
mount --make-rprivate /
umount -R /sys/fs/cgroup && mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t proc proc /proc && mount --bind /proc/sys /proc/sys && mount -o remount,bind,ro /proc/sys
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/io /run/units /run/user-units /run/user/{ALICE} /run/systemd/system /run/lock
mount --bind . /run/io
cp -a /etc /run/etc && mount --bind /run/etc /etc
for folder in /tmp /var/tmp; do mount -t tmpfs -o mode=1777 tmpfs $folder; done
for folder in /var/cache /var/lib; do mount -t tmpfs -o mode=755 tmpfs $folder; done
printf '%s\\n' cukiln:x:{SERVICE}:{SERVICE}::/: cukiln-signer:x:{SIGNER}:{SIGNER}::/: alice:x:{ALICE}:{ALICE}::/run/alice: mallory:x:{MALLORY}:{MALLORY}::/run/mallory: >>/etc/passwd
printf '%s\\n' cukiln:x:{SERVICE}: cukiln-signer:x:{SIGNER}: alice:x:{ALICE}: mallory:x:{MALLORY}: cukiln-users:x:{GROUP}:alice >>/etc/group
mkdir -p /etc/cukiln
install -m 600 /run/io/remote_sign.key /etc/cukiln
echo CUKILN_SIGNER_SOCKET=/run/cukiln-signer/sign.sock >/etc/cukiln/cukilnd.env
echo CUKILN_REMOTE=redis://127.0.0.1:1 >/etc/cukiln/signer.env
install -d -o alice -m 700 /run/alice /run/user/{ALICE}
install -d -o mallory -m 700 /run/mallory
cp /run/io/system/* /run/units
cp /run/io/user/* /run/user-units
mount --make-rshared /  # else a credential is mounted where its service does not see it
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
compilers() {{  # those that a supervisor forked, or that have none
  for process in $(pgrep -f cukiln-compile-worker); do
    grep -q "$1" /proc/$process/cgroup || continue
    pgrep -P $process -f cukiln-compile-worker >/tmp/children || echo $process
  done
}}
workers() {{
  for process in $(compilers $1); do
    echo "worker $2: $(stat -c %u /proc/$process) $(grep -E '^(CapEff|Seccomp):' /proc/$process/status | tr -d '\\t\\n') $(grep 'Max processes' /proc/$process/limits | tr -s ' ')"
  done
}}
compile alice /run/cukiln/cukilnd.sock
workers cukiln-worker system
for process in $(compilers cukiln-worker); do
  echo "hidden: $(nsenter -t $process -m stat -c %a /var/cache/cukilnd /run/cukiln /run/cukiln-worker | tr '\n' ' ')"
  [ "$(readlink /proc/$process/ns/net)" != "$(readlink /proc/self/ns/net)" ] && echo 'network: none'
done
setpriv --reuid=alice --regid=alice --init-groups env CUKILN_DAEMON_SOCKET=/run/cukiln/cukilnd.sock /run/io/bin/cukiln daemon status | grep Workers:
stat -c '%U %a' /run/cukiln-worker/worker.sock
for try in $(seq 100); do  # it compiles once more
  grep -q '"event":"signed"' /var/lib/cukiln-signer/audit.jsonl && break
  sleep 0.1
done
cut -d, -f3-4 /var/lib/cukiln-signer/audit.jsonl
credential=/run/credentials/cukiln-signer.service/remote_sign
for user in cukiln-signer cukiln alice; do
  setpriv --reuid=$user --regid=$user --init-groups cat $credential /etc/cukiln/remote_sign.key 2>/dev/null | wc -l | sed "s/^/key as $user: /"
done
stat -c 'credential of %U:%G %a' $credential
compile mallory /run/cukiln/cukilnd.sock
stat -c '%U:%G %a' /run/cukiln/cukilnd.sock /run/cukiln-signer/sign.sock
compile alice /run/user/{ALICE}/cukiln/cukilnd.sock
workers cukilnd.service user
systemctl stop cukilnd-system.service cukiln-signer.service
systemctl show -p Result -p ExecMainStatus cukilnd-system.service
systemctl show -p Result -p ExecMainStatus cukiln-signer.service
for try in $(seq 50); do
  [ -z "$(systemctl list-units --all --plain --no-legend 'cukiln-worker@*')" ] && echo 'workers ended' && break
  sleep 0.1
done
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
            text = text.replace("=/usr/libexec/cukiln/", "=/run/io/bin/")
            text = text.replace("[Service]\n", f"[Service]\n{library}\n")
            kind = "user" if unit.name.startswith("cukilnd.") else "system"
            (self.folder / kind / unit.name).write_text(text)
        for kind in ("system", "user"):
            for target in ("basic", "default", "sockets", "sysinit", "shutdown"):
                wanted = "Wants=cukilnd.socket\n" if (kind, target) == ("user", "default") else ""
                (self.folder / kind / f"{target}.target").write_text(BARE + wanted)
        self.unit("test.target", "Wants=cukilnd-system.socket cukiln-signer.socket alice.service probe.service\n")
        self.unit("alice.service", MANAGER)
        self.unit("probe.service", "After=cukilnd-system.socket cukiln-signer.socket alice.service\n[Service]\nType=oneshot\nExecStart=/run/io/probe\n")
        subprocess.run([BINARIES / "cukiln", "keygen", "-o", self.folder / "remote_sign.key"], check=True, capture_output=True)
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

    def test_the_services_start_compile_and_stop(self) -> None:  # fault 138
        report = self.run_manager()
        if not report:
            self.skipTest(f"no systemd can run here: {(self.folder / 'init.log').read_text()}")
        lines = report.splitlines()
        self.assertEqual(lines.count("alice: exit 0"), 2, report)  # for all users, and for one
        self.assertRegex(report, r"\nmallory: exit [^0]")  # is not in the group
        self.assertIn("cukiln:cukiln-users 660", lines)
        for kind, user in (("system", r"6\d{4}"), ("user", str(ALICE))):
            self.assertRegex(report, rf"\nworker {kind}: {user} CapEff:0+Seccomp:2 Max processes \d+ \d+ ")
        (dynamic,) = set(re.findall(r"\nworker system: (\d+)", report))  # fault 151
        self.assertNotIn(int(dynamic), (SERVICE, ALICE, MALLORY))
        self.assertIn(f"Workers: as user {dynamic}, from /run/cukiln-worker/worker.sock", lines)
        self.assertIn("cukiln 600", lines)
        self.assertIn("hidden: 0 0 0 ", lines)
        self.assertIn("network: none", lines)
        self.assertIn("workers ended", lines)
        self.assertEqual((lines.count("Result=success"), lines.count("ExecMainStatus=0")), (3, 3), report)
        self.assertEqual(lines[-1], "ends")
        # fault 147: what the daemon compiled is signed by another user, who alone has the key.
        self.assertIn(f'"event":"signed","uid":{SERVICE}', lines)
        self.assertIn("cukiln-signer:cukiln 660", lines)
        for user, read in (("cukiln-signer", 1), ("cukiln", 0), ("alice", 0)):
            self.assertIn(f"key as {user}: {read}", lines)


if __name__ == "__main__":
    if os.geteuid() != 0 or not SYSTEMD.exists() or shutil.which("unshare") is None or cgroup_root() is None:
        print("skipped: only root can run a systemd, and this machine has none or no cgroup2")
        sys.exit(77)
    unittest.main()
