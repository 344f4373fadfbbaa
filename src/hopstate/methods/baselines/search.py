"""What DyGLib searched for every one of its models.

Source: Yu et al. 2023, arXiv:2303.13047, appendix B.5.
"""

from __future__ import annotations

DYGLIB_DROPOUT = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6]
