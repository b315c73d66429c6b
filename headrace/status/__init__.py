"""`headrace status`: one line a source, from a running edge or bridge, or from what is durable where none runs."""
