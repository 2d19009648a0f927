"""Finished jobs for the tests of this room."""

from tests.finished_jobs import exported_job, finished_job, one_thread

__all__ = ["exported_job", "finished_job", "one_thread"]
