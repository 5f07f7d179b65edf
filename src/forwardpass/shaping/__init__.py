"""What a request asks of an answer's shape, as a grammar."""
