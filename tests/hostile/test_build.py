# SPDX-License-Identifier: Apache-2.0
"""Goal: what an attacker could overwrite or foretell is not there to be: tables of the loader that can be written, a
stack that can be executed, addresses that are known. Method: readelf, on the program and on the library."""

import re
import subprocess

import pytest


def read(path, *flags):
    return subprocess.run(["readelf", "--wide", *flags, path], capture_output=True, text=True, check=True).stdout


@pytest.fixture(params=["fairway", "libfairway.so"])
def built(request, build):
    return build / request.param


def test_nothing_is_writable_that_need_not_be(built):
    headers = read(built, "--program-headers")
    assert "GNU_RELRO" in headers
    assert re.search(r"GNU_STACK.* RW +0x", headers)
    assert re.search(r"BIND_NOW|\(FLAGS_1\).*NOW", read(built, "--dynamic"))


def test_addresses_are_random(built):
    assert re.search(r"Type: +DYN", read(built, "--file-header"))
