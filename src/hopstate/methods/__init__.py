"""One file per method: from data records through tokens and model to a task the loop can run."""
