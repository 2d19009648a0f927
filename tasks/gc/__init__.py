"""What nobody needs any more: it is found by reachability, shown, and removed."""
