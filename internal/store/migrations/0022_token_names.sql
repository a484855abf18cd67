-- Tokens are looked up by their name, too: see TokensNamed.
CREATE INDEX tokens_name ON tokens (name);
