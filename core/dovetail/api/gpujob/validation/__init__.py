"""The rules of a GPUJob's schema, as CEL expressions. Data only."""
