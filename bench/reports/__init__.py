# SPDX-License-Identifier: Apache-2.0
"""The report that `make bench` writes: README.md beside this file."""
