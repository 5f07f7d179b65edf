"""Text: tokenizers, chat templates, streaming text, and what each part of a request costs."""
