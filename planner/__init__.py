"""From measured step times to hours and dollars: planning and launching Keras training."""
