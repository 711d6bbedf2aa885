# SPDX-License-Identifier: Apache-2.0
"""Uploads are counted, retried and made up for; one that is lost is no success."""

import json
import signal
import subprocess
import unittest

from fleet import CUKILN, DaemonFleetTest
from daemon_test import relay_after
from servers import Hostile, Nginx, Redis, free_port

DONE, STORE = 0, 4
READER = "user reader on >r ~* +get +ping"
NAMES = ["scale", "add"]


class UploadTest(DaemonFleetTest):
    def setUp(self):
        super().setUp()
        modules = [{"name": name, "sources": [f"{name}.cu"], "define": {"ADDEND": 1}, "targets": ["sm_90a"]}
                   for name in NAMES]  # fmt: skip
        self.manifest = self.write("kernels.json", json.dumps({"format": 1, "modules": modules}))

    def preload(self, host, expect, *arguments):
        """The document, with the last line of the text."""
        report = self.run_json("preload", self.manifest, "--no-load", *arguments, env=host, expect=expect)
        return report, report["uploads"]

    def last_line(self, host, expect):
        result = self.run_cli("preload", self.manifest, "--no-load", env=host, expect=expect)
        return result.out.splitlines()[-1], result.err

    def assert_lost(self, uploads, count, reason, detail=""):
        self.assertEqual((uploads["acknowledged"], uploads["lost"]), (0, count), uploads)
        (why,) = uploads["reasons"]
        self.assertEqual((why["reason"], why["objects"]), (reason, count))
        self.assertIn(detail, why["detail"])
        self.assertIn("cukiln push", why["advice"])

    def hits(self, name, remote):
        return self.run_json("preload", self.manifest, "--no-load", env=self.host(name, remote, writer=False))["hits"]


