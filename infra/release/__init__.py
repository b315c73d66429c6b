"""What makes a release, and its documents: run from a checkout alone, in no package."""
