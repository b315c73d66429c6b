"""One source: its gaps, its session, its state and who owns it. Nothing here sees a socket."""
