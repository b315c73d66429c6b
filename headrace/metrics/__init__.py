"""Figures of a running part: declared once, scraped by Prometheus, asked for by `headrace status`, watched by a supervisor."""
