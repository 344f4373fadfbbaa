"""Finished link prediction runs, combined by a logistic regression: `hopstate ensemble RUN RUN ...`."""
