# SPDX-License-Identifier: Apache-2.0
"""explain on a machine that never had the builder's entry: what it learns of the remote store."""

import unittest

from fleet import FleetTest
from servers import Nginx, Redis

SCALE = ("scale.cu", "--arch", "sm_90a")


class Explained(FleetTest):
    def setUp(self):
        super().setUp()
        self.redis = self.started(Redis())
        self.builder = self.host("builder", self.redis.url)
        self.pod = self.host("pod", self.redis.url, writer=False)

    def explain(self, *arguments, host=None):
        return self.run_json("explain", *(arguments or SCALE), env=host or self.pod)

    def fields(self, document):
        return {d["field"]: (d["was"], d["now"]) for d in document["differences"]}

    def key_of(self, host, *arguments):
        (module,) = self.run_json("compile", *(arguments or SCALE), env=host)["modules"]
        return module["key"]

    def test_a_pod_is_told_what_differs_from_the_builder(self):  # fault 359
        key = self.key_of(self.builder)
        hit = self.explain()
        self.assertEqual((hit["outcome"], hit["key"], hit["key_in"]), ("hit", key, "remote"))
        text = self.run_cli("explain", *SCALE, env=self.pod).out
        self.assertIn("in the remote store\nA host would compile it: only cukilnd, which is not running, and the command line ask", text)
        self.assertEqual(self.run_json("ls", env=self.pod)["entries"], [])  # nothing is stored or counted
        self.assertFalse(any(self.remote_stats(self.pod).values()))

        self.write("tile.cuh", "#define TILE 32\n")
        missed = self.explain()
        self.assertEqual((missed["outcome"], missed["nearest"], missed["nearest_in"]), ("miss", key, "remote"))
        self.assertEqual(set(self.fields(missed)), {"header changed"})
        was, now = self.fields(missed)["header changed"]
        self.assertRegex(was, r"/tile\.cuh [0-9a-f]{12}$")
        self.assertRegex(now, r"/tile\.cuh [0-9a-f]{12}$")
        self.assertNotEqual(was, now)
        text = self.run_cli("explain", *SCALE, env=self.pod).out
        self.assertRegex(text, rf"nearest  {key[:12]}  in the remote store\n")

    def test_other_sources_and_flags_are_compared_with_what_writers_published(self):  # fault 359
        first = self.key_of(self.builder)
        second = self.key_of(self.builder, *SCALE, "-DX=1", "--use_fast_math")
        near = self.explain(*SCALE, "-DX=1")
        self.assertEqual((near["nearest"], near["nearest_in"]), (second, "remote"))
        self.assertEqual(self.fields(near), {"flag": ("--use_fast_math", "")})
        self.write("scale.cu", (self.folder / "scale.cu").read_text() + "// edited\n")
        edited = self.explain()
        self.assertEqual(edited["nearest"], first)
        was, now = self.fields(edited)["source"]
        self.assertRegex(was, rf"^{self.folder}/scale\.cu [0-9a-f]{{12}} \(\d+ bytes\)$")
        self.assertNotEqual(was, now)

    def test_without_what_to_compare_with_it_says_so(self):  # fault 359
        said = self.explain()
        self.assertEqual((said["outcome"], said["nearest"], said["nearest_in"]), ("miss", None, None))
        ((field, (_, text)),) = self.fields(said).items()
        self.assertEqual(field, "not known")
        self.assertRegex(text, r"^no machine has published scale for sm_90a to redis://\S+, so what differs cannot be said; "
                               r"export the entry where it was compiled, import it here, and compare: cukiln explain KEY KEY$")  # fmt: skip
        self.redis.stop()
        ((field, (_, text)),) = self.fields(self.explain()).items()
        self.assertRegex(text, r"^redis://\S+ cannot say it: .*\(unreachable\)$")
        alone = self.run_cli("explain", *SCALE, env={"CUKILN_STORE": self.pod["CUKILN_STORE"]}).out
        self.assertIn("nothing of this module was stored here, or it was evicted or removed since", alone)

    def test_a_hit_that_was_compiled_here_is_compared_too(self):  # fault 359
        self.key_of(self.builder)
        self.assertEqual(self.explain(host=self.builder)["differences"], [])
        self.write("tile.cuh", "#define TILE 32\n")
        own = self.key_of(self.pod)
        hit = self.explain()
        self.assertEqual((hit["outcome"], hit["key"], hit["key_in"], hit["nearest_in"]), ("hit", own, "store", "remote"))
        self.assertEqual(set(self.fields(hit)), {"header changed"})
        self.assertIn("It was compiled here. Of the remote store:\n", self.run_cli("explain", *SCALE, env=self.pod).out)

    def test_an_entry_that_was_evicted_or_revoked_is_said_to_be(self):  # fault 457
        key = self.key_of(self.builder)
        trusted = str(self.write("trusted", f"{self.public}\nrevoked {self.public}\n"))
        revoking = self.host("revoking", self.redis.url, writer=False, CUKILN_REMOTE_TRUST=trusted)
        said = self.fields(self.explain(host=revoking))["not known"][1]
        self.assertRegex(said, r'^redis://\S+: the object is signed by "fleet", whose key was revoked$')
        # One that was fetched before: a command that explains leaves it and says why.
        self.key_of(self.pod)
        revoked = self.pod | {"CUKILN_REMOTE_TRUST": trusted}
        self.assertEqual(self.fields(self.explain(host=revoked)), {"entry": ("signed by a revoked key", "compiled again by its next use")})
        self.write("m.json", '{"format": 1, "modules": [{"name": "scale", "sources": ["scale.cu"], "targets": ["sm_90a"]}]}')
        (fit,) = self.run_json("fits", "m.json", env=revoked, expect=1)["modules"]
        self.assertEqual(fit["reason"], "the stored entry was signed by a key that was revoked")
        self.assertEqual(len(self.run_json("ls", env=revoked)["entries"]), 1)

        self.redis.ask("DEL", f"cukiln6:{key}")
        gone = self.explain(host=self.host("new", self.redis.url, writer=False))
        self.assertRegex(self.fields(gone)["entry"][0], r"^recorded by redis://\S+, and evicted or removed since$")
        self.assertEqual(gone["nearest"], key)

    def test_a_hit_of_the_store_asks_no_server_and_a_lookup_no_index(self):  # fault 359
        nginx = self.started(Nginx())
        remote = f"{nginx.url}/cache"
        self.key_of(self.host("a", remote))
        index = {path for method, path, *_ in nginx.requests() if method == "PUT"}
        reader = self.host("b", remote, writer=False)
        before = len(nginx.requests())
        self.assertEqual(self.outcome(reader, *SCALE), "hit")
        self.assertEqual(len(nginx.requests()) - before, 2)  # sets and entry
        self.assertEqual(len(index), 3)
        self.outcome(reader, *SCALE)
        self.explain(host=reader)  # of what was fetched
        self.assertEqual(len(nginx.requests()) - before, 2)


if __name__ == "__main__":
    unittest.main()
