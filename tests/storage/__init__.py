"""Measurements, claims and statistics, stored."""
