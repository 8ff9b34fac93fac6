"""Laboratory of gpuplan: measuring campaigns."""
