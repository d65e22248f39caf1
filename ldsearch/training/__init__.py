"""Training a supernet: strategies name the sub-networks of a batch, one trainer owns the backward pass."""
