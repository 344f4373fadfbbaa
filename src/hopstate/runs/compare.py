"""Compare methods on the same data over splits and seeds."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hopstate.errors import SHARED_ERRORS, ConfigError, described
from hopstate.io.files import locked, write_text
from hopstate.methods import get_method
from hopstate.methods.config import arguments_of, parse_words, parser_of
from hopstate.runs.data import load_data
from hopstate.runs.run import fit_config, output_folder, resolve_config, stored_config
from hopstate.runs.saved_run import SavedRun
from hopstate.runs.summary import EVENT_BASELINES, baselines_not_exceeded_by_method, num_events, summary
from hopstate.sampling.negatives import STRATEGIES, metric_name

if TYPE_CHECKING:
    import pandas as pd

Row = dict[str, Any]
NUMBER = {"graph": "--split.number", "graphs": "--fold"}  # what numbers the splits; a stream has one split, time's


def compare(
    methods: Sequence[str],
    data: str | Path,
    *,
    splits: Sequence[int] = (0,),
    seeds: Sequence[int] = (0,),
    out: str | Path | None = None,
    config: Mapping[str, Any] | None = None,
) -> pd.DataFrame:
    """Train several methods on the same data and compare them. Finished runs in out are reused.

    Args:
        methods: names of methods.
        data: a file, a folder, or the name of a dataset.
        splits: numbers of splits. Default: only split 0. An event stream has only one split.
        seeds: training seeds. Default: only seed 0.
        out: folder of the runs and of table.json. Default: a new folder under runs/.
        config: settings of every method that has them, nested or dotted. "METHOD.NAME" is a setting of one method.

    Returns:
        One row per method, with columns such as method, metric, runs, test_mean, test_std, val_mean, val_std, seconds
        and parameters.

    Raises:
        ConfigError: an unknown method, or several splits of an event stream.
        HopstateError: no run finished. The error is that of the first run.

    Example:
        >>> events.to_csv("events.csv", index=False)
        >>> hopstate.compare(["recency", "edgebank"], "events.csv")["method"].tolist()
        ['recency', 'edgebank']
    """
    import pandas as pd

    comparison = Comparison(list(methods), list(splits), list(seeds), str(data), arguments_of(config or {}))
    with output_folder(out, "compare", str(data)) as folder, locked(folder):
        rows = comparison.run(folder)
    if rows is None:
        raise KeyboardInterrupt
    return pd.DataFrame([row for row in rows if not row.get("baseline")])


@dataclass
class Comparison:
    """Runs of several methods on the same data, splits and seeds.

    Args:
        methods: their names.
        splits: numbers of splits.
        seeds: of training.
        data: a file, a folder, or the name of a dataset.
        words: settings of the command line.
        failed: runs that ended in an error.
    """

    methods: list[str]
    splits: list[int]
    seeds: list[int]
    data: str
    words: list[str]
    failed: list[Row] = field(default_factory=list)
    _records: dict[str, Any] = field(default_factory=dict)
    _automatic: dict[str, Mapping[str, Any]] = field(default_factory=dict)  # one choice for all splits and seeds
    _shown: set[str] = field(default_factory=set)  # notes on the data
    _test_baselines: dict[str, Any] = field(default_factory=dict)
    _with_baselines: set[int] = field(default_factory=set)  # splits whose baselines are evaluated

    def __post_init__(self) -> None:
        for name in self.methods:
            if get_method(name).data not in NUMBER and self.splits != [0]:
                raise ConfigError(
                    f"--splits {','.join(map(str, self.splits))}: {name} works on data that have one split (a stream's "
                    f"is time's), so the runs would be one and the same; vary --seeds, "
                    f"e.g. --seeds 0-{max(1, len(self.splits) - 1)}"
                )

    def run(self, folder: Path) -> list[Row] | None:
        """Train what is not trained yet; return a row per method that has results, None if it was interrupted."""
        rows: list[Row] = []
        first_error = None
        for name in self.methods:
            results: list[Row | None] = []  # None of a run that failed
            for split, seed in product(self.splits, self.seeds):
                try:
                    results.append(self._one(name, split, seed, folder / f"{name}-split{split}-seed{seed}"))
                except KeyboardInterrupt:
                    return None
                except SHARED_ERRORS:
                    raise
                except Exception as error:
                    first_error = first_error or error
                    self.failed.append({"method": name, "split": split, "seed": seed, "error": described(error)})
                    results.append(None)
            if any(results):
                rows.append(self._row(name, results))
                write_text(folder / "table.json", json.dumps(add_baselines(rows, self._test_baselines), indent=1))
        if not rows and first_error is not None:
            raise first_error
        return add_baselines(rows, self._test_baselines)

    def _one(self, name: str, split: int, seed: int, where: Path) -> Row:
        """Return the result of one run: an earlier one of the same settings and data, or a new or continued one."""
        method = get_method(name)
        arguments = [f"--data={self.data}", f"--loop.seed={seed}"]
        arguments += [f"{NUMBER[method.data]}={split}"] if method.data in NUMBER else []
        parser = parser_of(method, prog=f"hopstate compare: {name}")
        _, parse = parse_words(method, parser, [*arguments, *_settings(name, self.words, self.methods)])
        config, folder = parse({}), SavedRun(where)
        read = f"{method.data} {config.read!r}"
        if read not in self._records:
            self._records[read] = load_data(config.data, config.read, method.data)
        record = self._records[read]
        config, _, automatic = resolve_config(method, parse, record=record, automatic=self._automatic.get(name))
        self._automatic[name] = automatic
        if (where / "result.json").is_file() and folder.settings() == stored_config(method, config):
            folder.require_same_data(record)
        else:
            baselines = split not in self._with_baselines  # the same for every run on a split
            options: dict[str, Any] = {
                "record": record,
                "with_baselines": baselines,
                "automatic": automatic,
                "reported_notes": self._shown,
            }
            if fit_config(method, config, out=where, resume=True, **options).interrupted:
                raise KeyboardInterrupt
        if folder.baselines():
            self._with_baselines.add(split)
        if method.data not in NUMBER:
            self._test_baselines |= folder.baselines()
        return folder.result()

    def _row(self, name: str, results: list[Row | None]) -> Row:
        """Return the row of a method: means and deviations over its finished runs."""
        finished = [result for result in results if result is not None]
        first = finished[0]
        metric, kinds = first["metric"], [m for m in link_metrics() if m in first["metrics"]["test"]]

        def over(values: list[float | None]) -> tuple[float, float | None]:
            statistics = summary([math.nan if value is None else value for value in values])
            assert statistics is not None
            return statistics.mean, statistics.std

        values = {
            split: [None if one is None else one["metrics"][split][metric] for one in results]
            for split in ("test", "val")
        }
        test, val = (over([one["metrics"][split][metric] for one in finished]) for split in ("test", "val"))
        return {
            "method": name,
            "metric": metric,
            "positive_class": first.get("positive_class"),
            "runs": len(finished),
            "test_mean": test[0],
            "test_std": test[1],
            "val_mean": val[0],
            "val_std": val[1],
            "seconds_per_epoch": over([one["seconds_per_epoch"] for one in finished])[0],
            "seconds": over([one["seconds"] for one in finished])[0],
            "parameters": first["parameters"],
            "num_events": {m: num_events(m, first["metrics"]["test"]) for m in kinds},
            "kinds": {m: over([one["metrics"]["test"].get(m) for one in finished]) for m in kinds},
            "values": values,
        }


def _settings(name: str, words: list[str], methods: list[str]) -> list[str]:
    """Return the settings of one method: those of all, and those that begin with its name."""
    settings, applies = [], True
    for word in words:
        if word.startswith("--"):
            first, _, tail = word[2:].partition(".")
            applies = first not in methods or first == name
            word = f"--{tail}" if first == name and tail else word
        if applies:
            settings.append(word)
    return settings


def link_metrics() -> list[str]:
    """Return the metric of every strategy of negatives, for all links and for those with new nodes."""
    metrics = {name: "mrr" if own.ranking else "average_precision" for name, own in STRATEGIES.items()}
    return [metric_name(metric, name, new_nodes=new) for name, metric in metrics.items() for new in (False, True)]


def add_baselines(rows: list[Row], baselines: dict[str, dict[str, float | None]]) -> list[Row]:
    """Return the rows with the baselines that each does not outperform, then a row per other baseline."""
    means = {row["method"]: {m: mean for m, (mean, _) in row["kinds"].items()} for row in rows}
    kinds = dict.fromkeys(metric for values_of_method in means.values() for metric in values_of_method)
    others: dict[str, dict[str, float]] = {}
    for name, metrics in baselines.items():
        known = {m: value for m in kinds if (value := metrics.get(m)) is not None}
        if known and name not in means:
            others[name] = known
    not_outperformed = baselines_not_exceeded_by_method(others | means, {*others, *EVENT_BASELINES})
    compared = [row | {"not_outperformed": not_outperformed[row["method"]]} for row in rows]
    for name, values in others.items():
        kinds_of = {m: (value, None) for m, value in values.items()}
        compared.append(
            {"method": name, "baseline": True, "kinds": kinds_of, "not_outperformed": not_outperformed[name]}
        )
    return compared
