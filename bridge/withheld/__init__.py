"""Tables whose schema the registry refuses: their records wait in a topic of their own, and the other tables go on."""
