"""An extension of griffe: docstrings whose `Args` document several arguments in one line, and with one `Example`.

mkdocs.yml names it. The line `src, dst: (E,) node rows.` becomes one line for each argument. griffe renders code under
`Examples:` only, so `Example:` becomes that.
"""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

SHARED = re.compile(r"^( {4})(\w+(?:, \w+)+): (.*(?:\n {5,}.*)*)", re.M)


class SharedArguments(Extension):
    """Repeat the description of a line for each of its arguments."""

    def on_instance(self, *, obj: Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            text = SHARED.sub(
                lambda m: "\n".join(f"{m[1]}{name}: {m[3]}" for name in m[2].split(", ")), obj.docstring.value
            )
            obj.docstring.value = re.sub(r"^Example:$", "Examples:", text, flags=re.M)
