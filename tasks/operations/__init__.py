"""Operations that a person or a schedule starts beside the loop."""
