"""What lies on disk: whole files, records, staged folders, fingerprints, the hub."""
