"""What an edge answers: at its endpoint, and to headquarters, which may ask for verification and copies of tables."""
