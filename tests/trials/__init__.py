"""Tests of trials, frontiers, intervals and goals."""
