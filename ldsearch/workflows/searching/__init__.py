"""Searches of one supernet, and what is written of them."""
