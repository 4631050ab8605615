# SPDX-License-Identifier: Apache-2.0
"""Goal: somebody who has just cloned Fairway gets from `make run` to a dump that was loaded again, by what the walk says and
with nothing but what is in a clone.
Method: clone what is committed, and type walk.md there."""

import pathlib
import shutil
import subprocess

import page as pages
import pytest
import reader

HERE = pathlib.Path(__file__).resolve().parent


@pytest.fixture
def clone(source, tmp_path):
    """A fresh one; of an unpacked archive a copy. Whose the source's files are does not matter: nothing of it is run by git."""
    folder = tmp_path / "fairway"
    if not (source / ".git").exists():
        return shutil.copytree(source, folder, ignore=shutil.ignore_patterns("build", "build-*"))
    done = subprocess.run(["git", "-c", "safe.directory=*", "clone", "--quiet", "--no-hardlinks", f"file://{source}", folder],
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 0, done.stdout
    return folder


@pytest.mark.needs("user-namespaces")
def test_walk(clone):
    walker = reader.Reader(clone, None)
    try:
        walker.follow(pages.read((HERE / "walk.md").read_text()))
    finally:
        walker.close()
