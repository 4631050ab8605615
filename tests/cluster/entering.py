# SPDX-License-Identifier: Apache-2.0
"""Moves pytest into namespaces of its own before the first test of a folder, see cluster.py."""

import os
import pathlib
import sys

import cluster as clusters
from support import capabilities


def enter(config, folder):
    """To be called by pytest_configure(). Does nothing if more than this folder was asked for, since other tests
    are not to find themselves root, or if there are no user namespaces: who needs those says so."""
    files = [pathlib.Path(argument.split("::")[0]).resolve() for argument in config.args]
    if clusters.inside():
        clusters.prepare()
    elif (all(folder in [file, *file.parents] for file in files)
          and capabilities.why_missing("user-namespaces") is None):
        config.pluginmanager.getplugin("capturemanager").stop_global_capturing()
        command = clusters.command([sys.executable, "-m", "pytest", *config.invocation_params.args])
        os.execvp(command[0], command)
