# SPDX-License-Identifier: Apache-2.0
"""The annotations of src/core/base/mutex.hpp make clang find a missing lock, as scripts/tidy has it look for one."""

import re
import shutil
import subprocess
import unittest
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
CLANG = shutil.which("clang++-16")
COUNTER = """
#include "core/base/mutex.hpp"
class Counter {
 public:
  void add() { %(add)s }
  void wait() { %(wait)s }
 private:
  void add_locked() CUKILN_REQUIRES(mutex_) { ++count_; }
  cukiln::Mutex mutex_;
  cukiln::ConditionVariable changed_;
  int count_ CUKILN_GUARDED_BY(mutex_) = 0;
};
"""
LOCK = "const cukiln::MutexLock lock(mutex_);"
WAIT = "cukiln::MutexLock lock(mutex_); changed_.wait(lock, [&]() CUKILN_REQUIRES(mutex_) { return count_ > 0; });"


@unittest.skipUnless(CLANG, "needs clang++-16: scripts/bootstrap --tools")
class ThreadSafety(unittest.TestCase):
    def findings(self, **bodies):
        text = COUNTER % ({"add": f"{LOCK} ++count_;", "wait": WAIT} | bodies)
        options = re.findall(r"--extra-arg=(-Wthread-safety\S*)", (REPOSITORY / "scripts/tidy").read_text(encoding="utf-8"))
        done = subprocess.run([CLANG, "-std=c++20", "-fsyntax-only", *options, "-I", REPOSITORY / "src", "-x", "c++", "-"],
                              input=text, capture_output=True, text=True, check=False)  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stderr)
        return re.findall(r"warning: (.*?) \[-Wthread-safety", done.stderr)

    def test_a_class_that_locks_has_no_finding(self):
        self.assertEqual(self.findings(), [])
        self.assertEqual(self.findings(add=f"{LOCK} add_locked();"), [])

    def test_a_guarded_member_without_the_lock_is_a_finding(self):
        self.assertEqual(self.findings(add="++count_;"),
                         ["writing variable 'count_' requires holding mutex 'mutex_' exclusively"])  # fmt: skip

    def test_a_function_that_expects_the_lock_is_a_finding_where_its_caller_has_none(self):
        self.assertEqual(self.findings(add="add_locked();"),
                         ["calling function 'add_locked' requires holding mutex 'mutex_' exclusively"])  # fmt: skip

    def test_a_member_used_after_an_unlock_is_a_finding(self):
        self.assertEqual(len(self.findings(wait="cukiln::MutexLock lock(mutex_); lock.unlock(); --count_;")), 1)

    def test_a_predicate_without_annotation_is_a_finding(self):
        self.assertEqual(len(self.findings(wait=WAIT.replace("() CUKILN_REQUIRES(mutex_)", ""))), 1)


if __name__ == "__main__":
    unittest.main()
