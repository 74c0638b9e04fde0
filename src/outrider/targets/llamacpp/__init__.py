"""GGUF models as targets, scored by llama.cpp (optional extra `outrider[llamacpp]`)."""
