"""Operations beside the loop that a person or a schedule starts."""
