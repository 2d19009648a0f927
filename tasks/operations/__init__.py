"""What a person or a schedule asks for beside the loop."""
