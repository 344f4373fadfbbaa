"""What the tests of models share: the library's own, and those of a user's method.

`asserts` holds every tolerance by name, and compares outputs and gradients; `conformance` holds the checks that every
model passes: equal seeds, gradients to every parameter, checkpoints, the order of nodes, batches of one and their
company. Models and functions enter; an AssertionError says which property fails. Only tests import this package.
"""
