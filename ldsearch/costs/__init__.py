"""Costs of sub-networks: MACs, parameters, registered ones."""
