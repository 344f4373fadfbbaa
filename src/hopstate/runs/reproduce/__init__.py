"""From a published table to measured figures: run recipes, keep results, compare, print.

`recipes` finds the rows that the methods declare, `availability` says which data are missing and how to get them,
`runner` runs what is asked and appends a line a run, `results` reads those lines, `statistics` makes intervals of them
and `tables` sets them beside what was published. Names of recipes enter; run folders, a file of results and tables
leave.
"""
