"""The schema registry: the bridge registers schemas there, and the lake looks them up."""
