"""The API types of `dovetail.dev`: one definition for decoding, CRDs and descriptions. Data only."""
