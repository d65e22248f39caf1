"""Tests of the latency room."""
