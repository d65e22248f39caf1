"""Tests of the supernet."""
