# SPDX-License-Identifier: Apache-2.0
"""Remote stores over TLS: the server's identity is verified before the first request."""

import json
import unittest

from fleet import KERNELS, STORE, FleetTest
from servers import Authority, Nginx, Redis


class Tls(FleetTest):
    def setUp(self):
        super().setUp()
        self.authority = Authority(self.folder)
        self.ca = f"?ca={self.authority.file}"

    def nginx(self, *arguments, **options):
        server = self.started(Nginx(self.authority.issue("nginx", *arguments, **options)))
        return server, f"https://localhost:{server.port}/cache"

    def redis(self, *arguments, clients="no", **options):
        certificate = self.authority.issue("redis", *arguments, **options)
        server = self.started(Redis(f"tls-auth-clients {clients}", f"tls-ca-cert-file {self.authority.file}",
                                    certificate=certificate))  # fmt: skip
        return server, f"rediss://localhost:{server.port}"

    def doctor(self, remote):
        (check,) = [c for c in self.run_json("doctor", env=self.host("doctor", remote), expect=None)["checks"] if c["name"] == "remote"]
        return check

    def test_a_machine_that_never_compiled_hits_what_another_one_put(self):
        for server, url in (self.nginx(), self.redis()):
            name = url.split(":")[0]
            self.assertEqual(self.doctor(url + self.ca)["status"], "ok")
            writer = self.host("a" + name, url + self.ca)
            self.assertEqual(self.outcome(writer), "compiled")
            self.assertEqual(self.remote_stats(writer)["stored"], 1)
            self.assertEqual(self.outcome(self.host("b" + name, url + self.ca, writer=False)), "hit")

    def test_what_is_large_travels_in_many_records(self):
        _, url = self.redis()
        array = "__device__ const unsigned table[200000] = {1, 2, 3};\n"
        text = array + 'extern "C" __global__ void big(unsigned* x) { x[0] = table[x[1]]; }\n'
        big = (self.write("big.cu", text).name, "--arch", "sm_90a")
        self.assertEqual(self.outcome(self.host("a", url + self.ca), *big), "compiled")
        self.assertEqual(self.outcome(self.host("b", url + self.ca, writer=False), *big), "hit")

    def test_who_cannot_be_trusted_is_not_asked_and_said_why(self):  # fault 377
        stranger = f"?ca={Authority(self.folder, 'stranger').file}"
        for make in (self.nginx, self.redis):
            for arguments, options, ca, advice in (
                ((), {}, "", "add ?ca=FILE to the address"),
                ((), {}, stranger, "stranger.pem does not contain the authority that signed it"),
                ((), {"days": -1}, self.ca, "renew it on the server"),
                (("DNS:elsewhere.example",), {}, self.ca, "the address must name the server as its certificate does"),
            ):
                server, url = make(*arguments, **options)
                check = self.doctor(url + ca)
                self.assertEqual(check["status"], "wrong", (url, advice))
                self.assertIn(advice, check["detail"])
                self.assertIn("(untrusted)", check["detail"])
                self.assertIn("certificate", check["advice"])
                if make == self.nginx:
                    self.assertEqual(server.requests(), [])

    def test_a_start_goes_on_without_it_and_says_so_once(self):
        server, url = self.nginx()
        files = [self.write(f"k{i}.cu", f'extern "C" __global__ void k{i}() {{}}\n').name for i in range(3)]
        result = self.run_cli("compile", *files, "--arch", "sm_90a", "--json", env=self.host("a", url), expect=STORE)
        self.assertEqual([k["outcome"] for k in json.loads(result.out)["modules"]], ["compiled"] * 3)
        self.assertEqual(result.err.count("is not used for 30 s (circuit breaker open)"), 1, result.err)
        self.assertIn("?ca=FILE", result.err)
        self.assertEqual(server.files(), [])

    def test_a_server_that_wants_to_know_us_is_shown_a_certificate(self):
        _, url = self.redis(clients="yes")
        check = self.doctor(url + self.ca)
        self.assertEqual(check["status"], "wrong")
        self.assertIn("?certificate=FILE", check["detail"])
        ours = f"{self.ca}&certificate={self.authority.issue('machine')}.pem"
        self.assertEqual(self.outcome(self.host("a", url + ours)), "compiled")
        self.assertEqual(self.outcome(self.host("b", url + ours, writer=False)), "hit")

    def test_plain_and_tls_do_not_understand_each_other_and_nothing_hangs(self):
        nginx, secure = self.nginx()
        plain = self.started(Redis())
        for url in (f"rediss://127.0.0.1:{plain.port}{self.ca}", f"redis://127.0.0.1:{nginx.port}",
                    secure.replace("https", "http")):  # fmt: skip
            self.assertEqual(self.doctor(url)["status"], "wrong", url)
            self.assertEqual(self.outcome(self.host(url.split(":")[0] + url[-5:].replace("/", "-"), url, writer=False)), "compiled")

    def test_options_that_mean_nothing_are_refused(self):
        for remote, said in (("https://h/x?ca=/no/such/ca.pem", "cannot read /no/such/ca.pem"),
                             (f"http://h/x{self.ca}", "in the address of a http store"),
                             (f"redis://h{self.ca}", "in the address of a redis store"),
                             ("https://h/x?region=here", "expected ca=FILE"),
                             ("rediss://h?verify=no", "expected ca=FILE")):
            self.assertIn(said, self.doctor(remote)["detail"])


if __name__ == "__main__":
    unittest.main()
