"""The pages of the data: a version column by column, two side by side, and all versions."""
