"""Measured time: a protocol of timing, runtimes to time, memory, and a table that predicts."""
