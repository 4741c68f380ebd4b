"""The training engine."""

from dovetail.sdk import AlgorithmTrainingEngine, AlgorithmType, TrainingConfig

__all__ = ["AlgorithmTrainingEngine", "AlgorithmType", "TrainingConfig"]
