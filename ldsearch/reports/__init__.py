"""Tables first, figures from tables. Knows trials and frontiers only."""
