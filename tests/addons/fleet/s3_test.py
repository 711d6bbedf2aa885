# SPDX-License-Identifier: Apache-2.0
"""An S3 bucket as the remote store; the server checks signatures and permissions."""

import re
import unittest
from pathlib import Path

from fleet import KERNELS, STORE, FleetTest
from servers import S3

PAGE = (Path(__file__).resolve().parents[3] / "examples/operations/fleet.md").read_text()
BUILDERS = re.findall(r"`(s3:\w+)`", re.search(r"(?s)Builders need(.*?), other machines all but `PutObject`", PAGE)[1])
READERS = [action for action in BUILDERS if action != "s3:PutObject"]


class InS3(FleetTest):
    @classmethod
    def setUpClass(cls):
        cls.s3 = S3("kernels", {"writer": BUILDERS, "reader": READERS, "nobody": "ec2:*"})  # fault 456
        cls.addClassCleanup(cls.s3.stop)

    def test_a_machine_that_never_compiled_hits_what_another_one_put(self):
        for path, pattern in (("", "[0-9a-f]{2}/[0-9a-f]{62}"), ("/team/x/", "team/x/[0-9a-f]{2}/[0-9a-f]{62}"),
                              ("/ac?region=eu-central-1", "ac/[0-9a-f]{64}")):  # fmt: skip
            before, name = set(self.s3.names("writer")), "".join(c for c in path if c.isalnum())
            a = self.host("a" + name, self.s3.url("writer", path))
            self.assertEqual(self.outcome(a), "compiled")
            self.assertEqual(self.remote_stats(a)["stored"], 1)
            added = set(self.s3.names("writer")) - before
            self.assertEqual(len(added), 3)
            for key in added:
                self.assertRegex(key, f"^{pattern}$")
            self.assertEqual(self.outcome(self.host("b" + name, self.s3.url("reader", path), writer=False)), "hit")

    def test_a_wrong_secret_is_refused_and_not_shown(self):
        url = self.s3.url("writer", "/wrong", secret="not/the+secret")
        host = self.host("a", url)
        result = self.run_cli("compile", *KERNELS, env=host, expect=STORE)
        self.assertIn("denies access (HTTP status 403)", result.err)
        self.assertNotIn("the+secret", result.err)
        self.assertNotIn("secret", "".join(c["detail"] for c in self.run_json("doctor", env=host, expect=None)["checks"]))

    def test_who_may_only_read_writes_nothing(self):
        before = self.s3.names("writer")
        sly = self.host("a", self.s3.url("reader", "/sly"))
        self.assertEqual(self.outcome(sly, expect=STORE), "compiled")
        checks = [c for c in self.run_json("doctor", env=sly, expect=None)["checks"] if c["name"] == "remote"]
        self.assertEqual([c["status"] for c in checks], ["wrong"])
        self.assertEqual(self.remote_stats(sly)["stored"], 0)
        self.assertEqual(self.s3.names("writer"), before)

    def test_who_may_nothing_compiles(self):
        result = self.run_cli("compile", *KERNELS, env=self.host("a", self.s3.url("nobody"), writer=False))
        self.assertIn("denies access", result.err)

    def test_an_address_without_keys_says_what_is_missing(self):
        result = self.run_cli("compile", *KERNELS, env=self.host("a", "s3+https://s3.example/kernels"),
                              expect=STORE)  # fmt: skip
        self.assertIn("s3+http(s)://ACCESS-KEY:SECRET-KEY@host", result.err)


if __name__ == "__main__":
    unittest.main()
