"""The platform: all services under one supervisor."""
