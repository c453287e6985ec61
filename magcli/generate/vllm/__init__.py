"""vLLM as an engine: started, sampled from, put to sleep, and given new weights."""
