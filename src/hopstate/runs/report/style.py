"""The look of a report: colours for light, dark and paper, and the style sheet."""

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


def _colours(colours: dict[str, str]) -> str:
    return "".join(f"--{name}:{value};" for name, value in colours.items())


_SERIES = "".join(f".s{i}{{stroke:var(--series-{i});fill:none}}.f{i}{{fill:var(--series-{i})}}" for i in range(SERIES))

CSS = f"""
:root{{color-scheme:light dark;{_colours(LIGHT)}}}
@media (prefers-color-scheme:dark){{:root{{{_colours(DARK)}}}}}
*{{box-sizing:border-box}}
html{{-webkit-text-size-adjust:100%}}
body{{margin:0;background:var(--page);color:var(--text);font:16px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif}}
main,header,footer{{max-width:72rem;margin:0 auto;padding:0 1rem}}
header{{padding-top:1.5rem}}
footer{{padding:1rem 1rem 3rem;color:var(--quiet);font-size:.875rem}}
h1{{font-size:1.75rem;line-height:1.2;margin:.25rem 0}}
h2{{font-size:1.35rem;margin:2.5rem 0 .5rem;padding-top:.5rem;border-top:1px solid var(--rule)}}
h3{{font-size:1.05rem;margin:1.5rem 0 .5rem}}
p{{margin:.5rem 0;max-width:46rem}}
.quiet{{color:var(--quiet)}}
h1,h2,h3,p,caption,li,figcaption{{overflow-wrap:anywhere}}
th,td{{overflow-wrap:break-word}}
nav ul{{display:flex;flex-wrap:wrap;gap:.25rem 1.25rem;padding:0;margin:1rem 0;list-style:none}}
nav a{{display:inline-block;padding:.35rem 0}}
a{{color:var(--accent)}}
a:focus-visible,.scroll:focus-visible{{outline:3px solid var(--accent);outline-offset:2px}}
.skip{{position:absolute;left:-99rem}}
.skip:focus{{position:static;display:inline-block;padding:.5rem}}
.scroll{{overflow-x:auto;margin:.75rem 0}}
table{{border-collapse:collapse;width:100%;font-size:.9rem;font-variant-numeric:tabular-nums}}
caption{{text-align:left;padding:.25rem 0;color:var(--quiet)}}
th,td{{padding:.4rem .6rem;text-align:left;vertical-align:top;border-bottom:1px solid var(--rule)}}
thead th{{background:var(--panel);border-bottom:2px solid var(--rule);vertical-align:bottom}}
.n{{text-align:right;white-space:nowrap}}
.w{{white-space:nowrap}}
tbody th{{font-weight:600;min-width:8rem}}
.charts{{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,26rem),1fr));gap:1rem}}
figure{{margin:0;padding:.75rem;background:var(--panel);border-radius:.5rem;min-width:0;max-width:34.5rem}}
figure svg{{display:block;width:100%;height:auto}}
figcaption{{font-size:.9rem;margin-bottom:.25rem}}
svg text{{fill:var(--text);font:12px system-ui,-apple-system,"Segoe UI",sans-serif}}
svg .axis{{stroke:var(--quiet);stroke-width:1}}
svg .grid{{stroke:var(--rule);stroke-width:.75}}
svg .query{{stroke:var(--quiet);stroke-width:1.25;stroke-dasharray:2 3}}
svg .whisker{{stroke:var(--text);stroke-width:1.5}}
svg .line{{stroke-width:1.75;stroke-linejoin:round}}
{_SERIES}
.key{{list-style:none;display:flex;flex-wrap:wrap;gap:.1rem 1rem;margin:.4rem 0 0;padding:0;font-size:.85rem}}
.key svg{{display:inline-block;width:1.9rem;height:.8rem;vertical-align:middle;margin-right:.35rem}}
@media screen and (max-width:44rem){{
table,caption,tbody,tr,th,td{{display:block}}
thead{{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)}}
tbody tr{{padding:.5rem 0;border-bottom:2px solid var(--rule)}}
th,td,.n{{border:0;padding:.1rem 0;white-space:normal}}
td{{display:grid;grid-template-columns:8.5rem minmax(0,1fr);gap:.75rem}}
td.n{{text-align:left}}
td::before{{content:attr(data-label);color:var(--quiet)}}
td:empty{{display:none}}
}}
@media print{{
:root{{{_colours(LIGHT)}}}
body{{font-size:10pt}}
nav,.skip{{display:none}}
main,header,footer{{max-width:none;padding:0}}
.scroll{{overflow:visible}}
table{{font-size:7.5pt}}
th,td{{padding:.2rem .3rem}}
thead .n{{white-space:normal}}
td:last-child{{overflow-wrap:anywhere}}
figure,tr{{break-inside:avoid}}
h2,h3,caption,h2+p{{break-after:avoid}}
.charts{{grid-template-columns:1fr 1fr;gap:.5rem}}
thead{{display:table-header-group}}
figure{{border:1px solid var(--rule);background:none}}
}}
"""
