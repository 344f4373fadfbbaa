"""How bytes reach the disk and come back: one atomic writer, locks, the cache folder, arrays, tensors, tables, figures.

Nothing here knows a record. `files` is the one writer; `folders` exchanges whole folders so; `lock` holds a folder or a
file while it is worked on; `opening` opens what users name, regular files alone and never more than they can hold;
`arrays` and `tensor_file` read numbers without pickle; `kernel_cache` finds a place for compiled kernels.
"""