class Refused(UploadTest):
    def test_a_wrong_password_is_no_success_and_is_made_up_for(self):  # fault 328, fault 329
        redis = self.started(Redis("user default on >right ~* +@all"))
        right, wrong = (redis.url.replace("//", f"//:{word}@") for word in ("right", "wrong"))
        report, uploads = self.preload(self.host("a", wrong), STORE)
        self.assertEqual((report["compiled"], report["stored"]), (2, 2))
        self.assert_lost(uploads, 2, "denied", "WRONGPASS")
        line, err = self.last_line(self.host("a", wrong), STORE)
        self.assertIn("uploads: 2 lost: redis://127.0.0.1", line)
        self.assertRegex(err, r"error: 2 uploads to redis://\S+ were not acknowledged: WRONGPASS .*'cukiln push'")
        self.assertEqual(self.remote_stats(self.host("a", wrong))["dropped_by_reason"], {"denied": 4})
        report, uploads = self.preload(self.host("a", right), DONE)
        self.assertEqual((report["hits"], uploads["acknowledged"], uploads["lost"]), (2, 2, 0))
        self.assertEqual(self.hits("b", right), 2)
        self.assertEqual(self.remote_stats(self.host("a", right))["stored"], 2)

    def test_noperm_is_no_success_nor_is_a_page_that_may_only_be_read(self):  # fault 328
        redis = self.started(Redis(READER))
        report, uploads = self.preload(self.host("a", redis.url.replace("//", "//reader:r@")), STORE)
        self.assert_lost(uploads, 2, "denied", "NOPERM")
        nginx = self.started(Nginx())
        _, uploads = self.preload(self.host("b", f"{nginx.url}/readonly"), STORE)
        self.assert_lost(uploads, 2, "denied", "HTTP status 403")
        # It is asked once: the answer is final.
        self.assertEqual([words[0] for words in nginx.requests() if words[0] == "PUT"], ["PUT"])

    def test_a_host_that_loads_warns_and_a_file_is_the_purpose_of_o(self):  # fault 328
        redis = self.started(Redis(READER))
        host = self.host("a", redis.url.replace("//", "//reader:r@"))
        self.write("out/x", "")
        result = self.run_cli("compile", "add.cu", "-DADDEND=1", "--arch", "sm_90a", "-o", "out", env=host)
        self.assertIn("warning: 1 upload to ", result.err)
        self.assertIn("uploads: 1 lost", result.out)
        self.assertIn("error: 1 upload to ", self.run_cli("compile", "add.cu", "-DADDEND=1", "--arch", "sm_90a", env=host,
                                                          expect=STORE).err)  # fmt: skip

    def test_a_key_that_cannot_be_read_is_no_success(self):  # fault 328
        host = self.host("a", "redis://127.0.0.1:1", CUKILN_REMOTE_SIGN="/no/such/key")
        _, uploads = self.preload(host, STORE)
        self.assert_lost(uploads, 2, "unusable", "/no/such/key")

    def test_a_revoked_or_expired_key_signs_nothing(self):  # fault 338
        redis = self.started(Redis())
        for trust, word in (f"{self.public}\nrevoked {self.public}\n", "revoked"), (f"{self.public} expires=2020-01-01\n", "expired"):
            host = self.host(word, redis.url, CUKILN_REMOTE_TRUST=str(self.write(f"trust-{word}", trust)))
            _, uploads = self.preload(host, STORE)
            self.assert_lost(uploads, 2, word, f"is {word} in the list of trusted keys")
            self.assertEqual(redis.keys(), [])
            (check,) = [c for c in self.run_json("doctor", env=host, expect=None)["checks"] if c["name"] == "remote"]
            self.assertEqual(check["status"], "wrong")
            self.assertIn(f"is {word}", check["detail"])
            self.assertIn("cukiln keygen", check["advice"])
            self.assertEqual(redis.keys(), [])
        other = self.run_json("keygen", "-o", "other.key")["public_key"]
        trust = self.write("trust", f"{self.public}\nrevoked {self.public}\n{other}\n")
        host = self.host("c", redis.url, CUKILN_REMOTE_TRUST=str(trust), CUKILN_REMOTE_SIGN=str(self.folder / "other.key"))
        (check,) = [c for c in self.run_json("doctor", env=host, expect=None)["checks"] if c["name"] == "remote"]
        self.assertIn("this machine writes, 1 trusted key", check["detail"])

    def test_doctor_uploads(self):  # fault 328
        redis, nginx = self.started(Redis(READER)), self.started(Nginx())
        sly, readonly = redis.url.replace("//", "//reader:r@"), f"{nginx.url}/readonly"
        remote = f"{redis.url},{sly},{nginx.url}/cache,{readonly}"

        def statuses(writer):
            checks = self.run_json("doctor", env=self.host("a", remote, writer), expect=None)["checks"]
            return [c for c in checks if c["name"] == "remote"]

        self.assertEqual([c["status"] for c in statuses(True)], ["ok", "wrong", "ok", "wrong"])
        self.assertIn("takes no upload: NOPERM", statuses(True)[1]["detail"])
        self.assertEqual(len(redis.keys()), 1)  # one of the key, however often
        self.assertEqual([c["status"] for c in statuses(False)], ["ok"] * 4)


