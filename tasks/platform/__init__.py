"""The platform: its services under one supervisor."""
