"""What is said of a project at one glance, and the light that sums it up."""
