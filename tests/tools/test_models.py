# SPDX-License-Identifier: Apache-2.0
"""Goal: tools/models reports a model whose variants come out otherwise than they say, and does not
take a broken model for one that fails as expected. Method: made-up models of a few lines, each wrong
in one way."""

import subprocess

import pytest

pytestmark = pytest.mark.needs("spin")

GOOD = " * Verify: -DGOOD  passes\n"
BAD = " * Verify: (none)  fails: assertion violated\n"
CODE = """ */
active proctype only()
{
    byte x = 1;
#ifdef GOOD
    assert(x == 1)
#else
    assert(x == 2)
#endif
}
"""


def models(source, tmp_path, text):
    path = tmp_path / "made_up.pml"
    path.write_text("/*\n" + text)
    done = subprocess.run([source / "tools/models", path], stdout=subprocess.PIPE, text=True,
                          check=False)
    return done.returncode, done.stdout


def test_states_what_it_explored(source, tmp_path):
    status, text = models(source, tmp_path, GOOD + BAD + CODE)
    assert status == 0
    assert text.count(" states ") == 2
    assert text.endswith("2 passed, 0 failed, 0 skipped\n")
    assert [path.name for path in tmp_path.iterdir()] == ["made_up.pml"]


@pytest.mark.parametrize("text, expected", [
    (GOOD + CODE.replace("x = 1", "x = 3"), "WRONG: fails: assertion violated"),
    (BAD + CODE.replace("x == 2", "x == 1"), "WRONG: passes"),
    (BAD.replace("assertion violated", "invalid end state") + CODE, "WRONG: fails: assertion"),
    (GOOD + CODE.replace("byte x", "bite x"), "BROKEN: spin"),
    (CODE, "lists no variant"),
])
def test_reports_what_is_wrong(source, tmp_path, text, expected):
    status, told = models(source, tmp_path, text)
    assert status == 1
    assert expected in told
    assert told.endswith("0 passed, 1 failed, 0 skipped\n")
