"""The steps of the loop, a file each."""
