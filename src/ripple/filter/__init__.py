"""Training Learn2PD's filter: labelled traces of the model at hand, a tiny network, a safetensors file."""
