"""The workspace a task acts in: its paths, records, locks, processes and stores."""
