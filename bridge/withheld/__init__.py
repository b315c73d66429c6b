"""Records of tables whose schema the registry refuses: read back from their topic and released."""
