# SPDX-License-Identifier: Apache-2.0
"""The mutation tester behind tools/mutate; see README.md here.

tokens      splits C into tokens and leaves out what is never mutated
statements  finds the functions and their statements among the tokens
operators   proposes mutants, each a few edits of one file
allowed     reads the survivors that someone has explained
project     knows modules, their files and their tests
workshop    builds and tests one mutant after the other in a private copy of the tree
schedule    shares the mutants out to several workshops
report      counts and prints
"""
