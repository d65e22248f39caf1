"""Strategies, supernets and runs side by side."""
