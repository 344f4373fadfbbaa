"""Run configurations of published table rows."""
