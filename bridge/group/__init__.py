"""The group of bridges that share sources."""
