"""What the compiled loops for the CPU are written in.

Vectors of sixteen lanes and their exp, random numbers, units of work. Imported when a kernel is first called.
"""
