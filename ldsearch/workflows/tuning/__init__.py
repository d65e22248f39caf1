"""A study over how to train the supernet."""
