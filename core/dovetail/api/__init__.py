"""The API types of `dovetail.dev/v1alpha1`: one definition for decoding, for the CRDs and for their descriptions. Data only."""
