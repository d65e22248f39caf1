"""Latency: profiles, tables, and what a search found, timed."""
