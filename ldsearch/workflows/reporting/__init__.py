"""One page of what finished runs left."""
