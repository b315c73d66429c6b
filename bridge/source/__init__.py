"""One source: its chain, its gaps, its queue and its state. Nothing here sees a socket."""
