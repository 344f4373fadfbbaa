"""Colours of a report for light, dark and paper; the style sheet is `templates/style.css`."""

from __future__ import annotations

# name → colour; text colours reach a contrast of 4.5 against page and panel, marks of charts 3
LIGHT = {
    "page": "#ffffff",
    "panel": "#f4f5f7",
    "text": "#1b1f24",
    "quiet": "#4d5661",
    "rule": "#c9ced6",
    "accent": "#0b57a4",
    "series-0": "#0b62b0",
    "series-1": "#b04a00",
    "series-2": "#1a7a4c",
    "series-3": "#a3267a",
    "series-4": "#6b5b00",
    "series-5": "#5b3fb5",
    "series-6": "#00707f",
    "series-7": "#55606b",
}
DARK = {
    "page": "#14171b",
    "panel": "#1e2329",
    "text": "#e9ecf0",
    "quiet": "#b3bcc7",
    "rule": "#3c444e",
    "accent": "#8cc0ff",
    "series-0": "#6db3ff",
    "series-1": "#ff9d57",
    "series-2": "#5fd39a",
    "series-3": "#f08fd0",
    "series-4": "#e0c84a",
    "series-5": "#b7a3ff",
    "series-6": "#58cfe0",
    "series-7": "#b3bcc7",
}
SERIES = 8
DASHES = ("none", "7 3", "2 3", "9 3 2 3")  # with colours they tell more series apart, in print and to all eyes
