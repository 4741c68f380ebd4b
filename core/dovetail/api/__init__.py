"""The API types of `dovetail.dev/v1alpha1`: one definition for decoding, CRDs and descriptions. Data only."""
