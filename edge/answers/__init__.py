"""What headquarters may ask an edge, answered: verification and copies of tables."""
