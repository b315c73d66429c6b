"""Attacks: what peers, topics and the registry send that no release of ours would, and what has to become of it."""
