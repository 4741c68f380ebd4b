"""What a training needs on its own machine: settings of a request, of PyTorch and of TensorFlow. No requests."""
