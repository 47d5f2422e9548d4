"""The GPU path of the dense network: Triton and CUDA kernels of our own."""
