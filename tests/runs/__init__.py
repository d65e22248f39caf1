"""Tests of run folders."""
