"""Runs a module of CPython's tests and appends a line for each finished test to a file: its outcome and its name.

Arguments: the module, the file, the longest time of the module in seconds.
"""

import faulthandler
import os
import socket
import sys
import unittest

module, path, seconds = sys.argv[1:]
lines = open(path, "a", buffering=1)
faulthandler.dump_traceback_later(float(seconds), exit=True)


class Result(unittest.TextTestResult):
    def note(self, outcome, test):
        lines.write(f"{outcome} {test.id()}\n")

    def addSuccess(self, test):
        self.note("passed", test)

    def addError(self, test, error):
        super().addError(test, error)
        self.note("failed", test)

    def addFailure(self, test, error):
        super().addFailure(test, error)
        self.note("failed", test)

    def addSubTest(self, test, subtest, error):
        super().addSubTest(test, subtest, error)
        if error:
            self.note("failed", test)

    def addSkip(self, test, reason):
        self.note("skipped", test)

    def addExpectedFailure(self, test, error):
        self.note("passed", test)


try:
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_UDPLITE).close()
except OSError:
    # The tests of UDP-Lite ask only whether Python knows the protocol. Like later versions of them, skip them if the stack lacks it.
    del socket.IPPROTO_UDPLITE

suite = unittest.defaultTestLoader.loadTestsFromName(f"test.{module}")


def wanted(tests):
    for test in tests:
        if isinstance(test, unittest.TestSuite):
            yield from wanted(test)
        elif "ThreadedVSOCKSocketStreamTest" not in test.id():
            # These tests hang on a host with an incomplete AF_VSOCK.
            yield test


if __name__ == "__main__":
    # Some modules have fixtures, which only the module's own suite runs. None of them has the tests that hang.
    tests = unittest.TestSuite(wanted(suite)) if module == "test_socket" else suite
    unittest.TextTestRunner(resultclass=Result, verbosity=0).run(tests)
    lines.close()
    # Processes of tests that have failed may still run, and the interpreter would wait for them.
    os._exit(0)
