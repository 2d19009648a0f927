"""HTML pages and figures for people."""
