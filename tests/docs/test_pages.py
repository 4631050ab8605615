# SPDX-License-Identifier: Apache-2.0
"""Goal: every command of the README, of the guide and of other pages with sessions works as it stands there, and shows
what is shown there.
Method: type them, page by page, in terminals of a machine of its own: network namespaces, in which port 11211 is free,
and three nodes where a page asks for them. page.py says how pages are written."""

import contextlib
import pathlib

import cluster as clusters
import page as pages
import pytest
from reader import INSTEAD, Reader
from terminal import Wrong

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = ["README.md", *sorted(str(file.relative_to(ROOT)) for file in ROOT.glob("docs/**/*.md")
                              if "```console" in file.read_text())]

# The commands are given in a folder that looks like the top of the tree, but is not: what they leave there nobody has to
# remove. make goes to the tree itself, where everything is built already, and is not to configure or build the
# directory whose tests are running; tests/walk lets it.
MAKEFILE = """\
.DEFAULT_GOAL := all
%: always
\t@+$(MAKE) --no-print-directory -C {root} -o all -o server BUILD={build} $@
always Makefile: ;
"""


def lay_out(folder, build):
    """Makes the folder that looks like the top of the tree."""
    folder.mkdir()
    for name in ("bench", "docs", "examples", "packaging", "tests", "tools", "README.md"):
        (folder / name).symlink_to(ROOT / name)
    (folder / "build").symlink_to(build)
    (folder / "Makefile").write_text(MAKEFILE.format(root=ROOT, build=build))
    return folder


def follow(page, folder, build):
    """Does all that a page says, and ends what it has started."""
    with contextlib.ExitStack() as stack:
        has_nodes = any(name.startswith("node") for name in page.terminals())
        cluster = stack.enter_context(clusters.Cluster(folder, 3)) if has_nodes else None
        reader = Reader(lay_out(folder / "fairway", build), cluster)
        stack.callback(reader.close)
        reader.follow(page)


def parameters():
    for name in PAGES:
        page = pages.read((ROOT / name).read_text())
        marks = [pytest.mark.needs(*sorted(page.needs | {"user-namespaces"}))]
        if any(terminal.startswith("node") for terminal in page.terminals()):
            marks.append(pytest.mark.needs("corosync"))
        yield pytest.param(page, id=name, marks=marks)


@pytest.mark.parametrize("page", parameters())
def test_page(page, build, tmp_path):
    assert page.steps, "there is nothing to be done on this page"
    follow(page, tmp_path, build)


WELL = """
```ini file:greeting
hello
```
```console
$ cat greeting
hello
$ cd build/.. && ls -d tests
...
$ printf '%s %d' number 17 && echo && echo the rest
number ...
...
```
```console @server stays
$ sh -c 'echo begun; exec sleep 1000'
begun
```
```console figures
$ echo "  3 of  4.5"
1 of 2.25
```
```console fails
$ fairway serve --no-such-option
```
```console
$ { sleep 0.01; echo late; } &
late
$ exec 3<greeting; variable=kept
$ echo "$variable"; cat <&3
kept
hello
$ cat <<.
> one
> .
one
```
```console @server
^C
$ echo again
again
```
"""


@pytest.mark.needs("user-namespaces")
def test_a_page_that_is_right(build, tmp_path):
    follow(pages.read(WELL), tmp_path, build)


WRONG = {
    "a command that is not there": "$ no-such-command",
    "an option that is not there": "$ fairway version --no-such-option",
    "other words": "$ echo one two\none three",
    "more than is shown": "$ echo one; echo two\none",
    "less than is shown": "$ echo one\none\ntwo",
    "a figure": "$ echo 1\n2",
    "what stays, and ends": "@ stays\n$ echo one\ntwo",
    "what should fail": "@ fails\n$ true",
    "nothing to interrupt": "^C",
    "words between figures": "@ figures\n$ echo 1 of 2\n1 or 2",
}


@pytest.mark.needs("user-namespaces")
@pytest.mark.parametrize("session", WRONG)
def test_a_page_that_is_wrong(session, build, tmp_path):
    words, text = "", WRONG[session]
    if text.startswith("@"):
        words, _, text = text[1:].partition("\n")
    with pytest.raises(Wrong, match="line 2"):
        follow(pages.read(f"```console{words}\n{text}\n```\n"), tmp_path, build)


@pytest.mark.parametrize("text", ["    $ ls\n", "```console\nls\n```\n", "```console\n$ ls\n", "```console often\n$ ls\n```\n",
                                  "```console stays\n$ ls\n```\n"])
def test_a_page_that_is_badly_written(text):
    with pytest.raises(pages.Mistake):
        pages.read(text)


def test_nothing_is_replaced_in_vain():
    """What is not typed as it stands is still in some page."""
    typed = {step.text for name in PAGES for step in pages.read((ROOT / name).read_text()).steps
             if isinstance(step, pages.Command)}
    assert set(INSTEAD) <= typed
