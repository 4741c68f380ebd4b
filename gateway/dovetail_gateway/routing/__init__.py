"""The typed route table and what follows from it: decoding, rights, answers, OpenAPI, errors."""