class Retried(UploadTest):
    def start(self, host):
        return subprocess.Popen([CUKILN, "--json", "preload", self.manifest, "--no-load"], cwd=self.folder,
                                env=self.environment | host, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)  # fmt: skip

    def test_a_server_that_is_away_is_no_success(self):  # fault 328
        _, uploads = self.preload(self.host("a", "redis://127.0.0.1:1"), STORE)
        self.assert_lost(uploads, 2, "unreachable")

    def test_a_server_that_comes_back_gets_all(self):  # fault 319
        port = free_port()
        process = self.start(self.host("a", f"redis://127.0.0.1:{port}"))
        self.assertTrue(any("it is tried again" in line for line in process.stderr))
        redis = self.started(Redis(port=port))
        out, err = process.communicate(timeout=240)
        self.assertEqual(process.returncode, DONE, err)
        self.assertEqual(json.loads(out)["uploads"]["acknowledged"], 2)
        self.assertEqual(self.hits("b", redis.url), 2)

    def test_one_slow_answer_costs_no_upload(self):  # fault 319
        redis = self.started(Redis())
        answers = iter([1])
        slow = Hostile(lambda connection: relay_after(next(answers, 0), redis.port)(connection))
        self.addCleanup(slow.stop)
        _, uploads = self.preload(self.host("a", slow.redis_url, CUKILN_REMOTE_TIMEOUT_MS="200"), DONE)
        self.assertEqual((uploads["acknowledged"], uploads["lost"]), (2, 0))
        self.assertEqual(self.hits("b", redis.url), 2)

    def test_a_daemon_goes_on_and_the_next_one_makes_up(self):  # fault 319, fault 329
        port = free_port()
        client = self.daemon("a", f"redis://127.0.0.1:{port}")
        self.assertEqual(self.outcome(client, "add.cu", "-DADDEND=1", "--arch", "sm_90a"), "compiled")
        redis = Redis(port=port)
        self.wait_until(lambda: len(redis.keys()) == 3)
        redis.stop()
        self.assertEqual(self.outcome(client, "add.cu", "-DADDEND=2", "--arch", "sm_90a"), "compiled")
        self.processes["a"].send_signal(signal.SIGTERM)
        self.processes["a"].wait(60)
        redis = self.started(Redis(port=port))
        self.daemon("a", redis.url)
        self.wait_until(lambda: len(redis.keys()) == 3)  # of the one that was lost


