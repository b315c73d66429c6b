"""Configuration: TOML files, checked whole before anything starts; one module for each part's own file."""
