"""The training engine."""

from dovetail.sdk import AlgorithmTrainingEngine, TrainingConfig

__all__ = ["AlgorithmTrainingEngine", "TrainingConfig"]
