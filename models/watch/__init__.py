"""What a served model's predictions tell: mergeable counts, drift, realised and estimated performance."""
