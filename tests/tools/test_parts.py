# SPDX-License-Identifier: Apache-2.0
"""Goal: tools/parts leaves out exactly the part it names, requires all others, and passes only if every build and every test
of it passed.
Method: the real tools/parts in a made-up tree, whose tools/setup and tools/check write down how they were called and fail
when the case says so."""

import shutil
import subprocess

import pytest

PACKAGES = """\
build           gcc        the compiler
optional/http   libhttp    one
optional/http   http-tool  one
optional/lvm    liblvm     two
optional        neither    is no part
"""


@pytest.fixture
def parts(source, tmp_path):
    """Calls tools/parts; setup fails for builds with the options in `unsound`, tests fail for compilers in `broken`."""
    tools = tmp_path / "tools"
    tools.mkdir()
    (tmp_path / "packaging").mkdir()
    (tmp_path / "packaging/packages").write_text(PACKAGES)
    shutil.copy(source / "tools/parts", tools)

    def call(*arguments, unsound="nothing", broken="nobody", **environment):
        (tools / "setup").write_text(f'#!/bin/sh\necho "$CC $*" >>calls\ncase "$*" in *{unsound}*) echo no library; exit 1; esac\n')
        (tools / "check").write_text(f'#!/bin/sh\necho "check $*" >>calls\ncase $1 in *-{broken}) exit 1; esac\n')
        for name in ("setup", "check"):
            (tools / name).chmod(0o755)
        done = subprocess.run([tools / "parts", *arguments], env={"PATH": "/usr/bin:/bin", **environment},
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        calls = tmp_path / "calls"
        return done.returncode, done.stdout, calls.read_text().splitlines() if calls.exists() else []

    return call


def test_each_and_all_by_both_compilers(parts):
    status, output, calls = parts()
    assert status == 0, output
    expected = []
    for compiler in ("gcc", "clang"):
        build = f"build-parts-{compiler}"
        for http, lvm in (("disabled", "enabled"), ("enabled", "disabled"), ("disabled", "disabled")):
            expected += [f"{compiler} {build} -Dbench=false -Dhttp={http} -Dlvm={lvm}", f"check {build} --suite unit"]
    assert calls == expected


def test_one_part_and_one_compiler(parts):
    status, output, calls = parts("lvm", COMPILERS="clang")
    assert status == 0, output
    assert calls == ["clang build-parts-clang -Dbench=false -Dhttp=enabled -Dlvm=disabled", "check build-parts-clang --suite unit"]


def test_an_unknown_part_is_refused(parts):
    status, output, calls = parts("https")
    assert status == 2
    assert "no part 'https'; there are: http lvm all" in output
    assert calls == []


@pytest.mark.parametrize("fault", [{"broken": "gcc"}, {"broken": "clang"}, {"unsound": "lvm=disabled"}], ids=["gcc", "clang", "setup"])
def test_one_failure_fails_all(parts, fault):
    status, output, calls = parts("lvm", "http", **fault)
    assert status == 1
    assert sum(call.startswith("check") for call in calls) == (2 if "unsound" in fault else 4), "the others are tried all the same"
    assert ("no library" in output) == ("unsound" in fault)
