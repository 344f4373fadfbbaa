"""Protocols, metrics, intervals, and the guard that nothing looks ahead; knows no model.

| what all share | function |
|---|---|
| link protocol | `link.evaluate_link` |
| the leak check | `leak.check_leak` |
| metrics | `metrics.average_precision`, `roc_auc`, `ranking.mrr` |
| intervals | `intervals.bootstrap_areas` |

Scores of a scorer enter (see `streaming`); tables of metrics come out.
"""
