"""Finished link prediction runs, combined by a logistic regression: `hopstate ensemble RUN RUN ...`."""

METHODS = {"ensemble": "events", "link-ensemble": "links"}
