"""Tests of search spaces."""
