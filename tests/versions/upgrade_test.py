# SPDX-License-Identifier: Apache-2.0
"""A fleet of version 0.1 becomes one of this version, machine by machine, as OPERATIONS.md says; nothing is lost but hits."""

from versions import KERNELS, NEW, OLD, VersionsTest, main, name_of

from servers import Nginx, Redis  # versions adds its folder

OTHER = ("add.cu", "-DADDEND=2", "--arch", "sm_90a")
RULES = "~cukiln1:* ~cukiln2:*"


class Machine:
    """A machine of the fleet: its settings stay, the installed version changes."""

    def __init__(self, test, name, remote, writer=False):
        self.test, self.env, self.version = test, test.host(name, remote, writer), OLD

    def outcome(self, kernel=KERNELS):
        return self.test.outcome_of(self.version, self.test.run_as(self.version, "compile", *kernel, env=self.env))

    def run(self, *arguments):
        return self.test.run_as(self.version, *arguments, env=self.env)


class Upgrade(VersionsTest):
    def remotes(self):
        """Each server, the machines' address of it and the builders', and whether it has rules for users."""
        web = self.started(Nginx())
        yield "nginx", web.url + "/cache", web.url + "/cache"
        redis = self.started(Redis(f"user reader on >r {RULES} +get", f"user writer on >w {RULES} +get +set +del",
                                   "user default off"))  # fmt: skip
        yield "redis", *(redis.url.replace("://", f"://{user}@") for user in ("reader:r", "writer:w"))

    def check(self, machines, kernel, **outcomes):
        for name, machine in machines.items():
            outcome = machine.outcome(kernel)
            self.assertEqual(outcome, outcomes.get(name, "hit"), f"{name}, {name_of(machine.version)}")
            self.assertEqual(machine.run("verify")["damaged"], 0)

    def test_a_fleet_is_upgraded_machine_by_machine_and_one_goes_back(self):  # fault 193
        for number, (server, reading, writing) in enumerate(self.remotes()):
            with self.subTest(server=server):
                names = {"old_builder": writing, "builder": writing, "first": reading, "last": reading}
                machines = {
                    name: Machine(self, f"{name} {number}", url, url == writing or "builder" in name)
                    for name, url in names.items()
                }
                for name in ("first", "last"):
                    machines[name].env.pop("CUKILN_REMOTE_SIGN", None)
                self.check(machines, KERNELS, old_builder="compiled")

                machines["builder"].version = NEW
                self.check(machines, KERNELS, builder="compiled")
                machines["first"].version = NEW
                self.check(machines, KERNELS)  # what the builder compiled for it is there before it

                # A kernel that is new in the middle costs a compile for each version, wherever it is met.
                self.check(machines, OTHER, old_builder="compiled", builder="compiled")

                machines["first"].version = OLD
                self.check(machines, KERNELS)
                self.check(machines, OTHER)
                for name in machines:
                    machines[name].version = NEW
                self.check(machines, KERNELS)
                self.check(machines, OTHER)

    def test_the_command_of_the_new_version_stops_the_daemon_of_the_old_one(self):
        (self.folder / "run").mkdir(mode=0o700)
        for first, second in ((OLD, NEW), (NEW, OLD)):  # installed, and gone back from
            with self.subTest(first=name_of(first)):
                self.run_as(first, "daemon", "start")
                try:
                    self.assertEqual(self.outcome_of(second, self.run_as(second, "compile", *KERNELS)), "compiled")
                finally:
                    self.run_as(second, "daemon", "stop")
                self.run_as(second, "daemon", "start")
                try:
                    self.assertTrue(self.run_as(second, "daemon", "status")["running"])
                    self.assertEqual(self.outcome_of(second, self.run_as(second, "compile", *KERNELS)), "hit")
                finally:
                    self.run_as(second, "daemon", "stop")
                self.run_as(first, "rm", "--all")
                self.run_as(second, "rm", "--all")


if __name__ == "__main__":
    main()
