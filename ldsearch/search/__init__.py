"""Search strategies: which sub-networks to try next. Knows sub-networks and numbers, never models."""
