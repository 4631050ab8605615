# SPDX-License-Identifier: Apache-2.0
"""Goal: what breaks the wrong variants of a model does not break the code.
Method: Spin finds how each wrong variant of models/epoch.pml fails; the moves that led there, which the
model prints, are played to the code that the server ships (epoch_replay.c)."""

import re
import subprocess

import pytest

pytestmark = pytest.mark.needs("spin")

VARIANTS = re.compile(r"^ \* Verify: (-D\w+)\s+fails", re.MULTILINE)


@pytest.fixture(scope="module")
def trails(source, tmp_path_factory):
    """From each wrong variant to its moves."""
    text = (source / "models" / "epoch.pml").read_text(encoding="utf-8")
    model = tmp_path_factory.mktemp("model") / "epoch.pml"
    model.write_text(re.sub(r"^ \* Verify:.* passes\n", "", text, flags=re.MULTILINE), encoding="utf-8")
    done = subprocess.run([source / "tools" / "models", "--trail", model], stdout=subprocess.PIPE, text=True,
                          check=True)
    found, moves = {}, []
    for line in done.stdout.splitlines():
        move = re.match(r" *MOVE (\w+ \d)$", line)
        verdict = re.match(r"epoch\.pml +(-D\w+) .*, as it must", line)
        if move:
            moves.append(move[1])
        elif verdict:
            found[verdict[1]], moves = moves, []
    assert sorted(found) == sorted(VARIANTS.findall(text))
    return found


def replay(build, moves):
    done = subprocess.run([build / "tests" / "epoch_replay"], input="\n".join([*moves, ""]), stdout=subprocess.PIPE,
                          text=True, check=False)
    assert done.returncode == 0, f"{done.stdout} {moves}"
    made, count = map(int, re.fullmatch(r"(\d+) of (\d+) moves\n", done.stdout).groups())
    assert count == len(moves)
    return made


def test_wrong_variants_do_not_break_the_code(build, trails):
    for variant, moves in trails.items():
        made = replay(build, moves)
        print(f"{variant}: {made} of {len(moves)} moves")
        assert made > len(moves) // 2  # Else it would be another story.
