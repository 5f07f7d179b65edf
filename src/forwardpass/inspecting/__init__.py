"""A pass from inside: the running vector, what each layer adds to it, what attention looks at."""
