"""In which order things happen: Prefect flows and the command line."""
