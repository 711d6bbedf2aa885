# SPDX-License-Identifier: Apache-2.0
"""keygen, export, import: entries carried from one store to another, and which signatures are trusted."""

import contextlib
import os
import re
import sqlite3
import unittest

from cli import CliTest, DONE, FAILED, STORE, USAGE

ADD = ("add.cu", "-DADDEND=1", "--arch", "sm_90a")


class BundleTest(CliTest):
    def keygen(self, name):
        return self.run_json("keygen", "-o", f"{name}.key")["public_key"]

    def elsewhere(self, *arguments, **options):
        """With another, empty store."""
        env = {"CUKILN_STORE": str(self.folder / "elsewhere")}
        return self.run_cli(*arguments, env=env | options.pop("env", {}), **options)

    def elsewhere_json(self, *arguments, **options):
        return self.elsewhere("--json", *arguments, **options).json()


class Bundles(BundleTest):
    def fill(self):
        self.compile("scale.cu", "--arch", "sm_90a")
        self.compile("add.cu", "-DADDEND=1", "--arch", "sm_90a,sm_100a")
        return {e["key"]: e for e in self.run_json("ls")["entries"]}

    def test_an_exported_entry_is_a_hit_where_it_is_imported(self):
        entries = self.fill()
        public = self.keygen("fleet")
        written = self.run_json("export", "-o", "all.ckb", "--sign", "fleet.key")
        self.assertEqual((written["entries"], written["signer"]), (3, public))
        self.assertEqual(written["size_bytes"], (self.folder / "all.ckb").stat().st_size)
        taken = self.elsewhere_json("import", "all.ckb", "--trust", "fleet.key.pub")
        self.assertEqual((taken["imported"], taken["already_there"], taken["signers"]), (3, 0, [public]))
        there = {e["key"]: e for e in self.elsewhere_json("ls")["entries"]}
        self.assertEqual(set(there), set(entries))
        for key, entry in there.items():
            self.assertEqual((entry["origin"], entry["signer"]), ("imported", public))
            same = ("name", "source", "target", "flags", "compiler", "cubin_bytes", "kernels", "dependencies")
            self.assertEqual([entry[n] for n in same], [entries[key][n] for n in same])
        report = self.elsewhere_json("compile", "scale.cu", "--arch", "sm_90a", "--offline")
        self.assertEqual(report["modules"][0]["outcome"], "hit")
        key = report["modules"][0]["key"]
        self.assertIn("void scale", self.elsewhere("show", key, "--source").out)
        again = self.elsewhere_json("import", "all.ckb", "--trust", public)
        self.assertEqual((again["imported"], again["already_there"]), (0, 3))

    def test_export_of_some_keys_or_of_a_manifest(self):
        keys = sorted(self.fill())
        self.assertEqual(self.run_json("export", "-o", "some.ckb", keys[0][:8], keys[0], keys[1])["entries"], 2)
        self.run_cli("export", "-o", "x.ckb", "0123456789", expect=FAILED)
        self.write("m.json", '{"format":1,"modules":[{"name":"s","sources":["scale.cu"],"targets":["sm_90a"]}]}')
        self.assertEqual(self.run_json("export", "-o", "m.ckb", "--manifest", "m.json")["entries"], 1)
        self.write("m.json", '{"format":1,"modules":[{"name":"s","sources":["scale.cu"],"targets":["sm_80"]}]}')
        missing = self.run_cli("export", "-o", "n.ckb", "--manifest", "m.json", expect=FAILED)
        self.assertIn("s for sm_80", missing.err)
        self.assertFalse((self.folder / "n.ckb").exists())
        self.run_cli("export", "-o", "x.ckb", keys[0], "--manifest", "m.json", expect=USAGE)
        self.run_cli("export", expect=USAGE)

    def test_export_for_one_target(self):
        self.fill()
        self.write("m.json", '{"format":1,"modules":[{"name":"a","sources":["add.cu"],"define":{"ADDEND":1}}]}')
        for target in ("sm_90a", "sm_100a"):
            done = self.run_cli("export", "-o", "m.ckb", "--manifest", "m.json", "--arch", target)
            self.assertIn(f"Wrote 1 entry for {target} to m.ckb", done.out)
        self.assertIn("1 entry for sm_100a", self.run_cli("export", "-o", "m.ckb", "--manifest", "m.json").out)
        missing = self.run_cli("export", "-o", "n.ckb", "--manifest", "m.json", "--arch", "sm_80", expect=FAILED)
        self.assertIn("'cukiln preload m.json --no-load --arch sm_80' compiles what is missing", missing.err)
        self.assertEqual(self.run_json("export", "-o", "m.ckb", "--arch", "sm_90a")["entries"], 2)
        self.assertEqual(self.run_json("export", "-o", "m.ckb", "add")["entries"], 2)
        self.assertEqual(self.run_json("export", "-o", "m.ckb", "add", "--arch", "sm_90a")["entries"], 1)

    def test_a_long_list_of_missing_modules_is_cut(self):
        modules = ",".join('{"name":"m%d","sources":["add.cu"],"define":{"ADDEND":%d}}' % (i, i) for i in range(30))
        self.write("m.json", '{"format":1,"modules":[%s]}' % modules)
        missing = self.run_cli("export", "-o", "n.ckb", "--manifest", "m.json", expect=FAILED).err
        self.assertIn("and 25 more", missing)
        self.assertNotIn("m20", missing)

    def test_keygen_prints_what_it_wrote(self):
        done = self.run_cli("keygen", "-o", "k.key")
        self.assertEqual(done.out, (self.folder / "k.key.pub").read_text())
        self.assertIn("Wrote the secret key k.key and the public key k.key.pub.", done.err)
        self.assertEqual(self.run_cli("keygen", "-o", "l.key", "--quiet").err, "")

    def refused(self, *arguments):
        result = self.elsewhere("import", *arguments, expect=FAILED)
        self.assertEqual(self.elsewhere_json("ls")["entries"], [])
        return result.err

    def test_a_bundle_with_an_untrusted_entry_is_refused_as_a_whole(self):  # fault 374
        self.fill()
        self.keygen("fleet")
        self.keygen("stranger")
        self.run_cli("export", "-o", "unsigned.ckb")
        self.run_cli("export", "-o", "strange.ckb", "--sign", "stranger.key")
        self.assertIn("--insecure", self.refused("unsigned.ckb", "--trust", "fleet.key.pub"))
        self.assertIn("--trust", self.refused("strange.ckb", "--trust", "fleet.key.pub"))
        self.refused("strange.ckb")
        # One bad entry, the last, and none of the others is taken.
        self.run_cli("export", "-o", "good.ckb", "--sign", "fleet.key")
        bad = bytearray((self.folder / "good.ckb").read_bytes())
        bad[-1] ^= 1
        self.write("bad.ckb", bytes(bad))
        self.assertIn("entry 3 of 3", self.refused("bad.ckb", "--trust", "fleet.key.pub"))
        taken = self.elsewhere_json("import", "unsigned.ckb", "--insecure")
        self.assertEqual((taken["imported"], taken["signers"]), (3, ["unsigned"]))

    def test_a_revoked_key_is_not_trusted(self):  # fault 73
        self.fill()
        public = self.keygen("fleet")
        self.run_cli("export", "-o", "all.ckb", "--sign", "fleet.key")
        self.write("trust", f"{public}\nrevoked {public}\n")
        self.assertIn("revoked", self.refused("all.ckb", "--trust", "trust"))

    def pass_on(self, bundle, *how, sign=None, expect=DONE):
        """Imported by a machine with an empty store, and exported from there."""
        env = {"CUKILN_STORE": str(self.folder / f"between-{bundle}")}
        self.run_cli("import", bundle, *how, env=env)
        arguments = ("--sign", f"{sign}.key") if isinstance(sign, str) else sign or ()
        return self.run_cli("export", "-o", "again.ckb", *arguments, env=env, expect=expect)

    def test_a_new_signature_does_not_hide_earlier_ones(self):  # fault 114
        self.one_key()
        fleet, other = self.keygen("fleet"), self.keygen("other")
        self.run_cli("export", "-o", "all.ckb", "--sign", "fleet.key")
        self.pass_on("all.ckb", "--trust", "fleet.key.pub", sign="other")
        self.write("trust", f"{other}\nrevoked {fleet}\n")
        refused = self.refused("again.ckb", "--trust", "trust")
        self.assertIn("key was revoked", refused)
        self.assertIn("key was revoked", self.refused("again.ckb", "--insecure", "--trust", "trust"))
        self.assertIn("whose key was revoked", self.refused("all.ckb", "--insecure", "--trust", "trust"))
        taken = self.elsewhere_json("import", "again.ckb", "--trust", "other.key.pub")
        self.assertEqual(taken["signers"], [f"{fleet} {other}"])
        (entry,) = self.elsewhere_json("ls")["entries"]
        self.assertEqual((entry["signer"], entry["signers"]), (f"{fleet} {other}", [fleet, other]))
        shown = self.elsewhere("show", entry["key"]).out
        self.assertRegex(shown, rf"signed by\s+{re.escape(fleet)}")
        self.assertRegex(shown, rf"then by\s+{re.escape(other)}")
        # A key that is revoked later takes the entry with it, whichever key signed it last.
        trust = {"CUKILN_REMOTE_TRUST": str(self.folder / "trust")}
        self.elsewhere("compile", "add.cu", "-DADDEND=1", "--arch", "sm_90a", env=trust)
        (entry,) = self.elsewhere_json("ls")["entries"]
        self.assertEqual((entry["origin"], entry["signers"]), ("compiled", []))

    def test_entries_of_a_revoked_key_are_not_exported(self):
        self.one_key()
        fleet = self.keygen("fleet")
        self.run_cli("export", "-o", "all.ckb", "--sign", "fleet.key")
        self.elsewhere("import", "all.ckb", "--trust", "fleet.key.pub")
        self.write("trust", f"revoked {fleet}\n")
        done = self.elsewhere("--json", "export", "-o", "b.ckb", env={"CUKILN_REMOTE_TRUST": str(self.folder / "trust")})
        self.assertEqual(done.json()["entries"], 0)
        self.assertIn("1 entry was removed: signed by a key that was revoked", done.err)

    def test_unsigned_entries_are_marked_and_signed_only_on_request(self):  # fault 115
        self.one_key()
        fleet = self.keygen("fleet")
        self.run_cli("export", "-o", "unsigned.ckb")
        refused = self.pass_on("unsigned.ckb", "--insecure", sign="fleet", expect=FAILED)
        self.assertIn("--sign-unsigned", refused.err)
        self.assertFalse((self.folder / "again.ckb").exists())
        self.pass_on("unsigned.ckb", "--insecure")  # without a signature it may go on
        self.pass_on("unsigned.ckb", "--insecure", sign=("--sign", "fleet.key", "--sign-unsigned"))
        self.elsewhere("import", "again.ckb", "--trust", "fleet.key.pub")
        (entry,) = self.elsewhere_json("ls")["entries"]
        self.assertEqual(entry["signers"], ["unsigned", fleet])
        self.assertIn("none: imported with --insecure", self.elsewhere("show", entry["key"]).out)
        # It has a trusted signature now.
        self.elsewhere("export", "-o", "more.ckb", "--sign", "fleet.key")

    def test_files_that_others_may_write_are_not_trusted(self):  # fault 112
        self.one_key()
        self.keygen("fleet")
        self.run_cli("export", "-o", "all.ckb", "--sign", "fleet.key")
        (self.folder / "fleet.key.pub").chmod(0o666)
        refused = self.elsewhere("import", "all.ckb", "--trust", "fleet.key.pub", expect=USAGE).err
        self.assertIn("everybody may write it (mode 0666)", refused)
        self.assertIn("chmod go-w fleet.key.pub", refused)
        (self.folder / "fleet.key.pub").chmod(0o644)
        self.elsewhere("import", "all.ckb", "--trust", "fleet.key.pub")

    def test_settings_name_trusted_keys(self):
        self.one_key()
        public = self.keygen("fleet")
        self.run_cli("export", "-o", "all.ckb", "--sign", "fleet.key")
        taken = self.elsewhere_json("import", "all.ckb", env={"CUKILN_REMOTE_TRUST": public})
        self.assertEqual(taken["imported"], 1)
        self.write("config/cukiln/config.toml", f'remote_trust = ["{public}", "fleet.key.pub"]\n')
        self.assertEqual(self.elsewhere_json("import", "all.ckb")["already_there"], 1)

    def limited(self, name, *limits):
        """Makes a key whose public half has limits, and signs a bundle with it."""
        made = self.run_json("keygen", "-o", f"{name}.key", *limits)
        self.run_cli("export", "-o", f"{name}.ckb", "--sign", f"{name}.key")
        return made

    def test_a_key_that_has_expired_brings_nothing_more(self):  # fault 140
        self.one_key()
        expired = "warning: the key has expired: 2026-01-31 has begun, so nothing that it signs is trusted\n"
        self.assertTrue(self.run_cli("keygen", "-o", "k", "--expires", "2026-01-31").err.endswith(expired))
        self.assertNotIn("expired", self.run_cli("keygen", "-o", "later", "--expires", "2126-01-31").err)
        made = self.limited("old", "--expires", "2026-01-31")
        self.assertEqual(made["expires"], "2026-01-31")
        line = (self.folder / "old.key.pub").read_text()
        self.assertEqual(line, f"{made['public_key']} expires=2026-01-31\n")
        refused = self.refused("old.ckb", "--trust", "old.key.pub")
        self.assertIn("trusted until 2026-01-31", refused)
        self.assertIn("later expires=", refused)
        # What was taken before stays.
        self.write("trusted", f"{made['public_key']}\n")
        self.assertEqual(self.elsewhere_json("import", "old.ckb", "--trust", "trusted")["imported"], 1)
        expired = {"CUKILN_REMOTE_TRUST": str(self.folder / "old.key.pub")}
        self.assertEqual(len(self.elsewhere_json("ls", env=expired)["entries"]), 1)
        self.assertEqual(self.elsewhere_json("compile", *ADD, env=expired)["hits"], 1)

    def test_a_key_brings_modules_of_its_scope_only(self):  # fault 141
        self.one_key()
        made = self.limited("narrow", "--modules", "nvfp4_", "--modules", "sampler")
        self.assertEqual(made["modules"], ["nvfp4_", "sampler"])
        refused = self.refused("narrow.ckb", "--trust", "narrow.key.pub")
        self.assertIn("not trusted for the module", refused)
        self.run_cli("import", "narrow.ckb", "--trust", "narrow.key.pub", "--insecure", expect=FAILED)
        self.limited("right", "--modules", "ad")
        self.assertEqual(self.elsewhere_json("import", "right.ckb", "--trust", "right.key.pub")["imported"], 1)
        # The same entry, once the list has another scope.
        line = (self.folder / "right.key.pub").read_text().replace("modules=ad", "modules=nvfp4_")
        self.write("trusted", line)
        trust = {"CUKILN_REMOTE_TRUST": str(self.folder / "trusted")}
        self.assertEqual(self.elsewhere_json("compile", *ADD, env=trust)["compiled"], 1)
        self.assertEqual(self.elsewhere_json("compile", *ADD, env=trust)["hits"], 1)

    def test_a_bundle_of_nothing_is_warned_of(self):
        for arguments in ((), ("--arch", "sm_75")):
            result = self.run_cli("export", "-o", "none.ckb", *arguments)
            self.assertIn(f"none.ckb has nothing in it: no entry of the store in {self.store} was chosen", result.err)
            self.one_key()
        self.assertEqual(self.run_cli("export", "-o", "one.ckb").err, "")

    def test_limits_that_make_no_sense_make_no_key(self):
        for limits in (("--expires", "tomorrow"), ("--modules", "nvfp4_*"), ("--modules", "")):
            self.assertIn("expected", self.run_cli("keygen", "-o", "k.key", *limits, expect=USAGE).err)
        self.assertFalse((self.folder / "k.key").exists())

    def test_secret_keys_are_guarded(self):
        self.keygen("fleet")
        self.assertEqual((self.folder / "fleet.key").stat().st_mode & 0o777, 0o600)
        self.assertIn("never overwritten", self.run_cli("keygen", "-o", "fleet.key", expect=USAGE).err)
        (self.folder / "fleet.key").chmod(0o644)
        self.one_key()
        self.assertIn("chmod 600", self.run_cli("export", "-o", "b.ckb", "--sign", "fleet.key", expect=USAGE).err)
        self.run_cli("export", "-o", "b.ckb", "--sign", "fleet.key.pub", expect=USAGE)
        self.run_cli("keygen", expect=USAGE)

    def test_a_secret_key_is_never_shown(self):
        self.keygen("fleet")
        self.run_cli("export", "-o", "b.ckb", "--sign", "fleet.key")
        secret = (self.folder / "fleet.key").read_text().split(":")[1].strip()
        for given in ("fleet.key", f"fleet:{secret}"):
            refused = self.elsewhere("import", "b.ckb", "--trust", given, expect=USAGE).err
            self.assertIn('"fleet…" is not a public key', refused)
            self.assertNotIn(secret[:16], refused)

    def test_no_half_of_a_key_pair_is_left(self):
        self.write("fleet.key.pub", "somebody's")
        self.assertIn("fleet.key.pub exists", self.run_cli("keygen", "-o", "fleet.key", expect=USAGE).err)
        self.assertFalse((self.folder / "fleet.key").exists())

    def test_a_bundle_is_read_twice_and_cannot_be_a_pipe(self):
        os.mkfifo(self.folder / "pipe")
        for no_file in ("pipe", "."):
            refused = self.elsewhere("import", no_file, "--insecure", expect=USAGE)
            self.assertIn("expected a regular file", refused.err)

    def test_a_file_that_is_not_a_bundle_is_refused(self):
        self.assertIn("not a bundle", self.refused("add.cu", "--insecure"))
        self.elsewhere("import", "none.ckb", "--insecure", expect=USAGE)
        self.elsewhere("import", expect=USAGE)
        self.run_cli("export", "-o", "x.ckb", env={"CUKILN_DISABLE_STORE": "1"}, expect=STORE)


