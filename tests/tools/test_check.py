# SPDX-License-Identifier: Apache-2.0
"""Goal: tools/check never calls a run good that was not: crashes, time-outs, broken plans, silent
and unfounded skips all fail. Method: made-up logs of `meson test`, with TAP as cmocka and our
pytest plugin print it, are judged by the real program; then the plugin itself runs on small
pytest files."""

import json
import subprocess
import sys

import pytest

from support import capabilities


@pytest.fixture
def check(source, tmp_path):
    """Judges a log with one program in it; returns the exit status and the lines printed."""

    def run(stdout, result="OK", returncode=0, stderr="", arguments=(), has="ipv6 no"):
        entry = {"name": "fairway:unit / base/x", "stdout": stdout, "stderr": stderr, "result": result,
                 "duration": 1.5, "returncode": returncode}
        log = tmp_path / "testlog.json"
        log.write_text(json.dumps(entry) + "\n")
        capabilities = tmp_path / "capabilities"
        capabilities.write_text(f"#!/bin/sh\necho {has}\n")
        capabilities.chmod(0o755)
        done = subprocess.run(
            [source / "tools/check", tmp_path, "--log", log, "--capabilities", capabilities,
             *arguments],
            stdout=subprocess.PIPE, text=True, env={"PATH": "/usr/bin:/bin"}, check=False)
        return done.returncode, done.stdout.splitlines()

    return run


def test_counts_subtests(check):
    status, lines = check("1..3\nok 1 - a\nok 2 - b\nok 3 - c\n# ok - tests\n")
    assert status == 0
    assert lines[-1] == "3 passed, 0 failed, 0 skipped"
    assert lines[0].split() == ["base/x", "1.50", "s", "3", "passed"]


def test_expected_assertions_are_not_shown(check):
    status, lines = check("1..2\nExpected assertion x != NULL occurred\nok 1 - a\nnot ok 2 - b\n"
                          "# 0x1 != 0x2\n", "FAIL", 1)
    assert status == 1
    assert not any("Expected assertion" in line for line in lines)
    assert "    | # 0x1 != 0x2" in lines


def test_failure_is_named_and_shown(check):
    status, lines = check("1..2\nok 1 - a\nnot ok 2 - test_b\n# why\n", "FAIL", 1, "a word\n")
    assert status == 1
    assert "    test_b" in lines
    assert "    | # why" in lines
    assert "    | a word" in lines
    assert lines[-1] == "1 passed, 1 failed, 0 skipped"


@pytest.mark.parametrize("stdout, result, returncode, complaint", [
    ("1..3\nok 1 - a\n", "FAIL", -6, "killed by signal 6; 3 sub-tests planned, 1 seen"),
    ("1..3\nok 1 - a\n", "OK", 0, "3 sub-tests planned, 1 seen"),
    ("1..1\nok 1 - a\nok 2 - b\n", "OK", 0, "1 sub-tests planned, 2 seen"),
    ("1..1\nok 1 - a\n", "TIMEOUT", -15, "did not end within its time limit, 2 s"),
    ("1..1\nok 1 - a\n", "FAIL", 1, "exit status 1 although no sub-test failed"),
    ("1..1\nok 1 - a\nBail out! broken\n", "FAIL", 1, "Bail out! broken"),
    ("ok 1 - a\n", "OK", 0, "printed no plan (TAP)"),
    ("", "ERROR", 127, "printed no plan (TAP)"),
])
def test_what_did_not_end_well_fails(check, stdout, result, returncode, complaint):
    status, lines = check(stdout, result, returncode)
    assert status == 1
    assert f"    {complaint}" in lines
    assert ", 1 failed," in lines[-1]


CMOCKA_SKIP = "1..2\n# SKIP-REASON ipv6: no address\nnot ok 1 # SKIP test_six\nok 2 - b\n"
PYTEST_SKIP = "1..2\nok 1 - test_six # SKIP ipv6: no address\nok 2 - b\n"


@pytest.mark.parametrize("stdout", [CMOCKA_SKIP, PYTEST_SKIP])
def test_a_skip_says_what_and_why(check, stdout):
    status, lines = check(stdout, "FAIL")
    assert status == 0
    assert "    base/x:test_six: ipv6: no address" in lines
    assert lines[-1] == "1 passed, 0 failed, 1 skipped"


@pytest.mark.parametrize("stdout", [CMOCKA_SKIP, PYTEST_SKIP])
def test_ci_refuses_a_skip_of_what_the_machine_has(check, stdout):
    assert check(stdout, has="ipv6 yes")[0] == 0
    assert check(stdout, arguments=["--ci"])[0] == 0
    status, lines = check(stdout, has="ipv6 yes", arguments=["--ci"])
    assert status == 1
    assert lines[-1] == "1 passed, 1 failed, 0 skipped"


