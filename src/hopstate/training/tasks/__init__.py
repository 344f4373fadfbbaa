"""Learning problems for the training loop: `task` defines the interface, `target` the losses and metrics of labels."""
