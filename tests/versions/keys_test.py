# SPDX-License-Identifier: Apache-2.0
"""Machines of version 0.1 and of this one share a remote store while its keys change."""

import shutil

from versions import KERNELS, NEW, OLD, VersionsTest, main, name_of

from servers import Nginx, Redis  # versions adds its folder

VERSIONS = (OLD, NEW)
OTHER = ("add.cu", "-DADDEND=2", "--arch", "sm_90a")


class Keys(VersionsTest):
    def setUp(self):
        super().setUp()
        self.first = self.public  # the key in fleet.key
        self.second = self.run_json("keygen", "-o", "second.key")["public_key"]

    def machine(self, name, version, remote, sign=None, trust=None):
        """A machine of a version. By default its list of keys is that of all machines."""
        env = self.host(f"{name}, {name_of(version)}", remote, writer=False)
        env["CUKILN_REMOTE_TRUST"] = trust or str(self.folder / "trusted-keys")
        return env | ({"CUKILN_REMOTE_SIGN": str(self.folder / sign)} if sign else {})

    def trust(self, *lines):
        self.write("trusted-keys", "".join(f"{line}\n" for line in lines))

    def outcome_as(self, version, env, kernel=KERNELS):
        return self.outcome_of(version, self.run_as(version, "compile", *kernel, env=env))

    def signers_of(self, version, env):
        return {entry["signer"] for entry in self.entries_of(version, env=env)}

    def remotes(self):
        for server, path in ((Nginx, "/cache"), (Redis, "")):
            with self.subTest(server=server.__name__):
                remote = self.started(server())
                yield remote, remote.url + path
            shutil.rmtree(self.folder / "hosts")

    def test_a_key_is_changed_and_then_revoked_under_both_versions(self):  # fault 143
        for _, url in self.remotes():
            self.trust(self.first)
            veterans = {version: self.machine("veteran", version, url) for version in VERSIONS}
            for version in VERSIONS:
                self.assertEqual(self.outcome_as(version, self.machine("builder", version, url, "fleet.key")), "compiled")
                self.assertEqual(self.outcome_as(version, veterans[version]), "hit")
                self.assertEqual(self.signers_of(version, veterans[version]), {self.first})

            # Both keys are trusted, the builders sign with the second one.
            self.trust(self.first, self.second)
            for version in VERSIONS:
                builder = self.machine("builder", version, url, "second.key")
                self.assertEqual(self.outcome_as(version, builder, OTHER), "compiled")
                reader = self.machine("reader", version, url)
                for kernel in (KERNELS, OTHER):
                    self.assertEqual(self.outcome_as(version, reader, kernel), "hit", name_of(version))
                self.assertEqual(self.signers_of(version, reader), {self.first, self.second})

            # A builder without a store, which trusts the second key only, replaces what the first one signed.
            for version in VERSIONS:
                renewing = self.machine("renewing", version, url, "second.key", trust=self.second)
                self.assertEqual(self.outcome_as(version, renewing), "compiled")
                self.assertEqual(self.outcome_as(version, renewing, OTHER), "hit")

            # The first key is revoked: machines drop what it signed, and find it signed by the second one.
            self.trust(self.second, f"revoked {self.first}")
            for version in VERSIONS:
                for env in (veterans[version], self.machine("new", version, url)):
                    self.assertEqual(self.outcome_as(version, env), "hit", name_of(version))
                    self.assertEqual(self.signers_of(version, env), {self.second})

    def test_a_version_that_knows_no_limits_refuses_the_list_and_compiles(self):  # fault 142
        for remote, url in self.remotes():
            self.trust(f"{self.first} expires=2126-01-31 modules=add")
            names = remote.files if isinstance(remote, Nginx) else remote.keys
            self.assertEqual(self.outcome_as(NEW, self.machine("builder", NEW, url, "fleet.key")), "compiled")
            self.assertEqual(self.outcome_as(NEW, self.machine("reader", NEW, url)), "hit")
            there = names()
            self.assertEqual(len(there), 2)
            for sign in (None, "fleet.key"):
                done = self.run_process(OLD, "compile", *KERNELS, env=self.machine(f"{sign}", OLD, url, sign))
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertIn("public key: expected name:base64", done.stderr)
                self.assertNotIn(self.first.split(":")[1], done.stderr)
            self.assertEqual(names(), there)

    def test_a_key_expires_for_this_version_while_the_other_has_a_list_without_limits(self):  # fault 140
        for _, url in self.remotes():
            plain = f"{self.first},{self.second}"
            self.trust(f"{self.first} expires=2026-01-31", self.second)
            lists = {OLD: plain, NEW: None}
            for version in VERSIONS:
                builder = self.machine("builder", version, url, "fleet.key", trust=plain)
                self.assertEqual(self.outcome_as(version, builder), "compiled")
            self.assertEqual(self.outcome_as(OLD, self.machine("reader", OLD, url, trust=plain)), "hit")
            done = self.run_process(NEW, "compile", *KERNELS, env=self.machine("reader", NEW, url))
            self.assertIn("trusted until 2026-01-31", done.stderr)
            self.assertIn("expired_signer", done.stderr)
            for version in VERSIONS:
                next_one = self.machine("next", version, url, "second.key", trust=self.second)
                self.assertEqual(self.outcome_as(version, next_one), "compiled")
                reader = self.machine("last", version, url, trust=lists[version])
                self.assertEqual(self.outcome_as(version, reader), "hit", name_of(version))
                self.assertEqual(self.signers_of(version, reader), {self.second})


if __name__ == "__main__":
    main()
