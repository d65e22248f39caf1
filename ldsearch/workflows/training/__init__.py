"""Trainings: of supernets, of one sub-network alone, of what a teacher wrote."""
