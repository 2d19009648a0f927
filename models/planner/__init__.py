"""What a plan of training would need and take, reckoned before anything is started."""
