"""Convex models: fitted to their minimum over all training rows, by L-BFGS."""
