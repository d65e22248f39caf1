"""Measured sub-networks: trials, frontiers, intervals, and which one a goal takes."""
