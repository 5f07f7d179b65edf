"""The tokens at which a repeat ends, for the DRY stage: those that hold a sequence breaker."""

from __future__ import annotations

from collections.abc import Sequence

from forwardpass.text.tokenizer import Tokenizer


def breakers(tokenizer: Tokenizer, texts: Sequence[str]) -> frozenset[int]:
    """Ids of all tokens whose bytes hold one of `texts` whole, control tokens by their names.

    A text that no single token holds breaks nothing.
    """
    wanted = [text.encode() for text in texts]
    names = {token.id: token.text.encode() for token in tokenizer.control_tokens}
    held = (
        (token, names.get(token) or tokenizer.token_bytes(token))
        for token in range(tokenizer.vocab_size)
    )
    return frozenset(token for token, data in held if any(text in data for text in wanted))