@pytest.mark.parametrize("stdout", [
    "1..1\nnot ok 1 # SKIP test_six\n",  # cmocka's bare skip().
    "1..1\nok 1 - a # SKIP\n",
    "1..1\nok 1 - a # SKIP not today\n",
    "1..1\nok 1 - a # SKIP weather: rain\n",  # No such capability.
    "1..0 # SKIP later\n",
    # A reason is for the next result only.
    "1..3\n# SKIP-REASON ipv6: no\nnot ok 1 # SKIP a\nok 2 - b\nnot ok 3 # SKIP c\n",
])
def test_a_skip_must_name_a_capability(check, stdout):
    status, lines = check(stdout)
    assert status == 1
    assert any("skipped without naming a known capability" in line for line in lines)
    assert ", 1 failed," in lines[-1]


def test_a_program_without_tap_is_one_subtest(check, tmp_path):
    info = tmp_path / "meson-info"
    info.mkdir()
    (info / "intro-tests.json").write_text('[{"name": "base/x", "protocol": "exitcode"}]')
    assert check("a table\n")[1][-1] == "1 passed, 0 failed, 0 skipped"
    for status in [1, 77, -6]:  # 77 is Meson's skip, which names nothing.
        code, lines = check("a table\n", "FAIL", status)
        assert code == 1
        assert "    | a table" in lines
        assert lines[-1] == "0 passed, 1 failed, 0 skipped"


def test_the_two_probes_agree(source, build):
    told = subprocess.run([source / "tools/capabilities", build], stdout=subprocess.PIPE, text=True,
                          check=True).stdout
    independent = dict(line.split() for line in told.splitlines())
    ours = {name: "no" if capabilities.why_missing(name) else "yes"
            for name in capabilities.PROBES}
    assert independent == ours


def test_nothing_run_is_a_failure(source, tmp_path):
    log = tmp_path / "testlog.json"
    log.write_text("")
    done = subprocess.run([source / "tools/check", "unused", "--log", log],
                          stdout=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1] == "0 passed, 1 failed, 0 skipped"


FLAKY = """#!/bin/sh
# Fails in its first run only.
echo 1..1
[ -e "$0.ran" ] || { touch "$0.ran"; echo not ok 1 - test_rare; echo '# a hiccup'; exit 1; }
echo ok 1 - test_rare
"""


def test_what_failed_is_not_given_a_second_chance(source, tmp_path):
    flaky = tmp_path / "flaky"
    flaky.write_text(FLAKY)
    flaky.chmod(0o755)
    (tmp_path / "meson.build").write_text("project('p')\ntest('p/flaky', find_program('./flaky'), protocol: 'tap')\n")
    subprocess.run(["meson", "setup", "build"], cwd=tmp_path, check=True, stdout=subprocess.DEVNULL)
    done = subprocess.run([source / "tools/check", "build"], cwd=tmp_path, check=False, stdout=subprocess.PIPE, text=True)
    assert done.returncode == 1
    assert "    | # a hiccup" in done.stdout.splitlines()
    assert done.stdout.endswith("\n0 passed, 1 failed, 0 skipped\n")


PYTEST_FILE = '''
import pytest

def test_good():
    print("unseen")

def test_bad():
    print("seen")
    assert 1 == 2

@pytest.fixture
def broken():
    yield
    raise RuntimeError("teardown")

def test_broken_teardown(broken):
    pass

@pytest.mark.xfail
def test_excused():
    assert False

@pytest.mark.xfail
def test_excused_in_vain():
    pass

@pytest.mark.needs("never")
def test_needs():
    assert False

@pytest.mark.parametrize("value", ["a # SKIP b"])
def test_names(value):
    pass
'''

CAPABILITIES_FILE = '''
def why_missing(capability):
    return "not here"
'''


@pytest.fixture
def tap(source, tmp_path):
    """Runs pytest with our plugin on a file of its own; returns the lines printed."""

    def run(text):
        (tmp_path / "support").mkdir()
        (tmp_path / "support/capabilities.py").write_text(CAPABILITIES_FILE)
        (tmp_path / "conftest.py").write_text((source / "tests/conftest.py").read_text())
        (tmp_path / "test_made_up.py").write_text(text)
        program = [sys.executable, "-m", "pytest", "--tap", "-p", "no:cacheprovider", "test_made_up.py"]
        done = subprocess.run(program, cwd=tmp_path, stdout=subprocess.PIPE, text=True, check=False)
        return done.stdout.splitlines()

    return run


def test_pytest_speaks_tap(tap):
    lines = tap(PYTEST_FILE)
    results = [line for line in lines if not line.startswith("#")]
    assert results == [
        "1..7",
        "ok 1 - test_good",
        "not ok 2 - test_bad",
        "not ok 3 - test_broken_teardown",
        "not ok 4 - test_excused",
        "not ok 5 - test_excused_in_vain",
        "ok 6 - test_needs # SKIP never: not here",
        "ok 7 - test_names[a %23 SKIP b]",
    ]
    assert any("assert 1 == 2" in line for line in lines)
    assert "# seen" in lines
    assert "# unseen" not in lines


def test_pytest_bails_out_on_a_file_it_cannot_read(tap):
    lines = tap("import nothing_of_this_name\n")
    assert any(line.startswith("Bail out!") for line in lines)
