# SPDX-License-Identifier: Apache-2.0
"""Eight machines, one remote store: each kernel is compiled once in the fleet."""

import json
import unittest

from fleet import FleetTest
from servers import Nginx, Redis

HOSTS = 8
KERNELS = 3


class Fleet(FleetTest):
    def setUp(self):
        super().setUp()
        self.files = []
        for i in range(KERNELS):
            self.files.append(self.write(f"k{i}.cu", f'#include "tile.cuh"\nextern "C" __global__ void k{i}() {{}}\n').name)

    def preload(self, host):
        return self.start_cli(host, "compile", *self.files, "--arch", "sm_90a")

    def report(self, process):
        out, err = process.communicate(timeout=240)
        self.assertEqual(process.returncode, 0, err.decode())
        return json.loads(out)

    def test_one_after_another_over_http(self):
        remote = self.started(Nginx()).url + "/cache"
        hosts = [self.host(f"h{i}", remote) for i in range(HOSTS)]
        reports = [self.report(self.preload(host)) for host in hosts]
        self.assertEqual([r["compiled"] for r in reports], [KERNELS] + [0] * (HOSTS - 1))
        self.assertEqual([r["hits"] for r in reports], [0] + [KERNELS] * (HOSTS - 1))

    def test_all_at_once_over_redis(self):
        redis = self.started(Redis())
        hosts = [self.host(f"h{i}", redis.url) for i in range(HOSTS)]
        processes = [self.preload(host) for host in hosts]
        reports = [self.report(process) for process in processes]
        self.assertEqual(sum(r["compiled"] for r in reports), KERNELS)
        self.assertEqual(sum(r["hits"] for r in reports), KERNELS * (HOSTS - 1))
        compiled = {(k["name"], k["outcome"]) for r in reports for k in r["modules"] if k["outcome"] == "compiled"}
        self.assertEqual(len(compiled), KERNELS)
        # The same bytes everywhere, and no lease is left.
        self.assertEqual(len({k["key"] for r in reports for k in r["modules"]}), KERNELS)
        self.assertEqual([key for key in redis.keys() if "lease" in key], [])

    def test_the_lease_of_a_machine_that_dies_delays_no_other(self):
        redis = self.started(Redis())
        self.write("slow.cu", slow_kernel())
        first = self.start_cli(self.host("a", redis.url), "compile", "slow.cu", "--arch", "sm_90a")
        while not any("lease" in key for key in redis.keys()):
            self.assertIsNone(first.poll(), "it was over before it could be killed")
        first.kill()
        first.communicate()
        second = self.start_cli(self.host("b", redis.url), "compile", "slow.cu", "--arch", "sm_90a")
        self.assertEqual(self.report(second)["compiled"], 1)


def slow_kernel():
    """Some seconds of NVRTC: many instances of a long unrolled loop."""
    body = "".join(
        f'extern "C" __global__ void s{i}(float* x) {{\n  float a = x[threadIdx.x];\n#pragma unroll\n'
        f"  for (int i = 0; i < 400; ++i) a = __sinf(a) * {i + 2}.f + x[i];\n  x[threadIdx.x] = a;\n}}\n"
        for i in range(4)
    )
    return body


if __name__ == "__main__":
    unittest.main()
