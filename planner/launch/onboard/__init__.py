"""What runs on the machine that was started: standard library and Keras only, so that it can be sent there."""
