# SPDX-License-Identifier: Apache-2.0
"""What every pytest file of this project shares: TAP output, skipping by capability, and where the
tree and the programs are."""

import os
import pathlib

import pytest

from support import capabilities


def pytest_addoption(parser):
    parser.addoption("--tap", action="store_true", help="print TAP, for `meson test`")


@pytest.hookimpl(trylast=True)  # After pytest has set up its own reporter.
def pytest_configure(config):
    config.addinivalue_line("markers", "needs(capability): skip where the machine lacks it")
    if config.getoption("tap"):
        config.pluginmanager.unregister(name="terminalreporter")
        config.pluginmanager.register(TapReporter(), "tap")


def pytest_runtest_setup(item):
    for marker in item.iter_markers("needs"):
        for capability in marker.args:
            why = capabilities.why_missing(capability)
            if why is not None:
                pytest.skip(f"{capability}: {why}")


@pytest.fixture(scope="session")
def source():
    """The root of the source tree."""
    return pathlib.Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def build(source):
    """The build directory: the one Meson runs the tests of, or `build` when run by hand."""
    return pathlib.Path(os.environ.get("FAIRWAY_BUILD", source / "build"))


@pytest.fixture(scope="session")
def fairway(build):
    """The server's program."""
    return build / "fairway"


class TapReporter:
    """Prints the Test Anything Protocol. A test has up to three reports (set-up, call, tear-down).
    The first that is not a success decides; if all are, the one of the call."""

    def __init__(self):
        self.number = 0
        self.outcome = None  # The deciding report of the running test.

    def pytest_collection_finish(self, session):
        print(f"1..{len(session.items)}", flush=True)

    def pytest_collectreport(self, report):
        if report.failed:
            self.explain(report)
            print(f"Bail out! {report.nodeid} cannot be read", flush=True)

    def pytest_runtest_logreport(self, report):
        decided = self.outcome is not None and not self.outcome.passed
        if not decided and (report.when != "teardown" or not report.passed):
            self.outcome = report
        if report.when == "teardown":
            self.finish(self.outcome)
            self.outcome = None

    def finish(self, report):
        self.number += 1
        name = report.nodeid.split("::", 1)[-1]
        # TAP has no way to quote: a '#' starts a directive.
        line = f"{self.number} - {name.replace('#', '%23')}"
        if report.skipped and not hasattr(report, "wasxfail"):
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else "no reason"
            print(f"ok {line} # SKIP {reason.removeprefix('Skipped: ')}", flush=True)
            return
        # An expected failure says that the product is wrong and nobody minds: it fails here.
        passed = report.passed and not hasattr(report, "wasxfail")
        print(f"{'ok' if passed else 'not ok'} {line}", flush=True)
        if not passed:
            self.explain(report)

    @staticmethod
    def explain(report):
        sections = [report.longreprtext] + [f"{name}:\n{text}" for name, text in report.sections]
        for line in "\n".join(sections).splitlines():
            print(f"# {line}", flush=True)
