"""Text forced into a shape: a schema becomes a grammar, a grammar says which byte may come next.

    schema ─► documents, keywords ─► forms (normal form) ─► plans ─► machine (bytes)
    pattern ─► regular (languages) ─► strings (bytes)      numbers ─► number_text (bytes)

A leaf: it takes schemas and bytes, knows no model, no tokenizer and no engine.
"""
