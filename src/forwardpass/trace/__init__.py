"""What happened in each step of an answer, kept, written down and looked at again."""
