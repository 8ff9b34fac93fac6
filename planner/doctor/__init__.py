"""What `gpuplan doctor` finds out about an installation; nothing is sent anywhere, and no secret is read out."""