class Pushed(UploadTest):
    def puts(self, nginx):
        return sum(words[0] == "PUT" for words in nginx.requests())

    def test_push_uploads_what_is_not_acknowledged(self):  # fault 329
        nginx = self.started(Nginx())
        host = self.host("a", f"{nginx.url}/cache")
        alone = self.host("a", "")
        keys = [m["key"] for m in self.run_json("preload", self.manifest, "--no-load", env=alone)["modules"]]
        (other,) = self.run_json("compile", "add.cu", "-DADDEND=2", "--arch", "sm_90a", env=alone)["modules"]
        self.assertEqual(self.puts(nginx), 0)
        pushed = lambda *what: self.run_json("push", *what, env=host)
        self.assertEqual(pushed(keys[0][:12])["acknowledged"], 1)
        self.assertEqual(self.puts(nginx), 3)  # the entry, the sets of its request, the index of its module
        report = pushed(self.manifest)
        self.assertEqual((report["acknowledged"], report["already_there"]), (1, 1))
        report = pushed()
        self.assertEqual((report["acknowledged"], report["already_there"], report["lost"]), (1, 2, 0))
        before = len(nginx.requests())
        self.assertEqual(pushed()["already_there"], 3)
        self.assertEqual(self.preload(host, DONE)[0]["hits"], 2)
        self.assertEqual(len(nginx.requests()), before)  # nothing is asked
        self.assertEqual(pushed("--again", other["key"])["acknowledged"], 1)
        self.assertEqual(self.hits("b", f"{nginx.url}/cache"), 2)
        # Another server, or another key, has acknowledged nothing.
        self.assertEqual(self.run_json("push", env=self.host("a", f"{nginx.url}/other"))["acknowledged"], 3)
        self.run_cli("keygen", "-o", "other.key")
        signed = self.host("a", f"{nginx.url}/cache", CUKILN_REMOTE_SIGN=str(self.folder / "other.key"))
        self.assertEqual(self.run_json("push", env=signed)["acknowledged"], 3)
        result = self.run_cli("push", env=host)
        self.assertEqual(result.out, "3 objects acknowledged before\nuploads: none needed\n")

    def test_what_a_server_delivered_is_not_uploaded_to_it(self):  # fault 329
        nginx = self.started(Nginx())
        remote = f"{nginx.url}/cache"
        self.preload(self.host("a", remote), DONE)
        before = self.puts(nginx)
        self.assertEqual(self.preload(self.host("b", remote), DONE)[0]["hits"], 2)
        self.assertEqual(self.puts(nginx), before)
        both = f"{remote},{nginx.url}/second"
        report = self.run_json("push", env=self.host("b", both))
        self.assertEqual(report["acknowledged"], 2)
        report, uploads = self.preload(self.host("c", both), DONE)
        self.assertEqual((report["hits"], uploads["acknowledged"]), (2, 2))  # by the second

    def test_push_removes_what_a_revoked_key_signed(self):
        redis = self.started(Redis())
        self.preload(self.host("a", redis.url), DONE)
        self.assertEqual(self.hits("b", redis.url), 2)
        other = self.run_json("keygen", "-o", "other.key")["public_key"]
        trust = self.write("trust", f"{self.public}\nrevoked {self.public}\n{other}\n")
        host = self.host("b", redis.url, CUKILN_REMOTE_TRUST=str(trust), CUKILN_REMOTE_SIGN=str(self.folder / "other.key"))
        report = self.run_json("push", env=host)
        self.assertEqual((report["acknowledged"], report["lost"], report["kept"]), (0, 0, 0))
        self.assertEqual(self.run_json("ls", env=host)["entries"], [])

    def test_push_that_cannot_is_exit_4_or_2(self):
        redis = self.started(Redis(READER))
        host = self.host("a", redis.url.replace("//", "//reader:r@"))
        self.run_json("preload", self.manifest, "--no-load", env=self.host("a", ""))
        self.assert_lost(self.run_json("push", env=host, expect=STORE), 2, "denied", "NOPERM")
        self.assertIn("remote_sign", self.run_cli("push", env=self.host("a", redis.url, writer=False), expect=2).err)
        self.assertIn("abcdef", self.run_cli("push", "abcdef", env=host, expect=1).err)
        self.assertIn("add for sm_100a", self.run_cli("push", self.manifest, "--arch", "sm_100a", env=host, expect=1).err)

    def test_import_uploads(self):  # fault 328
        redis = self.started(Redis(READER))
        self.run_json("preload", self.manifest, "--no-load", env=self.host("a", ""))
        self.run_json("export", "-o", "all.ckb", "--sign", "fleet.key", env=self.host("a", ""))
        imported = lambda name, remote, expect: self.run_json("import", "all.ckb", env=self.host(name, remote), expect=expect)
        self.assert_lost(imported("b", redis.url.replace("//", "//reader:r@"), STORE)["uploads"], 2, "denied", "NOPERM")
        report = imported("b", redis.url, DONE)
        self.assertEqual((report["already_there"], report["uploads"]["acknowledged"]), (2, 2))
        self.assertEqual(self.hits("c", redis.url), 2)

    def test_what_no_trusted_key_vouches_for_stays(self):
        redis = self.started(Redis())
        self.run_json("preload", self.manifest, "--no-load", env=self.host("a", ""))
        self.run_json("export", "-o", "all.ckb", env=self.host("a", ""))
        report = self.run_json("import", "all.ckb", "--insecure", env=self.host("b", redis.url))
        self.assertEqual((report["uploads"]["acknowledged"], report["uploads"]["kept"]), (0, 2))
        self.assertEqual(self.run_json("push", env=self.host("b", redis.url))["kept"], 2)
        self.run_json("push", "add", env=self.host("b", redis.url), expect=STORE)
        self.assertEqual(redis.keys(), [])


class Pod(UploadTest):
    def test_what_the_daemon_stored_is_stored(self):  # fault 328
        client = self.daemon("node", "")
        pod = client | {"CUKILN_STORE": str(self.folder / "add.cu" / "store")}  # in a file: no folder
        report, uploads = self.preload(pod, DONE)
        self.assertEqual((report["compiled"], report["stored"]), (2, 2))
        self.assertEqual([m["not_stored"] for m in report["modules"]], ["", ""])
        self.assertEqual(uploads["lost"], 0)
        self.assertEqual(self.preload(pod, DONE)[0]["hits"], 2)
        # Alone it is no success.
        alone = {"CUKILN_STORE": pod["CUKILN_STORE"], "CUKILN_DAEMON": "off"}
        report, _ = self.preload(alone, STORE)
        self.assertEqual(report["stored"], 0)


if __name__ == "__main__":
    unittest.main()
