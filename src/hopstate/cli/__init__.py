"""The command line: `hopstate COMMAND ...`, one module a command, or a few that share their options.

`main` looks a command up and makes of an error one line and an exit status; `fit`, `apply`, `ask`, `serve`, `tune` and
the others each parse their own words, and import what they need only when they run. A method's options are not written
here: they are the fields of its configuration (`methods.config`).

The words of a command line enter; calls of `runs` and `serving`, tables and files come out, with status 0 (done), 1
(failed), 2 (wrong usage) or 130 (stopped). Nothing is computed here that Python users could not call.
"""
