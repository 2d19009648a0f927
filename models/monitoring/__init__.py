"""Monitoring: drift, calibration and performance in windows."""
