"""PostgreSQL's subscription statements as text: tokens, the parser, error positions."""
