"""Requests to edges, and their answers (docs/requests.md): the formats that headquarters, bridges and edges share."""
