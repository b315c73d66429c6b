"""Lakes on an object store: the log store by which several drivers may write, and its source in Java."""