class BlobBundles(BundleTest):
    def setUp(self):
        super().setUp()
        self.put_blob("triton", "KEY/add.cubin", "x" * 5000)
        self.put_blob("inductor", "k\x01\xe9", "")

    def blobs(self, run=None):
        listed = (run or self.elsewhere_json)("ls", "--blobs", "--sort", "size")["blobs"]
        return [(b["kind"], b["key"], b["size_bytes"], b["signer"]) for b in listed]

    def bytes_of(self, store, key):
        (database,) = store.rglob("store.db")
        with contextlib.closing(sqlite3.connect(database)) as connection:
            ((data,),) = connection.execute("SELECT data FROM payload JOIN object USING(id) WHERE kind<>'' AND summary=?", (key.encode(),))
        return data

    def refused(self, *arguments):
        result = self.elsewhere("import", *arguments, expect=FAILED)
        self.assertEqual((self.elsewhere_json("ls")["entries"], self.blobs()), ([], []))
        return result.err

    def test_a_whole_store_brings_its_blobs_along(self):
        self.one_key()
        public = self.keygen("fleet")
        done = self.run_json("export", "-o", "all.ckb", "--sign", "fleet.key")
        self.assertEqual((done["entries"], done["blobs"]), (1, 2))
        self.assertEqual(done["size_bytes"], (self.folder / "all.ckb").stat().st_size)
        self.assertIn("Wrote 1 entry for sm_90a and 2 blobs to all.ckb", self.run_cli("export", "-o", "all.ckb", "--sign", "fleet.key").out)  # fmt: skip
        taken = self.elsewhere_json("import", "all.ckb", "--trust", "fleet.key.pub")
        self.assertEqual((taken["imported"], taken["blobs"], taken["not_stored"], taken["signers"]),
                         (1, {"blobs": 2, "stored": 2, "already_there": 0}, [], [public]))  # fmt: skip
        self.assertEqual(self.blobs(), [("triton", "KEY/add.cubin", 5000, public), ("inductor", "0x6b01c3a9", 0, public)])
        self.assertEqual(self.bytes_of(self.folder / "elsewhere", "KEY/add.cubin"), b"x" * 5000)
        self.assertIn("no damage found", self.elsewhere("verify").out)
        again = self.elsewhere("import", "all.ckb", "--trust", public).out
        self.assertEqual(again, "Imported 0 entries; 3 were already there.\n")
        (blob,) = [b for b in self.elsewhere_json("ls", "--blobs")["blobs"] if b["kind"] == "triton"]
        self.assertEqual(blob["signers"], [public])
        self.assertRegex(self.elsewhere("show", blob["id"]).out, rf"signed by\s+{re.escape(public)}")

    def test_a_blob_that_is_there_already_stays(self):  # fault 376
        self.run_cli("export", "-o", "all.ckb")
        self.put_blob("triton", "KEY/add.cubin", "mine")
        taken = self.run_json("import", "all.ckb", "--insecure")
        self.assertEqual(taken["blobs"], {"blobs": 2, "stored": 0, "already_there": 2})
        self.assertEqual(self.bytes_of(self.store, "KEY/add.cubin"), b"mine")

    def test_some_entries_bring_blobs_on_request_only(self):
        key = self.one_key()
        (blob,) = [b["id"] for b in self.run_json("ls", "--blobs")["blobs"] if b["kind"] == "triton"]
        for how, amount in (((key,), (1, 0)), (("--arch", "sm_90a"), (1, 0)), (("--no-blobs",), (1, 0)),
                            ((key, "--blobs"), (1, 2)), (("--arch", "sm_80", "--blobs"), (0, 2)),
                            ((blob[:12],), (0, 1)), ((blob[:12], key), (1, 1))):
            done = self.run_json("export", "-o", "some.ckb", *how)
            self.assertEqual((done["entries"], done["blobs"]), amount, how)
            self.assertEqual((self.folder / "some.ckb").read_bytes()[:4], b"CKB6")
            taken = self.elsewhere_json("import", "some.ckb", "--insecure", "--no-blobs")
            self.assertEqual((taken["entries"], taken["blobs"]["blobs"]), (amount[0], 0))
        self.assertEqual(self.blobs(), [])
        self.run_cli("export", "-o", "x.ckb", "--blobs", "--no-blobs", expect=USAGE)
        self.run_cli("export", "--sources", "src", "--blobs", expect=USAGE)
        self.assertIn("no entry", self.run_cli("export", "-o", "x.ckb", "0123456789ab", expect=FAILED).err)

    def test_tactics_travel_signed_and_are_shown_with_their_rows(self):  # fault 303
        public = self.keygen("fleet")
        key = "1 nvfp4_gemm sm_90 132 0123456789abcdef NVIDIA H200"
        rows = "7168 7168 8 nvfp4_gemm_decode_8x7 1 12300\n7168 7168 64 nvfp4_gemm_prefill_64x128 4 20100\n"
        self.put_blob("cukiln.tactics", key, "cukiln tactics 1\nn k m kernel splits nanoseconds\n" + rows)
        (blob,) = self.run_json("ls", "--blobs", "--name", "cukiln.tactics")["blobs"]
        self.run_cli("export", "-o", "unsigned.ckb", blob["id"])
        self.assertIn("--insecure", self.refused("unsigned.ckb", "--trust", "fleet.key.pub"))
        self.run_cli("export", "-o", "tactics.ckb", blob["id"], "--sign", "fleet.key")
        self.elsewhere("import", "tactics.ckb", "--trust", "fleet.key.pub")
        shown = self.elsewhere_json("show", blob["id"])
        self.assertEqual((shown["key"], shown["signer"]), (key, public))
        self.assertEqual(shown["tactics"][1], {"n": 7168, "k": 7168, "m": 64, "kernel": "nvfp4_gemm_prefill_64x128",
                                               "splits": 4, "nanoseconds": 20100})  # fmt: skip
        text = self.elsewhere("show", blob["id"][:12]).out
        self.assertRegex(text, r"(?m)^ *n +k +m +kernel +splits +nanoseconds$")
        self.assertRegex(text, r"(?m)^ *7168 +7168 +8 +nvfp4_gemm_decode_8x7 +1 +12300$")
        self.put_blob("cukiln.tactics", "garbage", "a\nb c\nd\n")
        (garbage,) = [b for b in self.run_json("ls", "--blobs")["blobs"] if b["key"] == "garbage"]
        self.assertNotIn("tactics", self.run_json("show", garbage["id"]))
        self.assertNotIn("nanoseconds", self.run_cli("show", garbage["id"]).out)

    def test_a_bundle_with_an_untrusted_or_damaged_blob_is_refused_as_a_whole(self):  # fault 280, fault 282
        self.one_key()
        public = self.keygen("fleet")
        self.keygen("stranger")
        self.run_cli("export", "-o", "unsigned.ckb")
        self.run_cli("export", "-o", "strange.ckb", "--sign", "stranger.key")
        self.run_cli("export", "-o", "good.ckb", "--sign", "fleet.key")
        self.assertIn("--insecure", self.refused("unsigned.ckb", "--trust", "fleet.key.pub"))
        self.assertIn("--trust", self.refused("strange.ckb", "--trust", "fleet.key.pub"))
        good = (self.folder / "good.ckb").read_bytes()
        self.write("bad.ckb", good[:-1] + bytes([good[-1] ^ 1]))
        damaged = self.refused("bad.ckb", "--trust", "fleet.key.pub")
        self.assertIn("blob 2 of 2", damaged)
        self.assertIn("--no-blobs imports the entries alone", damaged)
        self.assertIn("blob 2 of 2", self.refused("bad.ckb", "--insecure"))
        self.write("cut.ckb", good[:-100])
        self.assertIn("truncated in its blob 2 of 2", self.refused("cut.ckb", "--insecure"))
        self.write("old", f"{public} expires=2026-01-31\n")
        self.assertIn("trusted until 2026-01-31", self.refused("good.ckb", "--trust", "old"))
        self.write("revoked", f"{public}\nrevoked {public}\n")
        self.assertIn("revoked", self.refused("good.ckb", "--insecure", "--trust", "revoked"))
        taken = self.elsewhere_json("import", "unsigned.ckb", "--insecure")
        self.assertEqual((taken["blobs"]["stored"], taken["signers"]), (2, ["unsigned"]))

    def test_unsigned_blobs_are_marked_and_signed_only_on_request(self):
        fleet = self.keygen("fleet")
        self.run_cli("export", "-o", "unsigned.ckb")
        self.elsewhere("import", "unsigned.ckb", "--insecure")
        refused = self.elsewhere("export", "-o", "again.ckb", "--sign", "fleet.key", expect=FAILED)
        self.assertIn("--sign-unsigned", refused.err)
        self.assertFalse((self.folder / "again.ckb").exists())
        self.elsewhere("export", "-o", "again.ckb", "--sign", "fleet.key", "--sign-unsigned")
        self.run_cli("rm", "--all")
        self.run_cli("import", "again.ckb", "--trust", "fleet.key.pub")
        self.assertEqual({b[3] for b in self.blobs(self.run_json)}, {f"unsigned {fleet}"})

    def test_a_system_store_and_an_image_have_the_blobs(self):
        self.one_key()
        fleet = self.keygen("fleet")
        self.run_cli("export", "-o", "all.ckb", "--sign", "fleet.key")
        self.assertEqual(self.run_json("export", "--oci", "image", "--sign", "fleet.key")["blobs"], 2)
        for number, source in enumerate(("all.ckb", "image")):
            system = self.folder / f"system-{number}"
            taken = self.run_json("import", source, "--trust", "fleet.key.pub", "--system-store", system)
            self.assertEqual(taken["blobs"], {"blobs": 2, "stored": 2, "already_there": 0})
            self.assertEqual(self.bytes_of(system, "KEY/add.cubin"), b"x" * 5000)
            env = {"CUKILN_SYSTEM_STORE": str(system)}
            listed = self.elsewhere_json("ls", "--blobs", env=env)["blobs"]
            self.assertEqual({b["signer"] for b in listed}, {fleet})
        self.assertIn("has no modules=", self.narrow_image())
        without = self.elsewhere_json("import", "image", "--trust", "fleet.key.pub", "--no-blobs")
        self.assertEqual((without["imported"], without["blobs"]["blobs"]), (1, 0))

    def narrow_image(self):
        """Why an image of a key for some modules is refused."""
        self.run_json("keygen", "-o", "narrow.key", "--modules", "ad")
        self.run_cli("export", "--oci", "narrow", "--sign", "narrow.key")
        return self.refused("narrow", "--trust", "narrow.key.pub")

    def test_a_store_that_takes_no_blobs_says_why(self):
        self.run_cli("export", "-o", "all.ckb")
        small = {"CUKILN_MAX_SIZE": "4096"}
        taken = self.elsewhere("--json", "import", "all.ckb", "--insecure", env=small, expect=STORE).json()
        self.assertEqual(taken["blobs"], {"blobs": 2, "stored": 1, "already_there": 0})
        (refused,) = taken["not_stored"]
        self.assertEqual((refused["entries"], refused["blobs"]), (0, 1))
        self.assertIn("max_size", refused["reason"])


if __name__ == "__main__":
    unittest.main()
