"""Published measurements, one file a source, and the models that they were measured on."""
