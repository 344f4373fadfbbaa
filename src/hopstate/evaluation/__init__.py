"""Evaluation protocols, metrics, confidence intervals and the leakage test, for any model.

| Evaluation | function |
|---|---|
| link prediction protocol | `link.evaluate_link` |
| leakage test | `leak.check_leak` |
| metrics | `metrics.average_precision`, `roc_auc`, `ranking.mrr` |
| confidence intervals | `intervals.bootstrap_areas` |
"""
