"""Requests from headquarters: their links, which are admitted, and their answers on the way back."""
