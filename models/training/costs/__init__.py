"""What training costs: time, arithmetic, memory, energy."""
